"""The public API of a transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic

from typing_extensions import TypeVar

from kafka_async.errors import (
    Category,
    IncompleteTransactionError,
    KafkaError,
    TransactionStateError,
    convert_transaction_errors,
    to_transaction_error,
)
from kafka_async.foundation.arguments import (
    by_partition,
    check_timeout,
    group_metadata,
    offset_and_metadata,
)
from kafka_async.foundation.supervisor import wait_shielded
from kafka_async.producer.transactions.state import TransactionState
from kafka_async.producer.writer import RecordWriter
from kafka_async.types import HasOffsetSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from kafka_async.producer.runtime import ProducerRuntime
    from kafka_async.producer.transactions.manager import TransactionManager
    from kafka_async.types import (
        GroupMetadata,
        OffsetAndMetadata,
        OffsetSource,
        PreparedTransaction,
        TopicPartition,
    )

__all__ = ["Transaction"]

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

ABORT_TIMEOUT: Final = 10.0
"""Seconds for which a block that is left by an exception waits for the abort, which then continues
in the background.
"""


class Transaction(RecordWriter[K, V], Generic[K, V]):
    """Records and offsets that become visible together, or not at all.

        async with producer.transaction() as txn:
            await txn.enqueue("counts", b"3", key=b"word")
            await txn.commit_offsets(consumer)

    The end of the block commits. Any exception, a cancellation included, aborts the transaction and
    is raised unchanged, with a note if the abort failed. `producer.begin()` opens a transaction
    without a block.

    A call that sends and raises makes the transaction incomplete: `commit` then raises
    `IncompleteTransactionError`, whose message includes the first such error. A cancelled call does
    not count. With `ignore_failed_sends=True` the transaction commits what was accepted.

    All errors that its calls raise belong to the classes of KIP-1050: `TransactionAbortableError`
    (abort, then continue), `ApplicationRecoverableError` (close the producer, and restart from what
    was committed) or `InvalidConfigurationError` (abort; the producer stays usable).
    """

    def __init__(
        self, manager: TransactionManager, runtime: ProducerRuntime, *, ignore_failed_sends: bool
    ) -> None:
        super().__init__()
        # Calls that raised: without their records the transaction may be incomplete.
        self._ignore_failed_sends = ignore_failed_sends
        self._failed_send: Exception | None = None
        self._failed_send_count = 0
        self._manager = manager
        self._producer_runtime = runtime
        self._number = 0  # until it is begun
        self._ended = False
        self._prepared = False

    # -- calls ------------------------------------------------------------------------------------

    async def commit_offsets(
        self,
        offsets: HasOffsetSource | Mapping[TopicPartition, OffsetAndMetadata | int],
        group: GroupMetadata | str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a consumer group with the transaction (KIP-447).

        Args:
            offsets: A consumer, for the positions of the records that it has returned and not
                committed, with its metadata of the group. Or offsets of the next records to read.
            group: Metadata or id of the group, if `offsets` is not a consumer.
            timeout: Maximum time in seconds (default: max_block_ms).

        Raises:
            TransactionAbortableError: The offsets may not be part of the transaction: abort.
            TransactionStateError: The transaction is not open.
            ApplicationRecoverableError: The producer cannot continue.
            InvalidConfigurationError: An option or a permission must be changed first: abort.
        """
        timeout = check_timeout(timeout, unlimited="max_block_ms")
        manager = self._active_manager("commit_offsets")
        source: OffsetSource | None = None
        with convert_transaction_errors():
            # A consumer has the positions and the group's metadata together; offsets need the
            # group's.
            if not isinstance(offsets, HasOffsetSource):
                positions = by_partition(offsets, "offsets", offset_and_metadata)
                metadata = group_metadata(group)
            else:
                source = offsets.__offset_source__()
                positions = dict(source.uncommitted())
                metadata = source.group_metadata()
            await manager.add_offsets(positions, metadata, source, timeout)

    async def commit(self, *, timeout: float | None = None) -> None:
        """Deliver what was enqueued, and commit.

        Args:
            timeout: Maximum time for both, in seconds (default: delivery_timeout_ms for the
                records, then max_block_ms).

        Raises:
            TransactionAbortableError: A record was not delivered, a call that sends has raised, or
                the cluster requires it: abort.
            TransactionOutcomeUnknownError: The commit was sent and no response was received. Await
                `commit()` again; until it returns, `producer.init_transactions()` is the only other
                call that works.
            ApplicationRecoverableError: The producer cannot continue.
            InvalidConfigurationError: An option or a permission must be changed first: abort.
        """
        timeout = check_timeout(timeout)
        manager = self._active_manager("commit")
        # Before anything is sent: the application may have caught the error of the call.
        self._refuse_incomplete(manager)
        with convert_transaction_errors():
            await manager.commit(timeout)
        self._ended = True

    async def prepare(self, *, timeout: float | None = None) -> PreparedTransaction | None:
        """Deliver what was enqueued, and leave the transaction open for another process to end.

        This is the first phase of a two-phase commit. `Admin.end_transaction` commits or aborts it,
        even in another process or after this producer was stopped; `commit` and `abort` do it here.
        The end of a block leaves a prepared transaction open; an exception aborts it. The
        coordinator aborts it after transaction_timeout_ms, counted from its first record.

        Args:
            timeout: Maximum time in seconds (default: delivery_timeout_ms).

        Returns:
            What another process needs to end the transaction, or None if it had neither records nor
            offsets and has ended.

        Raises:
            TransactionAbortableError: A record was not delivered, a call that sends has raised, or
                the cluster requires it: abort.
            TransactionStateError: The transaction is not open.
            ApplicationRecoverableError: The producer cannot continue.
            InvalidConfigurationError: An option or a permission must be changed first: abort.
        """
        timeout = check_timeout(timeout)
        manager = self._active_manager("prepare")
        self._refuse_incomplete(manager)
        with convert_transaction_errors():
            prepared = await manager.prepare(timeout)
        self._prepared = True
        self._ended = prepared is None
        return prepared

    async def abort(self, *, timeout: float | None = None) -> None:
        """Abort the transaction; never raises TransactionAbortableError.

        If the coordinator cannot be reached in time, the producer requests a new epoch, which ends
        an open transaction.

        Args:
            timeout: Maximum time in seconds (default: max_block_ms).

        Raises:
            ApplicationRecoverableError: The producer cannot continue.
            InvalidConfigurationError: The coordinator refused to abort it: an option or a
                permission must be changed first. The producer can begin another transaction then.
            TransactionStateError: The transaction was not begun, or is over.
        """
        timeout = check_timeout(timeout, unlimited="max_block_ms")
        manager = self._active_manager("abort")
        with convert_transaction_errors():
            await manager.abort(timeout)
        self._ended = True

    # -- as a block -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._number:
            raise TransactionStateError("a transaction can be begun only once: begin another")
        with convert_transaction_errors():
            self._number = await self._manager.begin(self._on_state_changed)
        # From now on the fast path may append; every state but "in transaction" closes it again.
        self._open_writer(self._producer_runtime)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Four ways to leave the block: it was ended inside, an exception aborts it, a prepared
        # transaction stays open, and otherwise it is committed.
        if self._ended:
            return
        if error is not None:
            await self._abort_because(error)
            return
        if self._prepared:
            return
        try:
            await self.commit()
        # A failed or cancelled commit is aborted, unless its outcome is unknown (`_abort_because`).
        except BaseException as failure:
            await self._abort_because(failure)
            raise

    async def _abort_because(self, error: BaseException) -> None:
        """Abort the transaction if it is open, even if the caller is cancelled repeatedly."""
        # In other states there is nothing to abort, or the commit may already have taken effect.
        if self._manager.state not in (
            TransactionState.IN_TRANSACTION,
            TransactionState.ABORTABLE_ERROR,
            TransactionState.ABORTING_TRANSACTION,
            TransactionState.PREPARED,
        ):
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._manager.abort(), name="aborting a transaction")
        cancelled = await wait_shielded(task, loop.time() + ABORT_TIMEOUT)
        in_time = task.done()
        if not in_time:
            task.cancel()  # the wait only; the abort continues
        # A cancellation during the abort takes precedence over the exception of the block.
        if cancelled is not None:
            raise cancelled
        problem: object = (
            f"it takes longer than {ABORT_TIMEOUT:g} s, and continues in the background"
        )
        # The exception of the block stays the one that is raised, so the problem becomes a note.
        if in_time:
            problem = None if task.cancelled() else task.exception()
        if problem is not None:
            error.add_note(f"The transaction was not aborted: {problem}")

    # -- failed sends -----------------------------------------------------------------------------

    def _note_failure(self, error: Exception) -> None:
        if self._failed_send is None:
            self._failed_send = error
        self._failed_send_count += 1

    def _refuse_incomplete(self, manager: TransactionManager) -> None:
        """Make the transaction abortable only if a call that sends has raised."""
        first, count = self._failed_send, self._failed_send_count
        if first is not None and not self._ignore_failed_sends:
            calls = "a call" if count == 1 else f"{count} calls"
            incomplete = IncompleteTransactionError(
                f"{calls} to send records raised, so the transaction is incomplete: abort it, or "
                f"begin it with ignore_failed_sends=True; the first error: {_described(first)}"
            )
            incomplete.category = Category.ABORTABLE
            incomplete.__cause__ = first
            manager.fail(incomplete)

    # -- state ------------------------------------------------------------------------------------

    def _on_state_changed(self, state: TransactionState) -> None:
        """Check each record from now on unless records may be added."""
        if state is not TransactionState.IN_TRANSACTION:
            self._force_slow_path()

    def _check_writable(self) -> None:
        self._active_manager("enqueue").check_open("enqueue")

    def _translate_error(self, error: KafkaError) -> KafkaError:
        return to_transaction_error(error)

    def _active_manager(self, call: str) -> TransactionManager:
        if not self._number:
            raise TransactionStateError(f"{call}: the transaction was not begun")
        # An old object must not write into the next transaction.
        if self._ended or self._manager.current != self._number:
            raise TransactionStateError(f"{call}: this transaction is over; begin another")
        return self._manager


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, KafkaError) else f"{type(error).__name__}: {error}"
