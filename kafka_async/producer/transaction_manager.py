"""What a transactional producer says to its coordinators, and when: the table's waiting half.

The end of a transaction runs as a task of the producer. Cancelling a caller that waits for it does
not cancel it: the call can be awaited again, and returns what the coordinator responded.
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
from kafka_async.producer import transaction_requests as produce_requests
from kafka_async.producer.idempotence import ProducerIdentity
from kafka_async.producer.transaction_coordinator import Attempts, CoordinatorCalls, Route
from kafka_async.producer.transaction_state import (
    EVENT_OF_CATEGORY,
    Event,
    State,
    TransactionMachine,
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

__all__ = ["TransactionDriver"]

logger = logging.getLogger("kafka_async.producer")

FEATURE = "transaction.version"
_FENCED = (
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidPidMappingError,
    TransactionalIdAuthorizationError,
)
"""After these the coordinator would not take an abort from us."""

_FENCED_EPOCH: Final = (ProducerFencedError, InvalidProducerEpochError)


@dataclass(slots=True, eq=False)
class _Ending:
    """The end of a transaction in progress, or its outcome until the next transaction begins.

    Attributes:
        commit: Whether it is a commit.
        done: Resolved when the transaction is over.
        waiters: Calls that wait for it.
        raised: A call has raised its error.
    """

    commit: bool
    done: asyncio.Future[None]
    waiters: int = 0
    raised: bool = False

    @property
    def abandoned(self) -> bool:
        """True if all its calls were cancelled before they returned its outcome."""
        return not self.waiters and not self.raised


class TransactionDriver:
    """One transactional producer's conversation. `on_state` hears of every change of state."""

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
        self.on_state: Callable[[State], None] = _ignore
        self.machine = TransactionMachine(lambda state: self.on_state(state))
        self._id = config.transactional_id
        self._config = config
        self._client = client
        self._accumulator = accumulator
        self._sequencer = accumulator.sequencer
        self._sender = sender
        self._supervisor = supervisor
        self._loop = supervisor.loop
        self._calls = CoordinatorCalls(config, client, self, rng)
        self._route = Route(CoordinatorKind.TRANSACTION, self._id)
        self._ending: _Ending | None = None
        self._v2 = False
        self._started = False
        self._suspect = False
        self._begun = 0.0
        self._sources: list[tuple[OffsetSource, Mapping[TopicPartition, OffsetAndMetadata]]] = []
        self._limit = seconds(config.max_block_ms)
        accumulator.ledger.judge = self.judge
        sender.admit = self._admit

    # -- the calls --------------------------------------------------------------------------------

    async def initialise(self, timeout: float | None = None) -> None:
        """Get a producer id and an epoch, which fences a former producer of the same id."""
        self.machine.apply(Event.INIT)
        try:
            await self._new_epoch(self._deadline(timeout))
        except BaseException as error:
            fatal = category_of(error, Path.TRANSACTION) is Category.APPLICATION_RECOVERABLE
            if fatal and isinstance(error, KafkaError):
                self.machine.apply(Event.FATAL, to_transaction_error(error))
            else:
                self.machine.apply(Event.INIT_FAILED)
            raise
        self._suspect = False
        self._ending = None
        self.machine.apply(Event.INITIALIZED)

    async def begin(self, timeout: float | None = None) -> None:
        """Open a transaction; asks the cluster only if the producer must be initialised first."""
        machine = self.machine
        deadline = self._deadline(timeout)
        await self._finish_former(deadline)
        if machine.state is State.UNINITIALIZED or (machine.state is State.READY and self._suspect):
            with convert_transaction_errors(begun=False):
                await self.initialise(max(0.0, deadline - self._loop.time()))
        machine.apply(Event.BEGIN)
        self._v2 = self._client.finalized_feature(FEATURE) >= 2
        self._sender.requests.transactions_v2 = self._v2
        self._accumulator.begin_admission(needed=not self._v2)
        self._sequencer.used = False
        self._started = False
        self._begun = self._loop.time()
        self._sources = []
        self._ending = None

    async def _finish_former(self, deadline: float) -> None:
        """Wait for the end of a transaction whose calls were cancelled.

        Raises:
            TransactionAbortableError, InvalidConfigurationError: It was not committed. It is
                aborted, and the next transaction can begin.
        """
        ending = self._ending
        if ending is None or not ending.abandoned:
            return
        try:
            await self._ended(ending, deadline)
        except KafkaError:
            if self.machine.state is State.MUST_ABORT:
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
            await self._send_consumed(offsets, group, source, self._deadline(timeout))
        except KafkaError as error:
            leaves = self._went_wrong(to_transaction_error(error))
            if leaves is error:
                raise
            raise leaves from error
        except BaseException:
            doubt = "commit_offsets was cancelled: it is unknown whether its offsets are part of it"
            self._went_wrong(_abortable(doubt))
            raise
        if source is not None:
            self._sources.append((source, offsets))

    async def commit(self, timeout: float | None = None) -> None:
        """Deliver the transaction's records, then have it committed."""
        deadline = None if timeout is None else self._loop.time() + timeout
        machine, ending = self.machine, self._ending
        if ending is None or not ending.commit or (ending.done.done() and ending.done.exception()):
            if machine.state is State.OUTCOME_UNKNOWN:
                machine.apply(Event.COMMIT)
            else:
                await self._deliver(deadline)
            limit = self._deadline(None) if deadline is None else deadline
            ending, deadline = self._end(self._commit, limit, commit=True), None
        await self._ended(ending, deadline)

    async def abort(self, timeout: float | None = None) -> None:
        """Have everything that the transaction wrote thrown away."""
        deadline: float | None = self._deadline(timeout)
        ending = self._ending
        if ending is None or ending.commit:
            self.machine.apply(Event.ABORT)
            ending, deadline = self._end(self._abort, self._deadline(timeout), commit=False), None
        await self._ended(ending, deadline)

    def check_open(self, what: str) -> None:
        """Raise unless records and offsets can be added to a transaction right now."""
        machine = self.machine
        if machine.state is State.IN_TRANSACTION:
            return
        if machine.state is State.MUST_ABORT and machine.error is not None:
            raise machine.error
        raise machine.refusal(what)

    async def close(self, timeout: float) -> None:
        """End an open transaction, in `timeout` seconds and unless no broker responds."""
        machine = self.machine
        self._calls.closing = True
        try:
            if machine.state in (State.IN_TRANSACTION, State.MUST_ABORT):
                await self.abort(timeout)
            elif self._ending is not None and not self._ending.done.done():
                await self._ended(self._ending, self._loop.time() + timeout)
            elif machine.state is State.FAILED and self._began_remotely():
                await self._give_up(timeout)
        except KafkaError as error:
            logger.info("%s: left to the coordinator's time-out: %s", self._id, error)

    @property
    def connections(self) -> list[BrokerConnection]:
        """The lanes to coordinators, for the producer to close."""
        return self._calls.connections

    def judge(self, error: Exception) -> Exception:
        """What a failed batch means for the transaction, and what its callers get to see."""
        return self._went_wrong(to_transaction_error(error, path=Path.PRODUCE))

    # -- what is said -----------------------------------------------------------------------------

    async def _new_epoch(self, deadline: float) -> None:
        attempts = Attempts()
        identity = self._sequencer.identity
        try:
            response = await self._init_producer_id(identity, deadline, attempts)
        except _FENCED_EPOCH:
            # A coordinator that aborts an open transaction for InitProducerId raises the epoch,
            # responds CONCURRENT_TRANSACTIONS, and refuses the same request when it is retried.
            if identity is None or not attempts.concurrent:
                raise
            logger.debug("%s: the new epoch fenced its own producer: once more", self._id)
            response = await self._init_producer_id(None, deadline, attempts)
        self._sequencer.adopt(ProducerIdentity(response.producer_id, response.producer_epoch))
        logger.debug("%s: %s", self._id, self._sequencer.identity)

    async def _init_producer_id(
        self, identity: ProducerIdentity | None, deadline: float, attempts: Attempts
    ) -> InitProducerIdResponse:
        return await self._calls.call(
            produce_requests.init_producer_id(
                self._id, self._config.transaction_timeout_ms, identity
            ),
            self._route,
            deadline=deadline,
            error_in=produce_requests.code_error,
            attempts=attempts,
        )

    async def _send_consumed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        source: OffsetSource | None,
        deadline: float,
    ) -> None:
        """Send offsets with the consumer's generation, and again with the next one if it is over.

        A cooperative rebalance goes on while a transaction is open. The coordinator takes offsets
        of the former generation until all members have joined, and of the new one from then on; the
        member keeps its partitions meanwhile.
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
                    "%s: offsets again, with generation %d", self._id, joined.generation_id
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
        identity = self._identity
        if not self._v2:
            await self._calls.call(
                produce_requests.add_offsets(self._id, identity, group.group_id),
                self._route,
                deadline=deadline,
                error_in=produce_requests.code_error,
            )
        self._started = True
        await self._calls.call(
            produce_requests.commit_offsets(self._id, identity, group, offsets),
            Route(CoordinatorKind.GROUP, group.group_id),
            deadline=deadline,
            error_in=produce_requests.offsets_error,
            newest=produce_requests.NEWEST_OFFSETS_V2
            if self._v2
            else produce_requests.NEWEST_OFFSETS_V1,
        )

    def _admit(self, queues: list[PartitionQueue]) -> None:
        self._supervisor.spawn(self._add_partitions, queues, name="adding partitions")

    async def _add_partitions(self, queues: list[PartitionQueue]) -> None:
        partitions = [queue.partition for queue in queues]
        try:
            await self._calls.call(
                produce_requests.add_partitions(self._id, self._identity, partitions),
                self._route,
                deadline=self._deadline(None),
                error_in=produce_requests.partitions_error,
                newest=produce_requests.NEWEST_ADD_PARTITIONS,
            )
        except KafkaError as error:
            leaves = self._went_wrong(to_transaction_error(error))
            now = self._sender.now()
            for queue in queues:
                self._accumulator.ledger.fail_waiting(queue, leaves, now)
            self._suspect = True
        else:
            self._started = True
            self._accumulator.admit(queues, self._sender.now())
        self._sender.wake()

    async def _say_end(self, *, commit: bool, deadline: float, attempts: Attempts) -> None:
        response = await self._calls.call(
            produce_requests.end(self._id, self._identity, commit=commit),
            self._route,
            deadline=deadline,
            error_in=produce_requests.code_error,
            newest=produce_requests.NEWEST_END_TXN_V2
            if self._v2
            else produce_requests.NEWEST_END_TXN_V1,
            attempts=attempts,
            on_sent=self._commit_sent if commit else None,
        )
        if response.producer_id >= 0:
            self._sequencer.adopt(ProducerIdentity(response.producer_id, response.producer_epoch))

    # -- the end ----------------------------------------------------------------------------------

    async def _deliver(self, deadline: float | None) -> None:
        """Have every record of the transaction acknowledged, or raise what went wrong."""
        machine = self.machine
        if machine.state is State.MUST_ABORT and machine.error is not None:
            if self._ending is not None:
                self._ending.raised = True
            raise machine.error
        machine.apply(Event.COMMIT)
        try:
            async with asyncio.timeout_at(deadline):
                await self._sender.delivered()
        except TimeoutError as error:
            raise self._went_wrong(_abortable("the records were not delivered in time")) from error
        except BaseException:
            if machine.allows(Event.COMMIT_INTERRUPTED):
                machine.apply(Event.COMMIT_INTERRUPTED)
            raise
        self._accumulator.ledger.failures.take()  # they are the machine's error already
        if machine.error is not None:
            raise machine.error

    async def _commit(self, deadline: float) -> None:
        attempts = Attempts()
        try:
            if self._began_remotely():
                await self._say_end(commit=True, deadline=deadline, attempts=attempts)
        except KafkaError as error:
            self._suspect = self._suspect or attempts.unanswered > 0
            leaves = self._not_committed(error, attempts)
            if leaves is error:
                raise
            raise leaves from error
        # A request that got no answer may still arrive, after the next transaction has begun: with
        # transactions v1 only a new epoch keeps it from ending that one.
        self._suspect = attempts.unanswered > 0 and not self._v2
        for source, offsets in self._sources:
            source.mark_committed(offsets)
        self._over(committed=True)

    def _commit_sent(self) -> None:
        if self.machine.state is State.COMMITTING:
            self.machine.apply(Event.COMMIT_SENT)

    def _not_committed(self, error: KafkaError, attempts: Attempts) -> KafkaError:
        leaves = to_transaction_error(error, commit_sent=self.machine.state is State.COMMIT_SENT)
        category = leaves.category
        unknown = category_of(error, Path.TRANSACTION) in (
            Category.RETRIABLE,
            Category.REFRESH_RETRIABLE,
        )
        if unknown and self.machine.state is State.COMMIT_SENT:
            self.machine.apply(Event.NO_ANSWER)
            return leaves
        if attempts.unanswered and category is not Category.APPLICATION_RECOVERABLE:
            lost = to_transaction_error(_unanswered(error), commit_sent=True)
            self.machine.apply(Event.NO_ANSWER)
            return lost
        return self._went_wrong(leaves)

    async def _abort(self, deadline: float) -> None:
        dropped = _abortable("the transaction was aborted before this record was delivered")
        self._sender.draining = dropped
        attempts = Attempts()
        try:
            self._accumulator.ledger.drop_unsent(dropped, self._sender.now())
            # A third each for the records on the wire, for EndTxn, and for a new epoch instead.
            third = (deadline - self._loop.time()) / 3
            await self._wire_empty(deadline - 2 * third)
            await self._end_aborted(deadline - third, deadline, attempts)
        except KafkaError as error:
            leaves = to_transaction_error(error)
            if leaves.category is Category.ABORTABLE:  # an abort must not ask for an abort
                leaves = ApplicationRecoverableError(f"the transaction was not aborted: {error}")
                leaves.category = Category.APPLICATION_RECOVERABLE
            if leaves.category is Category.APPLICATION_RECOVERABLE:
                self.machine.apply(Event.FATAL, leaves)
            else:
                self._suspect = True
                self._over(committed=False)
            if leaves is error:
                raise
            raise leaves from error
        finally:
            self._sender.draining = None
        self._accumulator.ledger.failures.take()
        self._over(committed=False)

    async def _end_aborted(self, patience: float, deadline: float, attempts: Attempts) -> None:
        renew = self._suspect
        if self._began_remotely():
            try:
                await self._say_end(commit=False, deadline=patience, attempts=attempts)
            except _FENCED:
                raise
            except KafkaError as error:
                # A new epoch aborts whatever is open, and fences what may still arrive.
                logger.debug("%s: aborting by a new epoch: %s", self._id, error)
                renew = True
        if renew or (not self._v2 and (attempts.unanswered or self._sequencer.torn)):
            await self._new_epoch(deadline)
            self._suspect = False

    async def _wire_empty(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                for outcome in self._accumulator.ledger.on_wire:
                    await outcome.settled()
        except TimeoutError:
            self._suspect = True

    async def _give_up(self, timeout: float) -> None:
        error = self.machine.error
        if (
            error is not None
            and not isinstance(error, _FENCED)
            and not isinstance(error.__cause__, _FENCED)
        ):
            deadline = self._loop.time() + timeout
            await self._say_end(commit=False, deadline=deadline, attempts=Attempts())

    def _over(self, *, committed: bool) -> None:
        self._sources = []
        self._accumulator.begin_admission(needed=False)
        if self._client.hooks.active:
            took = self._loop.time() - self._begun
            event = TransactionEnded(self._config.client_id, self._id, committed, took)
            self._client.hooks.emit(event)
        self.machine.apply(Event.ENDED)

    # -- pieces -----------------------------------------------------------------------------------

    @property
    def _identity(self) -> ProducerIdentity:
        identity = self._sequencer.identity
        assert identity is not None, "a transaction begins with an identity"
        return identity

    def _began_remotely(self) -> bool:
        """Whether the coordinator may know of this transaction."""
        return self._started or (self._v2 and self._sequencer.used)

    def _deadline(self, timeout: float | None) -> float:
        return self._loop.time() + (self._limit if timeout is None else timeout)

    def _went_wrong(self, error: KafkaError) -> KafkaError:
        category = error.category or Category.APPLICATION_RECOVERABLE
        event = EVENT_OF_CATEGORY[category]
        if self.machine.allows(event):
            self.machine.apply(event, error)
        return error

    def _end(
        self, body: Callable[[float], Awaitable[None]], deadline: float, *, commit: bool
    ) -> _Ending:
        done: asyncio.Future[None] = self._loop.create_future()
        ending = _Ending(commit, done)

        async def run() -> None:
            try:
                await body(deadline)
            except Exception as error:  # noqa: BLE001  # raised by the calls that await the end
                done.set_exception(error)
                done.exception()  # seen: no call has to await the end
            except BaseException:
                done.set_exception(self._interrupted())
                done.exception()
                raise
            else:
                done.set_result(None)

        self._supervisor.spawn(run, name="ending a transaction")
        self._ending = ending
        return ending

    def _interrupted(self) -> KafkaError:
        closed = ClientClosedError("the producer was closed while the transaction was ended")
        sent = self.machine.state is State.COMMIT_SENT
        kind = TransactionOutcomeUnknownError if sent else ApplicationRecoverableError
        return kind.from_cause(closed, Category.APPLICATION_RECOVERABLE)

    async def _ended(self, ending: _Ending, deadline: float | None) -> None:
        """Wait for the end of a transaction and raise its error; cancelling this changes nothing.

        Without `deadline`, for the call that started it: the end has that call's deadline itself.
        """
        ending.waiters += 1
        left = None if deadline is None else max(0.0, deadline - self._loop.time())
        try:
            await asyncio.wait({ending.done}, timeout=left)
        finally:
            ending.waiters -= 1
        if not ending.done.done():
            raise self._late(ending)
        ending.raised = True
        ending.done.result()

    def _late(self, ending: _Ending) -> KafkaError:
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


def _unanswered(error: KafkaError) -> KafkaError:
    doubt = KafkaTimeoutError(f"an attempt to commit got no answer, and the next one: {error}")
    doubt.__cause__ = error
    return doubt


def _ignore(state: State) -> None:
    pass
