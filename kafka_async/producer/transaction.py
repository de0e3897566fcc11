"""A transaction, as its user sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic

from typing_extensions import TypeVar

from kafka_async.arguments import (
    by_partition,
    check_timeout,
    group_metadata,
    offset_and_metadata,
)
from kafka_async.errors import (
    KafkaError,
    TransactionStateError,
    convert_transaction_errors,
    to_transaction_error,
)
from kafka_async.foreign_names import unknown_keyword
from kafka_async.producer.transaction_state import State
from kafka_async.producer.writer import RecordWriter
from kafka_async.supervisor import wait_shielded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Never, Self

    from kafka_async.producer.producer import Producer
    from kafka_async.producer.transaction_manager import TransactionDriver
    from kafka_async.types import GroupMetadata, OffsetAndMetadata, OffsetSource, TopicPartition

__all__ = ["Transaction"]

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

ABORT_PATIENCE: Final = 10.0
"""Seconds that a block left by an exception waits for the abort, which then goes on by itself."""


class Transaction(RecordWriter[K, V], Generic[K, V]):
    """Records and offsets that become visible together, or not at all.

        async with producer.transaction() as txn:
            await txn.enqueue("counts", b"3", key=b"word")
            await txn.commit_offsets(consumer)

    The block's end commits. Any exception, a cancellation included, aborts and leaves as it is,
    with what the abort ran into as a note. `producer.begin()` gives one without a block.

    What its calls raise is of one of the classes of KIP-1050: `TransactionAbortableError` (abort,
    then go on), `ApplicationRecoverableError` (close the producer, restart from what was committed)
    or `InvalidConfigurationError` (abort; the producer stays usable).
    """

    def __init__(self, producer: Producer[K, V]) -> None:
        super().__init__()
        self._producer = producer
        self._begun = False
        self._over = False

    # -- the calls --------------------------------------------------------------------------------

    async def commit_offsets(
        self,
        offsets: OffsetSource | Mapping[TopicPartition, OffsetAndMetadata | int],
        group: GroupMetadata | str | None = None,
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Commit a group's offsets with the transaction (KIP-447).

        Give the consumer: what it has handed out and not committed is taken, with its place in the
        group. Or give offsets of the next records to read, and the group's metadata or id.
        """
        if unknown:
            raise unknown_keyword(self.commit_offsets, unknown)
        check_timeout(timeout, unlimited="max_block_ms")
        driver = self._driver("commit_offsets")
        source: OffsetSource | None = None
        with convert_transaction_errors():
            if not hasattr(offsets, "uncommitted"):
                positions = by_partition(offsets, "offsets", offset_and_metadata)
                metadata = group_metadata(group)
            else:
                source = offsets  # type: ignore[assignment]  # it has what an OffsetSource has
                assert source is not None
                positions = dict(source.uncommitted())
                metadata = source.group_metadata()
            await driver.add_offsets(positions, metadata, source, timeout)

    async def commit(self, *, timeout: float | None = None, **unknown: Never) -> None:
        """Deliver what was enqueued, and commit.

        `timeout` is for all of it; default: delivery_timeout_ms for the records, then max_block_ms.

        Raises:
            TransactionAbortableError: a record was not delivered, or the cluster demands it: abort.
            TransactionOutcomeUnknownError: the commit was sent and no answer came. Await commit()
                again; until it returns, only `producer.init_transactions()` works besides.
            ApplicationRecoverableError: the producer cannot go on.
            InvalidConfigurationError: the cluster does not allow it: abort.
        """
        if unknown:
            raise unknown_keyword(self.commit, unknown)
        check_timeout(timeout)
        driver = self._driver("commit")
        with convert_transaction_errors():
            await driver.commit(timeout)
        self._over = True

    async def abort(self, *, timeout: float | None = None, **unknown: Never) -> None:
        """Throw away what was written; never raises TransactionAbortableError.

        If the coordinator cannot be told (`timeout`, default max_block_ms), the producer asks for a
        new epoch, which ends whatever is open.

        Raises:
            ApplicationRecoverableError: the producer cannot go on.
        """
        if unknown:
            raise unknown_keyword(self.abort, unknown)
        check_timeout(timeout, unlimited="max_block_ms")
        driver = self._driver("abort")
        with convert_transaction_errors():
            await driver.abort(timeout)
        self._over = True

    # -- as a block -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._over:
            return
        if error is not None:
            await self._abort_because(error)
            return
        try:
            await self.commit()
        except BaseException as failure:
            await self._abort_because(failure)
            raise

    async def begin(self, **unknown: Never) -> None:
        """Open the transaction; `producer.begin()` and the block do it."""
        if unknown:
            raise unknown_keyword(self.begin, unknown)
        if self._begun:
            raise TransactionStateError("a transaction can be begun once: take another")
        with convert_transaction_errors():
            engine = await self._producer.open_transaction(self)
        self._begun = True
        self._open_writer(engine)

    async def _abort_because(self, error: BaseException) -> None:
        """Abort if there is anything to abort; however long the caller has been cancelled."""
        driver = self._producer.driver
        if driver is None or driver.machine.state not in (
            State.IN_TRANSACTION,
            State.MUST_ABORT,
            State.ABORTING,
        ):
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(driver.abort(), name="aborting a transaction")
        cancelled = await wait_shielded(task, loop.time() + ABORT_PATIENCE)
        in_time = task.done()
        if not in_time:
            task.cancel()  # who waits: the abort itself goes on
        if cancelled is not None:
            raise cancelled
        problem: object = (
            f"it takes longer than {ABORT_PATIENCE:g} s, and goes on in the background"
        )
        if in_time:
            problem = None if task.cancelled() else task.exception()
        if problem is not None:
            error.add_note(f"The transaction was not aborted: {problem}")

    # -- for the producer -------------------------------------------------------------------------

    def heard(self, state: State) -> None:
        """The producer's state has changed: unless records may be added, look before each."""
        if state is not State.IN_TRANSACTION:
            self._shut_writer()

    def _check_writable(self) -> None:
        self._driver("enqueue").check_open("enqueue")

    def _leaving(self, error: KafkaError) -> KafkaError:
        return to_transaction_error(error)

    def _driver(self, what: str) -> TransactionDriver:
        driver = self._producer.driver
        if driver is None or not self._begun:
            raise TransactionStateError(f"{what}: the transaction was not begun")
        if self._over or self._producer.current is not self:
            raise TransactionStateError(f"{what}: this transaction is over; begin another")
        return driver
