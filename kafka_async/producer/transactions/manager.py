"""Runs the transactions of a producer: requests to coordinators, and changes of state.

The state table is in `state`, the requests in `requests`, their retries in `coordinator_client`.
The end of a transaction runs as a task of the producer. Cancelling a caller that waits for it does
not cancel the task: the call can be awaited again and returns the coordinator's response.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.errors import (
    ApplicationRecoverableError,
    Category,
    ClientClosedError,
    IllegalGenerationError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    Path,
    ProducerFencedError,
    StaleMemberEpochError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    TransactionOutcomeUnknownError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    category_of,
    convert_transaction_errors,
    to_transaction_error,
)
from kafka_async.hooks import TransactionEnded
from kafka_async.producer.idempotence import ProducerIdAndEpoch
from kafka_async.producer.transactions import requests
from kafka_async.producer.transactions.coordinator_client import (
    CoordinatorClient,
    CoordinatorKey,
    RequestAttempts,
    lost_with_cluster,
)
from kafka_async.producer.transactions.state import (
    EVENT_FOR_CATEGORY,
    TransactionEvent,
    TransactionState,
    TransactionStateMachine,
)
from kafka_async.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from uuid import UUID

    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.foundation.supervisor import SupervisedTask
    from kafka_async.producer.buffer.outcome import BatchOutcome
    from kafka_async.producer.buffer.partition_queue import PartitionQueue
    from kafka_async.producer.runtime import ProducerRuntime
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdResponse
    from kafka_async.types import GroupMetadata, OffsetAndMetadata, OffsetSource, TopicPartition

__all__ = ["TransactionManager"]

logger = logging.getLogger("kafka_async.producer")

# KIP-890: level 2 of this feature stands for transactions v2.
FEATURE = "transaction.version"
_FENCED = (
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidPidMappingError,
    TransactionalIdAuthorizationError,
)
"""Errors after which the coordinator would refuse an abort from this producer."""

_LOST_WITH_CLUSTER: Final = frozenset(
    {
        TransactionState.IN_TRANSACTION,
        TransactionState.COMMITTING_TRANSACTION,
        TransactionState.PREPARED,
        TransactionState.ABORTABLE_ERROR,
    }
)
"""States in which another cluster ends the transaction; in others its coordinator does."""

_OPEN: Final = _LOST_WITH_CLUSTER - {TransactionState.PREPARED}

_FENCED_EPOCH: Final = (ProducerFencedError, InvalidProducerEpochError)

_UNKNOWN_TOPIC: Final = (UnknownTopicIdError, UnknownTopicOrPartitionError)

_NO_IDS: Final[Mapping[str, UUID]] = MappingProxyType({})

_AFTER_TIMEOUT: Final = (*_FENCED_EPOCH, InvalidTxnStateError)
"""Errors of a transaction that its coordinator has aborted after transaction_timeout_ms."""


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Offsets that a consumer gave to the transaction.

    Attributes:
        source: The consumer.
        offsets: Its offsets.
        topic_ids: Ids of their topics, where known.
        by_name: The request named the topics, so the offsets may be of former topics.
    """

    source: OffsetSource
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    topic_ids: Mapping[str, UUID]
    by_name: bool

    def check(self) -> None:
        """Raise if the consumer has noticed since that a topic was created again."""
        # With topic ids the coordinator itself refuses offsets of a former topic.
        if self.by_name:
            current = self.source.topic_ids(self.topic_ids)
            _refuse_former(t for t, id_ in self.topic_ids.items() if current.get(t, id_) != id_)


@dataclass(slots=True, eq=False)
class _TransactionEnd:
    """The end of a transaction in progress, or its outcome until the next transaction begins.

    Attributes:
        waiters: Number of calls waiting for it.
        raised: A call has returned its success or raised its error. Otherwise the next `begin`
        does.
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

    `current` is the number of the transaction that was begun last; 0 before the first.
    """

    def __init__(self, runtime: ProducerRuntime) -> None:
        config = runtime.config
        assert config.transactional_id is not None
        # Numbers of transactions: a `Transaction` of a former one is refused by its number.
        self.current = 0
        self._count = 0
        # The state machine, whose listener changes with each transaction.
        self._on_state: Callable[[TransactionState], None] = _ignore
        self._machine = TransactionStateMachine(lambda state: self._on_state(state))
        # Parts of the producer.
        self._id = config.transactional_id
        self._config = config
        self._services = runtime.services
        self._accumulator = runtime.accumulator
        self._flush = runtime.flush
        self._now = runtime.now
        self._supervisor = runtime.supervisor
        self._loop = runtime.supervisor.loop
        # The protocol: pending AddPartitionsToTxn requests, and the coordinators of this
        # transactional id and of groups.
        self._closed = False
        self._adding: list[tuple[SupervisedTask, RequestAttempts]] = []
        self._coordinators = CoordinatorClient(config, runtime.services, self, runtime.rng)
        self._coordinator = CoordinatorKey(CoordinatorKind.TRANSACTION, self._id)
        # The current transaction. `_needs_new_epoch` outlives it: a request of it may still arrive
        # at the coordinator, and only a new epoch makes the coordinator refuse it.
        self._ending: _TransactionEnd | None = None
        self._v2 = False
        self._has_written = False
        self._needs_new_epoch = False
        self._began_at = 0.0
        self._offsets: list[_Offsets] = []
        self._max_block = runtime.max_block
        self.detach = runtime.services.metadata.cluster_listeners.add(self._on_cluster_changed)
        """Stops following changes of the cluster."""

    @property
    def state(self) -> TransactionState:
        """State of the producer."""
        return self._machine.state

    @property
    def error(self) -> KafkaError | None:
        """The error that led to ABORTABLE_ERROR or FATAL_ERROR."""
        return self._machine.error

    @property
    def in_transaction(self) -> bool:
        """True from `begin` until EndTxn is sent or another process ends the transaction."""
        return self.state in _OPEN

    # -- calls ------------------------------------------------------------------------------------

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Obtain a producer id and epoch, which fences an earlier producer with the same id."""
        self._machine.apply(TransactionEvent.INIT)
        try:
            await self._new_epoch(self._deadline(timeout))
        except Exception as error:
            # Errors that need no new producer leave this one uninitialized, so that the call can be
            # repeated.
            category = category_of(error, Path.TRANSACTION)
            if category not in (None, Category.APPLICATION_RECOVERABLE):
                self._machine.apply(TransactionEvent.INIT_FAILED)
                raise
            translated = to_transaction_error(error)
            self._machine.apply(TransactionEvent.FATAL, translated)
            if translated is error:
                raise
            raise translated from error
        # Cancelled: whether the epoch was bumped is unknown, and the next call bumps it again.
        except BaseException:
            self._machine.apply(TransactionEvent.INIT_FAILED)
            raise
        self._needs_new_epoch = False
        self._ending = None
        self.current = 0
        self._machine.apply(TransactionEvent.INITIALIZED)

    async def begin(self, on_state: Callable[[TransactionState], None]) -> int:
        """Open a transaction and return its number; `on_state` is called after each state change.

        If the calls that ended the previous transaction were cancelled, this waits for that end
        first. A transaction that was not committed then is aborted, and its error is raised. A
        producer that needs a producer id or a new epoch obtains it.
        """
        self._check_running()
        machine = self._machine
        deadline = self._deadline(None)
        await self._wait_for_previous_end(deadline)
        if machine.state is TransactionState.UNINITIALIZED or (
            machine.state is TransactionState.READY and self._needs_new_epoch
        ):
            with convert_transaction_errors(begun=False):
                await self.init_transactions(max(0.0, deadline - self._loop.time()))
        self._check_running()  # stop() may have been called during the waits above
        machine.apply(TransactionEvent.BEGIN)
        # Fixed for the transaction: an upgrade of the cluster must not change its protocol halfway.
        self._v2 = self._services.brokers.finalized_feature(FEATURE) >= 2
        self._accumulator.begin_transaction(
            self._on_batch_failed, None if self._v2 else self._start_adding_partitions
        )
        self._has_written = False
        self._began_at = self._loop.time()
        self._offsets = []
        self._adding = []
        self._ending = None
        self._on_state = on_state
        self._count += 1
        self.current = self._count
        return self.current

    def _check_running(self) -> None:
        if self._closed:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        self._supervisor.check()

    async def _wait_for_previous_end(self, deadline: float) -> None:
        """Wait for the end of a transaction whose calls were cancelled.

        Raises the error of one that was not committed: it is aborted, and the next transaction can
        begin.
        """
        ending = self._ending
        # Its outcome was returned or raised by another call.
        if ending is None or not ending.abandoned:
            return
        try:
            await self._wait_for_end(ending, deadline)
        except KafkaError:
            if self._machine.state is TransactionState.ABORTABLE_ERROR:
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
            topics = {p.topic for p in offsets}
            topic_ids = _NO_IDS if source is None else source.topic_ids(topics)
            by_name = await self._commit_offsets(
                offsets, topic_ids, group, source, self._deadline(timeout)
            )
        except Exception as error:
            translated = self._apply_error(to_transaction_error(self._with_timeout(error)))
            first = self._machine.error or translated  # a batch may have failed before
            if first is error:
                raise
            raise first from first.__cause__ or error
        # Cancelled: the request may still arrive, so only an abort is safe.
        except BaseException:
            doubt = "commit_offsets was cancelled: the transaction may or may not have its offsets"
            self._apply_error(_abortable(doubt))
            raise
        if source is not None:
            self._offsets.append(_Offsets(source, offsets, topic_ids, by_name))

    async def commit(self, timeout: float | None = None) -> None:
        """Deliver the transaction's records and commit it."""
        deadline = None if timeout is None else self._loop.time() + timeout
        machine, ending = self._machine, self._ending
        # Three cases: a first commit, and another commit after an error, start an end; a commit
        # whose first call was cancelled or timed out waits for the end that runs already.
        if ending is None or not ending.commit or (ending.done.done() and ending.done.exception()):
            if machine.state is TransactionState.OUTCOME_UNKNOWN:
                # Records were flushed before the commit whose outcome is unknown.
                machine.apply(TransactionEvent.COMMIT)
            else:
                await self._flush_records(deadline)
            limit = self._deadline(None) if deadline is None else deadline
            ending, deadline = self._start_end(self._commit, limit, commit=True), None
        await self._wait_for_end(ending, deadline)

    async def prepare(self, timeout: float | None = None) -> PreparedTransaction | None:
        """Deliver the records and leave the transaction open; return None if it has no contents."""
        deadline = None if timeout is None else self._loop.time() + timeout
        await self._flush_records(deadline)
        # Nothing was written, so the coordinator has no transaction to prepare.
        if not self._known_to_coordinator():
            self._finish(committed=True)
            return None
        self._machine.apply(TransactionEvent.PREPARED)
        producer_id, epoch = self._id_and_epoch
        return PreparedTransaction(
            self._id,
            producer_id,
            epoch,
            version=2 if self._v2 else 1,
            offsets=self._accumulator.transaction.written_offsets,
        )

    async def abort(self, timeout: float | None = None) -> None:
        """Abort the transaction."""
        deadline, ending = self._deadline(timeout), self._ending
        if ending is None or ending.commit:
            # A commit that has ended with an error is what this aborts.
            self._machine.apply(TransactionEvent.ABORT)
            ending = self._start_end(self._abort, deadline, commit=False)
            await self._wait_for_end(ending, None)
        else:
            await self._wait_for_end(ending, deadline)

    def fail(self, error: KafkaError) -> None:
        """Make an open transaction abortable only, because of an error."""
        if self._machine.state is TransactionState.IN_TRANSACTION:
            self._apply_error(error)

    def check_open(self, what: str) -> None:
        """Raise unless records and offsets can be added to a transaction now."""
        machine = self._machine
        if machine.state is TransactionState.IN_TRANSACTION:
            return
        if machine.state is TransactionState.ABORTABLE_ERROR and machine.error is not None:
            raise machine.error
        raise machine.state_error(what)

    async def end_open_transaction(self, timeout: float) -> None:
        """Abort an open transaction within `timeout` seconds, unless no broker responds.

        No other transaction can begin.
        """
        machine = self._machine
        # From here on `begin` raises.
        self._closed = True
        # A retry would outlive the short time that `stop()` has.
        self._coordinators.stop_retrying()
        try:
            if machine.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
                await self.abort(timeout)
            elif self._ending is not None and not self._ending.done.done():
                await self._wait_for_end(self._ending, self._loop.time() + timeout)
            elif machine.state is TransactionState.FATAL_ERROR and self._known_to_coordinator():
                await self._abort_after_failure(timeout)
        except KafkaError as error:
            logger.info("%s: left to the coordinator's time-out: %s", self._id, error)

    @property
    def connections(self) -> list[BrokerConnection]:
        """Connections to coordinators, for the producer to close."""
        return self._coordinators.connections

    def _on_cluster_changed(self) -> None:
        """Fail an open transaction: the cluster that the client follows now has no state of it."""
        # The coordinator of the former cluster aborts it after transaction_timeout_ms.
        if self._machine.state in _LOST_WITH_CLUSTER:
            error = self._apply_error(to_transaction_error(lost_with_cluster()))
            self._accumulator.fail_all(error, self._now())
        # The next `begin` obtains an id from the new cluster.
        self._accumulator.forget_producer_id(self._now())
        self._needs_new_epoch = True

    def _on_batch_failed(self, error: Exception) -> Exception:
        """Apply the error of a failed batch to the transaction, and return the error to raise."""
        return self._apply_error(to_transaction_error(self._with_timeout(error), path=Path.PRODUCE))

    # -- requests ---------------------------------------------------------------------------------

    async def _new_epoch(self, deadline: float, refusal: Exception | None = None) -> None:
        """Obtain a producer id, or the next epoch; `refusal` is the error of an abort before it."""
        attempts = RequestAttempts()
        id_and_epoch = self._accumulator.id_and_epoch
        try:
            response = await self._init_producer_id(id_and_epoch, deadline, attempts)
        except _FENCED_EPOCH:
            # A coordinator that aborts an open transaction for InitProducerId bumps the epoch,
            # responds CONCURRENT_TRANSACTIONS, and refuses the same request when it is retried.
            if id_and_epoch is None or not attempts.concurrent:
                raise
            logger.debug("%s: the new epoch fenced its own producer: retrying", self._id)
            response = await self._init_producer_id(None, deadline, attempts)
        except UnsupportedVersionError as error:
            # Before KIP-360 (Kafka 2.5) the request cannot contain an epoch. Without one it fences
            # each producer with this id, so a refused abort may not be repeated by it.
            if not attempts.not_encoded:  # it is a response
                raise
            if refusal is not None:
                raise refusal from error
            response = await self._init_producer_id(None, deadline, attempts)
        self._use_producer_id(response)

    async def _new_epoch_after_timeout(self, deadline: float) -> None:
        """Obtain an epoch after the coordinator has timed out the transaction (KIP-588).

        It has bumped the epoch then. If a new producer has taken over, it has bumped the epoch
        once more, so the request is refused.
        """
        producer_id, epoch = self._id_and_epoch
        # The epoch after the time-out, as the coordinator has it (KIP-588).
        fenced = ProducerIdAndEpoch(producer_id, epoch + 1)
        self._use_producer_id(await self._init_producer_id(fenced, deadline, RequestAttempts()))

    def _use_producer_id(self, response: InitProducerIdResponse) -> None:
        self._accumulator.set_id_and_epoch(
            ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        )
        logger.debug("%s: %s", self._id, self._accumulator.id_and_epoch)

    async def _init_producer_id(
        self, id_and_epoch: ProducerIdAndEpoch | None, deadline: float, attempts: RequestAttempts
    ) -> InitProducerIdResponse:
        return await self._coordinators.send(
            requests.init_producer_id(self._id, self._config.transaction_timeout_ms, id_and_epoch),
            self._coordinator,
            deadline=deadline,
            get_error=requests.code_error,
            attempts=attempts,
            any_cluster=id_and_epoch is None,
        )

    async def _commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, UUID],
        group: GroupMetadata,
        source: OffsetSource | None,
        deadline: float,
    ) -> bool:
        """Send offsets with the consumer's generation; if that has ended, again with the next one.

        A cooperative rebalance continues while a transaction is open. The coordinator accepts
        offsets of the former generation until all members have joined, and of the new one from then
        on. The member keeps its partitions throughout.

        Returns:
            True if the request named the topics: the broker has no version with their ids.
        """
        # Ends with the response, or an error that another generation does not cure.
        while True:
            try:
                return await self._send_offsets(offsets, topic_ids, group, source, deadline)
            except (IllegalGenerationError, StaleMemberEpochError) as error:
                # Offsets without a consumer have one generation only, the one that was passed.
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

    async def _send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, UUID],
        group: GroupMetadata,
        source: OffsetSource | None,
        deadline: float,
    ) -> bool:
        id_and_epoch = self._id_and_epoch
        # With transactions v2, TxnOffsetCommit adds the group to the transaction itself (KIP-890).
        if not self._v2:
            await self._coordinators.send(
                requests.add_offsets_to_txn(self._id, id_and_epoch, group.group_id),
                self._coordinator,
                deadline=deadline,
                get_error=requests.code_error,
            )
        # Set before the request: if it gets no response, the coordinator may have the offsets.
        self._has_written = True
        request = requests.commit_txn_offsets(self._id, id_and_epoch, group, offsets, topic_ids)

        # Before each retry, since a topic that was deleted does not come back under its old id.
        async def check_topics(error: KafkaError) -> None:
            if source is not None and isinstance(error, _UNKNOWN_TOPIC):
                left = max(0.0, deadline - self._loop.time())
                _refuse_former(await source.find_ended(topic_ids, left))

        response = await self._coordinators.send(
            request,
            CoordinatorKey(CoordinatorKind.GROUP, group.group_id),
            deadline=deadline,
            get_error=partial(requests.offsets_error, offsets, topic_ids),
            max_version=requests.max_offsets_version(request, v2=self._v2),
            before_retry=check_topics,
        )
        return any(topic.name for topic in response.topics)

    def _start_adding_partitions(self, queues: list[PartitionQueue]) -> None:
        attempts = RequestAttempts()
        task = self._supervisor.spawn(
            self._add_partitions, queues, attempts, name="adding partitions"
        )
        self._adding.append((task, attempts))

    async def _add_partitions(
        self, queues: list[PartitionQueue], attempts: RequestAttempts
    ) -> None:
        partitions = [queue.partition for queue in queues]
        try:
            await self._coordinators.send(
                requests.add_partitions_to_txn(self._id, self._id_and_epoch, partitions),
                self._coordinator,
                deadline=self._deadline(None),
                get_error=partial(requests.partitions_error, partitions),
                max_version=requests.MAX_ADD_PARTITIONS_VERSION,
                attempts=attempts,
            )
        except KafkaError as error:
            self._apply_error(to_transaction_error(self._with_timeout(error)))
            # The request may still arrive after an abort, and would open a transaction again.
            self._needs_new_epoch = True
        else:
            self._has_written = True
            self._accumulator.mark_partitions_added(queues, self._now())

    async def _stop_adding(self) -> None:
        """Cancel pending AddPartitionsToTxn requests.

        One that is handled after EndTxn would open a transaction that no request ends. Only a new
        epoch keeps a request without a response from that.
        """
        adding, self._adding = self._adding, []
        for task, attempts in adding:
            task.cancel()
            await task.wait()
            if attempts.without_response:
                # See the docstring: sent, and still to be handled.
                self._needs_new_epoch = True

    async def _send_end_txn(
        self, *, commit: bool, deadline: float, attempts: RequestAttempts
    ) -> None:
        response = await self._coordinators.send(
            requests.end_txn(self._id, self._id_and_epoch, commit=commit),
            self._coordinator,
            deadline=deadline,
            get_error=requests.code_error,
            max_version=requests.MAX_END_TXN_VERSION_V2
            if self._v2
            else requests.MAX_END_TXN_VERSION_V1,
            attempts=attempts,
            on_sent=self._commit_sent if commit else None,
        )
        # With transactions v2 the coordinator bumps the epoch at the end of each transaction
        # (KIP-890).
        if response.producer_id >= 0:
            self._accumulator.set_id_and_epoch(
                ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            )

    # -- end of a transaction ---------------------------------------------------------------------

    async def _flush_records(self, deadline: float | None) -> None:
        """Wait until all records of the transaction are acknowledged, or raise its error."""
        machine = self._machine
        if machine.state is TransactionState.ABORTABLE_ERROR and machine.error is not None:
            # This call reports the failure, so `begin` need not.
            if self._ending is not None:
                self._ending.raised = True
            raise machine.error
        # Nothing can be appended from here on.
        machine.apply(TransactionEvent.COMMIT)
        try:
            async with asyncio.timeout_at(deadline):
                await self._flush()
        except TimeoutError as error:
            late = self._apply_error(_abortable("the records were not delivered in time"))
            raise machine.error or late from error
        # Cancelled before EndTxn was sent: the transaction stays open.
        except BaseException:
            if machine.allows(TransactionEvent.COMMIT_INTERRUPTED):
                machine.apply(TransactionEvent.COMMIT_INTERRUPTED)
            raise
        # The state machine has the error of these failures.
        self._accumulator.take_failures()
        # A batch has failed during the flush.
        if machine.error is not None:
            raise machine.error

    async def _commit(self, deadline: float) -> None:
        attempts = RequestAttempts()
        try:
            # As late as possible: the topics may have been created again since `add_offsets`.
            for each in self._offsets:
                each.check()
            # An empty transaction needs no EndTxn; the coordinator would refuse it.
            if self._known_to_coordinator():
                await self._send_end_txn(commit=True, deadline=deadline, attempts=attempts)
        except Exception as error:
            # An EndTxn without a response may end the next transaction of the same epoch.
            self._needs_new_epoch = self._needs_new_epoch or attempts.without_response > 0
            translated = self._handle_commit_error(error, attempts)
            if translated is error:
                raise
            raise translated from error
        # A request without a response may still arrive after the next transaction has begun. With
        # transactions v1 only a new epoch keeps it from ending that one.
        self._needs_new_epoch = attempts.without_response > 0 and not self._v2
        for each in self._offsets:
            each.source.mark_committed(each.offsets)
        self._finish(committed=True)

    def _commit_sent(self) -> None:
        # A retry of EndTxn calls this again.
        if self._machine.state is TransactionState.COMMITTING_TRANSACTION:
            self._machine.apply(TransactionEvent.COMMIT_SENT)

    def _handle_commit_error(self, error: Exception, attempts: RequestAttempts) -> KafkaError:
        translated = to_transaction_error(
            self._with_timeout(error),
            commit_sent=self._machine.state is TransactionState.COMMIT_SENT,
        )
        category = translated.category
        if isinstance(translated, TransactionOutcomeUnknownError):
            self._machine.apply(TransactionEvent.NO_RESPONSE)
            return translated
        # One attempt got no response and a later one failed: the error of the later one does not
        # show what became of the first.
        if attempts.without_response and category is not Category.APPLICATION_RECOVERABLE:
            lost = to_transaction_error(_no_response_error(error), commit_sent=True)
            self._machine.apply(TransactionEvent.NO_RESPONSE)
            return lost
        return self._apply_error(translated)

    async def _abort(self, deadline: float) -> None:
        dropped = _abortable("the transaction was aborted before this record was delivered")
        attempts = RequestAttempts()
        try:
            in_flight = self._accumulator.begin_abort(dropped, self._now())
            # A third of the time each for the batches in flight, EndTxn, and a new epoch instead.
            third = (deadline - self._loop.time()) / 3
            await self._wait_for_in_flight(in_flight, deadline - 2 * third)
            await self._send_abort(deadline - third, deadline, attempts)
        except Exception as error:
            translated = to_transaction_error(error)
            if translated.category is Category.ABORTABLE:  # an abort must not require another abort
                translated = ApplicationRecoverableError(
                    f"the transaction was not aborted: {error}"
                )
                translated.category = Category.APPLICATION_RECOVERABLE
            # Nothing can abort the transaction from here: the producer must be replaced.
            if translated.category is Category.APPLICATION_RECOVERABLE:
                self._machine.apply(TransactionEvent.FATAL, translated)
            else:
                # For example a missing permission: the transaction is left to its time-out, and a
                # new epoch keeps its requests from the next one.
                self._needs_new_epoch = True
                self._finish(committed=False)
            if translated is error:
                raise
            raise translated from error
        finally:
            self._accumulator.transaction.end_abort()
        self._accumulator.take_failures()
        self._finish(committed=False)

    async def _send_abort(
        self, end_txn_deadline: float, deadline: float, attempts: RequestAttempts
    ) -> None:
        # Before EndTxn, so that no partition is added after it.
        await self._stop_adding()
        failure: Exception | None = None
        if self._known_to_coordinator():
            try:
                await self._send_end_txn(commit=False, deadline=end_txn_deadline, attempts=attempts)
            except _FENCED as error:
                # The coordinator refuses this producer, for example since another one has taken
                # over.
                if not self._may_have_timed_out(error, attempts):
                    raise
                try:
                    await self._new_epoch_after_timeout(deadline)
                except UnsupportedVersionError as unsupported:  # before KIP-360
                    raise error from unsupported
                self._needs_new_epoch = False
                return
            except Exception as error:  # noqa: BLE001  # a new epoch needs no response to EndTxn
                # A new epoch aborts an open transaction and fences requests that may still arrive.
                logger.debug("%s: aborting by a new epoch: %s", self._id, error)
                failure = error
        # In each of these cases a request of this transaction may still arrive. InitProducerId
        # aborts what is open and fences these requests.
        if (
            failure is not None
            or self._needs_new_epoch
            # A lost batch may still arrive; with v2 the new epoch of EndTxn fences it.
            or (not self._v2 and (attempts.without_response or self._accumulator.has_lost_batch))
        ):
            await self._new_epoch(deadline, failure)
            self._needs_new_epoch = False

    def _may_have_timed_out(self, refusal: KafkaError, attempts: RequestAttempts) -> bool:
        """Return True if the coordinator may have refused an abort because of a time-out.

        The coordinator had the transaction, and has not ended it for another request of this
        producer. With transactions v2 it does not refuse the abort. The clock of a machine that
        was suspended may not show the time-out, but the refusal of a record does.
        """
        error = self._machine.error
        refused = error is not None and isinstance(error.__cause__, _AFTER_TIMEOUT)
        # All of these must hold: otherwise a new producer has fenced this one, and InitProducerId
        # would fence it in turn.
        return (
            isinstance(refusal, _FENCED_EPOCH)
            and not self._v2
            and self._has_written
            and attempts.sent == 1
            and (refused or self._is_past_timeout)
        )

    async def _wait_for_in_flight(self, outcomes: list[BatchOutcome], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                for outcome in outcomes:
                    await outcome.wait_completed()
        except TimeoutError:
            # Batches may still arrive at a broker after the abort.
            self._needs_new_epoch = True

    async def _abort_after_failure(self, timeout: float) -> None:
        error = self._machine.error
        # Fenced: the transaction belongs to another producer now.
        if (
            error is not None
            and not isinstance(error, _FENCED)
            and not isinstance(error.__cause__, _FENCED)
        ):
            deadline = self._loop.time() + timeout
            await self._stop_adding()
            await self._send_end_txn(commit=False, deadline=deadline, attempts=RequestAttempts())

    def _finish(self, *, committed: bool) -> None:
        self._offsets = []
        self._accumulator.end_transaction()
        if self._services.hooks.active:
            took = self._loop.time() - self._began_at
            event = TransactionEnded(self._config.client_id, self._id, committed, took)
            self._services.hooks.emit(event)
        self._machine.apply(TransactionEvent.ENDED)

    # -- helpers ----------------------------------------------------------------------------------

    @property
    def _id_and_epoch(self) -> ProducerIdAndEpoch:
        id_and_epoch = self._accumulator.id_and_epoch
        if id_and_epoch is None:  # `_on_cluster_changed` has dropped it
            raise lost_with_cluster()
        return id_and_epoch

    def _known_to_coordinator(self) -> bool:
        """Return True if the coordinator may have partitions or offsets of this transaction."""
        return self._has_written or (self._v2 and self._accumulator.has_assigned_sequences)

    def _deadline(self, timeout: float | None) -> float:
        return self._loop.time() + (self._max_block if timeout is None else timeout)

    @property
    def _open_for(self) -> float:
        """Seconds since the transaction was begun; the coordinator counts from a later time."""
        return self._loop.time() - self._began_at

    @property
    def _is_past_timeout(self) -> bool:
        """True if the coordinator may have aborted the transaction for its time-out."""
        return self._open_for >= self._config.transaction_timeout_ms / 1000

    def _with_timeout(self, error: Exception) -> Exception:
        """Return the error, with a note if the transaction has probably timed out."""
        if not isinstance(error, _AFTER_TIMEOUT) or not self._is_past_timeout:
            return error
        explained = type(error)(
            f"{error.message} The transaction has probably timed out: it was begun "
            f"{self._open_for:.3g} s ago, and "
            f"transaction_timeout_ms={self._config.transaction_timeout_ms}.",
            topic=error.topic,
            partition=error.partition,
        )
        explained.__cause__ = error.__cause__
        return explained

    def _apply_error(self, error: KafkaError) -> KafkaError:
        category = error.category or Category.APPLICATION_RECOVERABLE
        event = EVENT_FOR_CATEGORY[category]
        # The first error decides; the state machine refuses those that follow from it.
        if self._machine.allows(event):
            self._machine.apply(event, error)
            if self._machine.error is not None:
                self._accumulator.fail_transaction(self._machine.error)
        return error

    def _start_end(
        self, body: Callable[[float], Awaitable[None]], deadline: float, *, commit: bool
    ) -> _TransactionEnd:
        done: asyncio.Future[None] = self._loop.create_future()
        ending = _TransactionEnd(commit, done)

        # Errors go to `done`: an exception of the task would end the producer.
        async def run() -> None:
            try:
                await body(deadline)
            except Exception as error:  # noqa: BLE001  # raised by the calls that await the end
                done.set_exception(error)
                done.exception()  # retrieved, since no call has to await the end
            # The producer is closing: the calls that wait must not wait forever.
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
        sent = self._machine.state is TransactionState.COMMIT_SENT
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
            # Not `wait_for`, which would cancel the end that other calls share.
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


def _refuse_former(topics: Iterable[str]) -> None:
    """Raise if a transaction has offsets of former topics."""
    if former := sorted(topics):
        raise _abortable(
            f"the transaction has offsets of topics that were deleted since, and maybe created "
            f"again: {', '.join(former)}; abort it and seek_to_committed()"
        )


def _no_response_error(error: Exception) -> KafkaError:
    doubt = KafkaTimeoutError(
        f"an attempt to commit got no response, and the next one failed: {error}"
    )
    doubt.__cause__ = error
    return doubt


def _ignore(state: TransactionState) -> None:
    pass
