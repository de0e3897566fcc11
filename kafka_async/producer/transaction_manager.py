"""Runs the transactions of a producer: requests to coordinators, and changes of state.

The state table is in `transaction_state`, the requests in `transaction_requests`, their retries in
`transaction_coordinator`. The end of a transaction runs as a task of the producer. Cancelling a
caller that waits for it does not cancel the task: the call can be awaited again and returns the
coordinator's response.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.cluster.request_destinations import CoordinatorKind
from kafka_async.config import seconds
from kafka_async.errors import (
    ApplicationRecoverableError,
    Category,
    ClientClosedError,
    IllegalGenerationError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    Path,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    TransactionOutcomeUnknownError,
    category_of,
    convert_transaction_errors,
    to_transaction_error,
)
from kafka_async.hooks import TransactionEnded
from kafka_async.producer import transaction_requests
from kafka_async.producer.idempotence import ProducerIdAndEpoch
from kafka_async.producer.transaction_coordinator import (
    CoordinatorClient,
    CoordinatorKey,
    RequestAttempts,
)
from kafka_async.producer.transaction_state import (
    EVENT_FOR_CATEGORY,
    TransactionEvent,
    TransactionState,
    TransactionStateMachine,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from kafka_async.cluster.broker_connection import BrokerConnection
    from kafka_async.cluster.client import Client
    from kafka_async.config import ProducerConfig
    from kafka_async.producer.accumulator import Accumulator
    from kafka_async.producer.partition_queue import PartitionQueue
    from kafka_async.producer.sender import Sender
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdResponse
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import GroupMetadata, OffsetAndMetadata, OffsetSource, TopicPartition

__all__ = ["TransactionManager"]

logger = logging.getLogger("kafka_async.producer")

FEATURE = "transaction.version"
_FENCED = (
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidPidMappingError,
    TransactionalIdAuthorizationError,
)
"""Errors after which the coordinator would refuse an abort from this producer."""

_FENCED_EPOCH: Final = (ProducerFencedError, InvalidProducerEpochError)


@dataclass(slots=True, eq=False)
class _TransactionEnd:
    """The end of a transaction in progress, or its outcome until the next transaction begins.

    Attributes:
        commit: True if it is a commit.
        done: Completed when the transaction is over.
        waiters: Number of calls waiting for it.
        raised: A call has returned its success or raised its error.
    """

    commit: bool
    done: asyncio.Future[None]
    waiters: int = 0
    raised: bool = False

    @property
    def abandoned(self) -> bool:
        """True if all its calls were cancelled before they returned its outcome."""
        return not self.waiters and not self.raised


class TransactionManager:
    """Runs the transaction protocol of one producer (KIP-98, KIP-890).

    Attributes:
        on_state: Called after each change of state.
        state_machine: State of the producer.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client: Client,
        accumulator: Accumulator,
        sender: Sender,
        supervisor: Supervisor,
        rng: random.Random,
    ) -> None:
        assert config.transactional_id is not None
        self.on_state: Callable[[TransactionState], None] = _ignore
        self.state_machine = TransactionStateMachine(lambda state: self.on_state(state))
        self._id = config.transactional_id
        self._config = config
        self._client = client
        self._accumulator = accumulator
        self._sequencer = accumulator.sequencer
        self._sender = sender
        self._supervisor = supervisor
        self._loop = supervisor.loop
        self._coordinators = CoordinatorClient(config, client, self, rng)
        self._coordinator = CoordinatorKey(CoordinatorKind.TRANSACTION, self._id)
        self._ending: _TransactionEnd | None = None
        self._v2 = False
        self._has_written = False
        self._needs_new_epoch = False
        self._began_at = 0.0
        self._sources: list[tuple[OffsetSource, Mapping[TopicPartition, OffsetAndMetadata]]] = []
        self._max_block = seconds(config.max_block_ms)
        accumulator.incomplete.translate_error = self.translate_error
        sender.add_partitions_to_txn = self._start_adding_partitions

    # -- calls ------------------------------------------------------------------------------------

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Obtain a producer id and epoch, which fences an earlier producer with the same id."""
        self.state_machine.apply(TransactionEvent.INIT)
        try:
            await self._new_epoch(self._deadline(timeout))
        except BaseException as error:
            fatal = category_of(error, Path.TRANSACTION) is Category.APPLICATION_RECOVERABLE
            if fatal and isinstance(error, KafkaError):
                self.state_machine.apply(TransactionEvent.FATAL, to_transaction_error(error))
            else:
                self.state_machine.apply(TransactionEvent.INIT_FAILED)
            raise
        self._needs_new_epoch = False
        self._ending = None
        self.state_machine.apply(TransactionEvent.INITIALIZED)

    async def begin(self, timeout: float | None = None) -> None:
        """Open a transaction.

        If the calls that ended the previous transaction were cancelled, this waits for that end
        first. A transaction that was not committed then is aborted, and its error is raised. A
        producer that needs a producer id or a new epoch obtains it.
        """
        machine = self.state_machine
        deadline = self._deadline(timeout)
        await self._wait_for_previous_end(deadline)
        if machine.state is TransactionState.UNINITIALIZED or (
            machine.state is TransactionState.READY and self._needs_new_epoch
        ):
            with convert_transaction_errors(begun=False):
                await self.init_transactions(max(0.0, deadline - self._loop.time()))
        machine.apply(TransactionEvent.BEGIN)
        self._v2 = self._client.finalized_feature(FEATURE) >= 2
        self._sender.requests.transactions_v2 = self._v2
        self._accumulator.require_partitions_added(required=not self._v2)
        self._sequencer.has_assigned = False
        self._has_written = False
        self._began_at = self._loop.time()
        self._sources = []
        self._ending = None

    async def _wait_for_previous_end(self, deadline: float) -> None:
        """Wait for the end of a transaction whose calls were cancelled.

        Raises:
            TransactionAbortableError, InvalidConfigurationError: It was not committed. It is
                aborted, and the next transaction can begin.
        """
        ending = self._ending
        if ending is None or not ending.abandoned:
            return
        try:
            await self._wait_for_end(ending, deadline)
        except KafkaError:
            if self.state_machine.state is TransactionState.MUST_ABORT:
                await self.abort(max(0.0, deadline - self._loop.time()))
            raise

    async def add_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        source: OffsetSource | None,
        timeout: float | None = None,
    ) -> None:
        """Make offsets part of the transaction."""
        self.check_open("commit_offsets")
        if not offsets:
            return
        try:
            await self._commit_offsets(offsets, group, source, self._deadline(timeout))
        except KafkaError as error:
            translated = self._apply_error(to_transaction_error(error))
            if translated is error:
                raise
            raise translated from error
        except BaseException:
            doubt = "commit_offsets was cancelled: the transaction may or may not have its offsets"
            self._apply_error(_abortable(doubt))
            raise
        if source is not None:
            self._sources.append((source, offsets))

    async def commit(self, timeout: float | None = None) -> None:
        """Deliver the transaction's records and commit it."""
        deadline = None if timeout is None else self._loop.time() + timeout
        machine, ending = self.state_machine, self._ending
        if ending is None or not ending.commit or (ending.done.done() and ending.done.exception()):
            if machine.state is TransactionState.OUTCOME_UNKNOWN:
                machine.apply(TransactionEvent.COMMIT)
            else:
                await self._flush_records(deadline)
            limit = self._deadline(None) if deadline is None else deadline
            ending, deadline = self._start_end(self._commit, limit, commit=True), None
        await self._wait_for_end(ending, deadline)

    async def abort(self, timeout: float | None = None) -> None:
        """Abort the transaction."""
        deadline: float | None = self._deadline(timeout)
        ending = self._ending
        if ending is None or ending.commit:
            self.state_machine.apply(TransactionEvent.ABORT)
            ending, deadline = (
                self._start_end(self._abort, self._deadline(timeout), commit=False),
                None,
            )
        await self._wait_for_end(ending, deadline)

    def check_open(self, what: str) -> None:
        """Raise unless records and offsets can be added to a transaction now."""
        machine = self.state_machine
        if machine.state is TransactionState.IN_TRANSACTION:
            return
        if machine.state is TransactionState.MUST_ABORT and machine.error is not None:
            raise machine.error
        raise machine.state_error(what)

    async def close(self, timeout: float) -> None:
        """End an open transaction within `timeout` seconds, unless no broker responds."""
        machine = self.state_machine
        self._coordinators.closing = True
        try:
            if machine.state in (TransactionState.IN_TRANSACTION, TransactionState.MUST_ABORT):
                await self.abort(timeout)
            elif self._ending is not None and not self._ending.done.done():
                await self._wait_for_end(self._ending, self._loop.time() + timeout)
            elif machine.state is TransactionState.FAILED and self._known_to_coordinator():
                await self._abort_after_failure(timeout)
        except KafkaError as error:
            logger.info("%s: left to the coordinator's time-out: %s", self._id, error)

    @property
    def connections(self) -> list[BrokerConnection]:
        """Connections to coordinators, for the producer to close."""
        return self._coordinators.connections

    def translate_error(self, error: Exception) -> Exception:
        """Apply the error of a failed batch to the transaction, and return the error to raise."""
        return self._apply_error(to_transaction_error(error, path=Path.PRODUCE))

    # -- requests ---------------------------------------------------------------------------------

    async def _new_epoch(self, deadline: float) -> None:
        attempts = RequestAttempts()
        id_and_epoch = self._sequencer.id_and_epoch
        try:
            response = await self._init_producer_id(id_and_epoch, deadline, attempts)
        except _FENCED_EPOCH:
            # A coordinator that aborts an open transaction for InitProducerId bumps the epoch,
            # responds CONCURRENT_TRANSACTIONS, and refuses the same request when it is retried.
            if id_and_epoch is None or not attempts.concurrent:
                raise
            logger.debug("%s: the new epoch fenced its own producer: retrying", self._id)
            response = await self._init_producer_id(None, deadline, attempts)
        self._sequencer.set_id_and_epoch(
            ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        )
        logger.debug("%s: %s", self._id, self._sequencer.id_and_epoch)

    async def _init_producer_id(
        self, id_and_epoch: ProducerIdAndEpoch | None, deadline: float, attempts: RequestAttempts
    ) -> InitProducerIdResponse:
        return await self._coordinators.send(
            transaction_requests.init_producer_id(
                self._id, self._config.transaction_timeout_ms, id_and_epoch
            ),
            self._coordinator,
            deadline=deadline,
            get_error=transaction_requests.code_error,
            attempts=attempts,
        )

    async def _commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        source: OffsetSource | None,
        deadline: float,
    ) -> None:
        """Send offsets with the consumer's generation; if that has ended, again with the next one.

        A cooperative rebalance continues while a transaction is open. The coordinator accepts
        offsets of the former generation until all members have joined, and of the new one from then
        on; the member keeps its partitions meanwhile.
        """
        while True:
            try:
                await self._send_offsets(offsets, group, deadline)
            except IllegalGenerationError as error:
                if source is None:
                    raise
                left = max(0.0, deadline - self._loop.time())
                joined = await source.next_generation(group, left)
                if joined is None:
                    raise TransactionAbortableError.from_cause(error, Category.ABORTABLE) from error
                logger.debug(
                    "%s: sending offsets again with generation %d", self._id, joined.generation_id
                )
                group = joined
            else:
                return

    async def _send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        deadline: float,
    ) -> None:
        id_and_epoch = self._id_and_epoch
        if not self._v2:
            await self._coordinators.send(
                transaction_requests.add_offsets_to_txn(self._id, id_and_epoch, group.group_id),
                self._coordinator,
                deadline=deadline,
                get_error=transaction_requests.code_error,
            )
        self._has_written = True
        await self._coordinators.send(
            transaction_requests.commit_txn_offsets(self._id, id_and_epoch, group, offsets),
            CoordinatorKey(CoordinatorKind.GROUP, group.group_id),
            deadline=deadline,
            get_error=transaction_requests.offsets_error,
            max_version=transaction_requests.MAX_OFFSETS_VERSION_V2
            if self._v2
            else transaction_requests.MAX_OFFSETS_VERSION_V1,
        )

    def _start_adding_partitions(self, queues: list[PartitionQueue]) -> None:
        self._supervisor.spawn(self._add_partitions, queues, name="adding partitions")

    async def _add_partitions(self, queues: list[PartitionQueue]) -> None:
        partitions = [queue.partition for queue in queues]
        try:
            await self._coordinators.send(
                transaction_requests.add_partitions_to_txn(
                    self._id, self._id_and_epoch, partitions
                ),
                self._coordinator,
                deadline=self._deadline(None),
                get_error=transaction_requests.partitions_error,
                max_version=transaction_requests.MAX_ADD_PARTITIONS_VERSION,
            )
        except KafkaError as error:
            translated = self._apply_error(to_transaction_error(error))
            now = self._sender.now()
            for queue in queues:
                self._accumulator.incomplete.fail_unsent(queue, translated, now)
            self._needs_new_epoch = True
        else:
            self._has_written = True
            self._accumulator.mark_partitions_added(queues, self._sender.now())
        self._sender.wakeup()

    async def _send_end_txn(
        self, *, commit: bool, deadline: float, attempts: RequestAttempts
    ) -> None:
        response = await self._coordinators.send(
            transaction_requests.end_txn(self._id, self._id_and_epoch, commit=commit),
            self._coordinator,
            deadline=deadline,
            get_error=transaction_requests.code_error,
            max_version=transaction_requests.MAX_END_TXN_VERSION_V2
            if self._v2
            else transaction_requests.MAX_END_TXN_VERSION_V1,
            attempts=attempts,
            on_sent=self._commit_sent if commit else None,
        )
        if response.producer_id >= 0:
            self._sequencer.set_id_and_epoch(
                ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            )

    # -- end of a transaction ---------------------------------------------------------------------

    async def _flush_records(self, deadline: float | None) -> None:
        """Wait until all records of the transaction are acknowledged, or raise its error."""
        machine = self.state_machine
        if machine.state is TransactionState.MUST_ABORT and machine.error is not None:
            if self._ending is not None:
                self._ending.raised = True
            raise machine.error
        machine.apply(TransactionEvent.COMMIT)
        try:
            async with asyncio.timeout_at(deadline):
                await self._sender.flush()
        except TimeoutError as error:
            raise self._apply_error(_abortable("the records were not delivered in time")) from error
        except BaseException:
            if machine.allows(TransactionEvent.COMMIT_INTERRUPTED):
                machine.apply(TransactionEvent.COMMIT_INTERRUPTED)
            raise
        # The state machine has the error of these failures.
        self._accumulator.incomplete.unreported_failures.take_error()
        if machine.error is not None:
            raise machine.error

    async def _commit(self, deadline: float) -> None:
        attempts = RequestAttempts()
        try:
            if self._known_to_coordinator():
                await self._send_end_txn(commit=True, deadline=deadline, attempts=attempts)
        except KafkaError as error:
            self._needs_new_epoch = self._needs_new_epoch or attempts.without_response > 0
            translated = self._handle_commit_error(error, attempts)
            if translated is error:
                raise
            raise translated from error
        # A request without a response may still arrive after the next transaction has begun. With
        # transactions v1 only a new epoch keeps it from ending that one.
        self._needs_new_epoch = attempts.without_response > 0 and not self._v2
        for source, offsets in self._sources:
            source.mark_committed(offsets)
        self._finish(committed=True)

    def _commit_sent(self) -> None:
        if self.state_machine.state is TransactionState.COMMITTING:
            self.state_machine.apply(TransactionEvent.COMMIT_SENT)

    def _handle_commit_error(self, error: KafkaError, attempts: RequestAttempts) -> KafkaError:
        translated = to_transaction_error(
            error, commit_sent=self.state_machine.state is TransactionState.COMMIT_SENT
        )
        category = translated.category
        retriable = category_of(error, Path.TRANSACTION) in (
            Category.RETRIABLE,
            Category.REFRESH_RETRIABLE,
        )
        if retriable and self.state_machine.state is TransactionState.COMMIT_SENT:
            self.state_machine.apply(TransactionEvent.NO_RESPONSE)
            return translated
        if attempts.without_response and category is not Category.APPLICATION_RECOVERABLE:
            lost = to_transaction_error(_no_response_error(error), commit_sent=True)
            self.state_machine.apply(TransactionEvent.NO_RESPONSE)
            return lost
        return self._apply_error(translated)

    async def _abort(self, deadline: float) -> None:
        dropped = _abortable("the transaction was aborted before this record was delivered")
        self._sender.abort_error = dropped
        attempts = RequestAttempts()
        try:
            self._accumulator.incomplete.abort_unsent(dropped, self._sender.now())
            # A third of the time each for the batches in flight, EndTxn, and a new epoch instead.
            third = (deadline - self._loop.time()) / 3
            await self._wait_for_in_flight(deadline - 2 * third)
            await self._send_abort(deadline - third, deadline, attempts)
        except KafkaError as error:
            translated = to_transaction_error(error)
            if translated.category is Category.ABORTABLE:  # an abort must not require another abort
                translated = ApplicationRecoverableError(
                    f"the transaction was not aborted: {error}"
                )
                translated.category = Category.APPLICATION_RECOVERABLE
            if translated.category is Category.APPLICATION_RECOVERABLE:
                self.state_machine.apply(TransactionEvent.FATAL, translated)
            else:
                self._needs_new_epoch = True
                self._finish(committed=False)
            if translated is error:
                raise
            raise translated from error
        finally:
            self._sender.abort_error = None
        self._accumulator.incomplete.unreported_failures.take_error()
        self._finish(committed=False)

    async def _send_abort(
        self, end_txn_deadline: float, deadline: float, attempts: RequestAttempts
    ) -> None:
        new_epoch = self._needs_new_epoch
        if self._known_to_coordinator():
            try:
                await self._send_end_txn(commit=False, deadline=end_txn_deadline, attempts=attempts)
            except _FENCED:
                raise
            except KafkaError as error:
                # A new epoch aborts an open transaction and fences requests that may still arrive.
                logger.debug("%s: aborting by a new epoch: %s", self._id, error)
                new_epoch = True
        if new_epoch or (
            not self._v2 and (attempts.without_response or self._sequencer.lost_batch)
        ):
            await self._new_epoch(deadline)
            self._needs_new_epoch = False

    async def _wait_for_in_flight(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                for outcome in self._accumulator.incomplete.in_flight:
                    await outcome.wait_completed()
        except TimeoutError:
            self._needs_new_epoch = True

    async def _abort_after_failure(self, timeout: float) -> None:
        error = self.state_machine.error
        if (
            error is not None
            and not isinstance(error, _FENCED)
            and not isinstance(error.__cause__, _FENCED)
        ):
            deadline = self._loop.time() + timeout
            await self._send_end_txn(commit=False, deadline=deadline, attempts=RequestAttempts())

    def _finish(self, *, committed: bool) -> None:
        self._sources = []
        self._accumulator.require_partitions_added(required=False)
        if self._client.hooks.active:
            took = self._loop.time() - self._began_at
            event = TransactionEnded(self._config.client_id, self._id, committed, took)
            self._client.hooks.emit(event)
        self.state_machine.apply(TransactionEvent.ENDED)

    # -- helpers ----------------------------------------------------------------------------------

    @property
    def _id_and_epoch(self) -> ProducerIdAndEpoch:
        id_and_epoch = self._sequencer.id_and_epoch
        assert id_and_epoch is not None, "a transaction requires a producer id"
        return id_and_epoch

    def _known_to_coordinator(self) -> bool:
        """Return True if the coordinator may have partitions or offsets of this transaction."""
        return self._has_written or (self._v2 and self._sequencer.has_assigned)

    def _deadline(self, timeout: float | None) -> float:
        return self._loop.time() + (self._max_block if timeout is None else timeout)

    def _apply_error(self, error: KafkaError) -> KafkaError:
        category = error.category or Category.APPLICATION_RECOVERABLE
        event = EVENT_FOR_CATEGORY[category]
        if self.state_machine.allows(event):
            self.state_machine.apply(event, error)
        return error

    def _start_end(
        self, body: Callable[[float], Awaitable[None]], deadline: float, *, commit: bool
    ) -> _TransactionEnd:
        done: asyncio.Future[None] = self._loop.create_future()
        ending = _TransactionEnd(commit, done)

        async def run() -> None:
            try:
                await body(deadline)
            except Exception as error:  # noqa: BLE001  # raised by the calls that await the end
                done.set_exception(error)
                done.exception()  # retrieved, since no call has to await the end
            except BaseException:
                done.set_exception(self._closed_error())
                done.exception()
                raise
            else:
                done.set_result(None)

        self._supervisor.spawn(run, name="ending a transaction")
        self._ending = ending
        return ending

    def _closed_error(self) -> KafkaError:
        closed = ClientClosedError("the producer was closed while the transaction was ended")
        sent = self.state_machine.state is TransactionState.COMMIT_SENT
        kind = TransactionOutcomeUnknownError if sent else ApplicationRecoverableError
        return kind.from_cause(closed, Category.APPLICATION_RECOVERABLE)

    async def _wait_for_end(self, ending: _TransactionEnd, deadline: float | None) -> None:
        """Wait for the end of a transaction and raise its error.

        Cancelling this call does not affect the end. `deadline` is None for the call that started
        the end, which has that call's deadline already.
        """
        ending.waiters += 1
        left = None if deadline is None else max(0.0, deadline - self._loop.time())
        try:
            await asyncio.wait({ending.done}, timeout=left)
        finally:
            ending.waiters -= 1
        if not ending.done.done():
            raise self._still_running_error(ending)
        ending.raised = True
        ending.done.result()

    def _still_running_error(self, ending: _TransactionEnd) -> KafkaError:
        late = KafkaTimeoutError(
            f"the {'commit' if ending.commit else 'abort'} takes longer than the time-out of this "
            "call, and goes on: await it again"
        )
        kind = TransactionOutcomeUnknownError if ending.commit else ApplicationRecoverableError
        return kind.from_cause(late, Category.APPLICATION_RECOVERABLE)


def _abortable(message: str) -> TransactionAbortableError:
    error = TransactionAbortableError(message)
    error.category = Category.ABORTABLE
    return error


def _no_response_error(error: KafkaError) -> KafkaError:
    doubt = KafkaTimeoutError(
        f"an attempt to commit got no response, and the next one failed: {error}"
    )
    doubt.__cause__ = error
    return doubt


def _ignore(state: TransactionState) -> None:
    pass
