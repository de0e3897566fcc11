"""What a started consumer consists of, and how its parts wake one another.

    positions ──▶ subscription ◀── group (protocol, coordinator)
        │              │                      │
        ▼              ▼                      ▼
    fetcher ──▶ buffers ──▶ gate ──▶ the application

The subscription is the one thing that all share; whoever changes it calls `changed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka_async.config import seconds
from kafka_async.consumer.deleted_topics import deleted_topics
from kafka_async.consumer.delivery_gate import Gate
from kafka_async.consumer.fetch_buffer import ENOUGH
from kafka_async.consumer.fetcher import Fetcher
from kafka_async.consumer.list_offsets import Lookups
from kafka_async.consumer.missing_topics import MissingTopics, missing, unauthorized
from kafka_async.consumer.offset_committer import Commits
from kafka_async.consumer.partition_batch import PartitionBatch
from kafka_async.consumer.positions import Positions
from kafka_async.consumer.rebalance_handler import ConsumerProtocol
from kafka_async.consumer.stream import SLICE, Cursor
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    KafkaError,
    RecordDeserializationError,
    RetriableError,
)
from kafka_async.group.coordinator import GroupCoordinator
from kafka_async.group.membership import GroupSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping

    from kafka_async.cluster.client import Client
    from kafka_async.cluster.metadata import ClusterMetadata
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.close_deadlines import ClosingTime
    from kafka_async.consumer.deserialize import Convert
    from kafka_async.consumer.fetch_buffer import AnyRecord
    from kafka_async.consumer.rebalance_listener import Herald
    from kafka_async.consumer.subscription import PartitionState, Subscription
    from kafka_async.kernel import RecordIterator
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import Health, OffsetAndMetadata, TopicPartition

T = TypeVar("T")
PARSING: Final = SLICE / 2
"""Seconds of a slice that one poll may parse for; the rest is the application's."""
SHOWN_OFFSETS: Final = 10
"""Maximum offsets in a log message."""
logger = logging.getLogger("kafka_async.consumer")


class Engine:
    """The parts of a started consumer."""

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        herald: Herald,
        convert: Convert | None,
    ) -> None:
        self.subscription = subscription
        self.herald = herald
        self._client = client
        self._supervisor = supervisor
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._convert = convert
        self._yield_at = 0.0
        self._closing = False
        self._closing_time: ClosingTime | None = None
        self._closing_step: tuple[asyncio.Timeout, Callable[[], float]] | None = None
        self._handing_over: asyncio.Timeout | None = None
        self._confirming = False
        self._told: Exception | None = None
        self._tracked = frozenset[str]()
        self._cursor = Cursor(self, self._convert)
        self._active: weakref.ref[RecordIterator[Any, Any]] | None = None
        self._single: RecordIterator[Any, Any] | None = None
        self._missing = MissingTopics(
            creates=config.allow_auto_create_topics,
            limit=seconds(config.default_api_timeout_ms),
        )
        self._missing_timer: asyncio.TimerHandle | None = None
        self._overdue: KafkaError | None = None
        self.gate = Gate(self._in_hand, self._progress, seconds(config.max_poll_interval_ms))
        self.gate.on_hold = self.cut
        self.lookups = Lookups(client, config)
        self.fetcher = Fetcher(client, supervisor, config, subscription, self.gate)
        self.coordinator: GroupCoordinator | None = None
        self.commits: Commits | None = None
        self._protocol: ConsumerProtocol | None = None
        if config.group_id is not None:
            self._protocol = ConsumerProtocol(
                client, config, subscription, self.gate, herald, self._commit_done, self.changed
            )
            self.coordinator = GroupCoordinator(
                client, supervisor, GroupSettings.of(config), self._protocol
            )
            self.coordinator.on_refused = self.gate.arrived.set
            self.commits = Commits(client, config, self.coordinator, self.committed)
        self.positions = Positions(
            client, supervisor, config, subscription, self.fetcher, self.lookups, self.commits
        )
        self.fetcher.on_reset = self.positions.wake

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the tasks."""

        def died(_: KafkaError) -> None:
            self.gate.arrived.set()
            self.positions.found.beat()

        self._supervisor.on_failure(died)
        self._undo = [
            self._client.supervisor.on_failure(died),
            self._client.on_metadata(self._on_metadata),
        ]
        self._supervisor.spawn(self.positions.run, name="positions")
        if self.coordinator is not None:
            self.coordinator.start()
            if self._config.enable_auto_commit:
                self._supervisor.spawn(self._auto_commit, name="auto-commit")
        self.subscribed()

    async def stop(self, time: ClosingTime, *, finished: bool) -> None:
        """Commit, if that is automatic, and leave the group.

        Offsets that could not be committed in time are logged. `finished` says that the application
        is done with what it has in its hands.

        Raises:
            KafkaError: The group refused the commit.
        """
        self._closing_time = time
        self._closing = True
        if finished:
            self.done()
        self.cut()
        self.gate.close()
        if self._handing_over is not None:
            self._handing_over.reschedule(time.commit_by)
        if self._supervisor.failure is not None or self._client.supervisor.failure is not None:
            return
        failure: KafkaError | None = None
        if self._config.enable_auto_commit and self.commits is not None:
            failure = await self._last_commit(time)
        if self.coordinator is not None:
            await self._leave(self.coordinator, time)
        if failure is not None:
            raise failure

    def shorten_closing(self) -> None:
        """Leave the group without the commit that is in progress: the caller was cancelled."""
        time, now = self._closing_time, self._loop.time()
        if time is None:
            return
        time.shorten(now)
        if self._closing_step is not None:
            step, deadline = self._closing_step
            step.reschedule(max(now, deadline()))

    def close(self) -> None:
        """Let go of the client."""
        self._closing = True
        self.gate.close()
        for undo in self._undo:
            undo()
        self._client.untrack_topics(self._tracked)
        if self._missing_timer is not None:
            self._missing_timer.cancel()

    def condition(self, health: Health) -> Health:
        """Return a client's health with what this consumer knows."""
        self.settle()
        now = self._loop.time()
        member = self.coordinator
        errors: list[BaseException | None] = [
            self._supervisor.failure,
            None if member is None else member.error,
            *(state.error for state in self.subscription),
            self._missing.error,
        ]
        error = next((each for each in errors if each is not None), None)
        return replace(
            health,
            in_flight=self.fetcher.in_flight + (0 if member is None else member.in_flight),
            buffered_bytes=self.fetcher.buffered,
            assignment=tuple(sorted(self.subscription.assignment)),
            lag=self.fetcher.lags(),
            last_poll_s=_age(self.gate.asked_at(), now),
            last_heartbeat_s=None if member is None else _age(member.heartbeat_at, now),
            last_error=health.last_error if error is None else f"{type(error).__name__}: {error}",
        )

    @property
    def failed(self) -> bool:
        """True once a task of the consumer has died, or its group refuses it for good."""
        refused = self.coordinator is not None and self.coordinator.hopeless
        return refused or self._supervisor.failure is not None

    def check(self) -> None:
        """Raise if this consumer cannot go on, or not here."""
        self._supervisor.check()
        self._client.supervisor.check()

    async def _last_commit(self, time: ClosingTime) -> KafkaError | None:
        """Commit, log what could not be committed, and return the error if a retry cannot help."""
        error: Exception | None = None
        try:
            async with self._step(lambda: time.commit_by):
                left = max(0.001, time.commit_by - self._loop.time())
                due = self.subscription.to_commit(in_hand=False)
                await self._commit(due, patient=False, timeout=left)
        except TimeoutError as timeout:
            error = timeout
        except KafkaError as failure:
            error = failure
        due = self.subscription.to_commit(in_hand=False)
        if error is None or not due:
            return None
        shown = ", ".join(f"{p}: {row.offset}" for p, row in islice(due.items(), SHOWN_OFFSETS))
        logger.warning(
            "%s was closed, and offsets of %d partitions were not committed (%s): %s%s; the "
            "records before them will be read again",
            self._supervisor.name,
            len(due),
            str(error) or "no response in time",
            shown,
            ", ..." if len(due) > SHOWN_OFFSETS else "",
        )
        if isinstance(error, KafkaError) and not isinstance(error, RetriableError):
            return error
        return None

    async def _leave(self, coordinator: GroupCoordinator, time: ClosingTime) -> None:
        try:
            async with self._step(lambda: time.leave_by):
                await coordinator.leave(close=True, deadline=time.leave_by)
        except TimeoutError:
            logger.warning(
                "%s was closed, but did not leave its group in order: it was %s",
                self._supervisor.name,
                coordinator.state.value,
            )

    @contextlib.asynccontextmanager
    async def _step(self, deadline: Callable[[], float]) -> AsyncGenerator[None]:
        """Bound a step of closing; `shorten_closing` may bring its deadline forward."""
        try:
            async with asyncio.timeout_at(deadline()) as step:
                self._closing_step = step, deadline
                yield
        finally:
            self._closing_step = None

    # -- what to read -----------------------------------------------------------------------------

    def subscribed(self) -> None:
        """The topics or the static partitions are others now."""
        topics = self.subscription.topics
        if topics and self.coordinator is not None:
            self.coordinator.join("the consumer subscribes")
        if topics:
            self._supervisor.spawn(self._make_known, topics, name="topics")
        if self.subscription.pattern is not None:
            self._supervisor.spawn(self._follow_pattern, self.subscription.pattern, name="pattern")
        self.changed()
        self._on_metadata(self._client.metadata)

    def reassigned(self) -> None:
        """Act on other topics or static partitions: what is read, tracked and missing."""
        self.cut()
        self.changed()
        self._on_metadata(self._client.metadata)
        self.gate.arrived.set()  # a poll that waits may have nothing to read any more

    def changed(self) -> None:
        """Partitions came, went, were sought or paused."""
        wanted = frozenset(p.topic for p in self.subscription.states) | self.subscription.topics
        self._client.track_topics(wanted - self._tracked)
        self._client.untrack_topics(self._tracked - wanted)
        self._tracked = wanted
        self.gate.moved()
        self.positions.wake()
        self.fetcher.wake()

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        if self._closing:
            return
        subscription = self.subscription
        subscription.note_sizes(metadata)
        if self.coordinator is None:
            if subscription.follow({t: metadata.partitions(t) for t in subscription.topics}):
                self.cut()
                self.changed()
        elif self._protocol is not None:
            reason = self._protocol.changed(metadata)
            if reason is not None:
                self.coordinator.rejoin(reason)
            elif not self._confirming and (missing := self._protocol.missing(metadata)):
                self._confirming = True
                self._supervisor.spawn(self._confirm_deleted, missing, name="deleted topics")
        self.fetcher.on_metadata(metadata)
        self._look_for_missing()

    def _look_for_missing(self) -> None:
        """Warn of topics and partitions that do not exist, and set a timer for the next look."""
        if self._missing_timer is not None:
            self._missing_timer.cancel()
            self._missing_timer = None
        if self._closing:
            return
        subscription = self.subscription
        now = self._loop.time()
        gone = missing(subscription.topics, subscription.static, self._client.metadata)
        for warning in self._missing.update(gone, now):
            logger.warning("%s: %s", self._supervisor.name, warning)
            self._client.request_metadata_update()
        read = subscription.topics | {partition.topic for partition in subscription.static}
        errors = unauthorized(read, self._client.metadata)
        pending = self._overdue if gone or errors else None
        self._overdue = self._missing.refused(errors) or self._missing.overdue(now) or pending
        if self._overdue is not None:
            self.gate.arrived.set()
        next_at = self._missing.next_at()
        if next_at is not None:
            self._missing_timer = self._loop.call_at(next_at, self._look_for_missing)

    async def _confirm_deleted(self, topics: frozenset[str]) -> None:
        """Rejoin as the leader once it is certain that topics of the group were deleted."""
        assert self.coordinator is not None
        assert self._protocol is not None
        deadline = self._loop.time() + seconds(self._config.request_timeout_ms)
        try:
            deleted = await deleted_topics(self._client, topics, deadline)
            gone = deleted & self._protocol.missing(self._client.metadata)
            if gone:
                self.coordinator.rejoin(f"topics were deleted: {', '.join(sorted(gone))}")
        except KafkaError as error:  # the next metadata response starts the check again
            logger.debug("checking whether topics were deleted: %s", error)
        finally:
            self._confirming = False

    async def _make_known(self, topics: frozenset[str]) -> None:
        """Have topics created where that is allowed."""
        timeout = seconds(self._config.default_api_timeout_ms)
        create = self._config.allow_auto_create_topics
        try:
            await self._client.metadata_for(topics, timeout=timeout, allow_auto_create=create)
        except KafkaError as error:  # `_look_for_missing` warns of topics that do not exist
            logger.debug("looking for the topics subscribed to: %s", error)

    async def _follow_pattern(self, pattern: object) -> None:
        """Subscribe to the topics that the pattern matches, and look for new ones now and then."""
        while self.subscription.pattern is pattern and not self._closing:
            try:
                metadata = await self._client.refresh_metadata(all_topics=True)
            except KafkaError as error:
                logger.debug("looking for topics: %s", error)
            else:
                self._match(metadata)
            await asyncio.sleep(seconds(self._config.metadata_max_age_ms))

    def _match(self, metadata: ClusterMetadata) -> None:
        pattern = self.subscription.pattern
        if pattern is None:
            return
        topics = frozenset(
            name
            for name, topic in metadata.topics.items()
            if not topic.is_internal and pattern.fullmatch(name)
        )
        if topics != self.subscription.topics:
            self.subscription.topics = topics
            if self.coordinator is not None:
                self.coordinator.join("topics have come or gone that the pattern matches")
            self.changed()
            self._on_metadata(metadata)

    # -- handing out ------------------------------------------------------------------------------

    def iterate(self) -> RecordIterator[Any, Any]:
        """A stream of records; there may be one at a time."""
        self.check()
        self._begin()
        self._single = None
        stream = self._cursor.stream()
        self._active = weakref.ref(stream)
        return stream

    def single(self) -> RecordIterator[Any, Any]:
        """The stream behind `anext(consumer)`."""
        if self._single is None:
            self._begin()
            self._single = self._cursor.stream()
        return self._single

    async def poll(self, limit: int, timeout: float | None) -> list[AnyRecord]:
        """Records of any partition."""
        take = self._take if self._convert is None else self._take_converted
        return await self._ask(lambda: take(limit), timeout) or []

    async def poll_batches(self, timeout: float | None) -> list[PartitionBatch]:
        """Batches, by partition."""
        taken = await self._ask(self.fetcher.take_views, timeout, unpack=False) or []
        return [
            PartitionBatch(state.partition, views, start, end) for state, views, start, end in taken
        ]

    async def _ask(
        self, take: Callable[[], T], timeout: float | None, *, unpack: bool = True
    ) -> T | None:
        self._begin()
        self._single = None
        with self.gate:
            self.asked_past()
            return await self._until(take, timeout, unpack=unpack)

    async def next_records(self) -> tuple[PartitionState, list[AnyRecord]]:
        """A stream's next records (`Supply`)."""
        with self.gate:
            self.asked_past()
            taken = await self._until(self.fetcher.take_some, None)
            assert taken is not None
            return taken

    async def breathe(self) -> None:
        """A stream lets go of the loop (`Supply`)."""
        with self.gate:
            self.settle()
            self.asked_past()
            if self._cursor.current is not None:
                self.fetcher.handed.add(self._cursor.current)  # the stream returns more of it
            await asyncio.sleep(0)

    def put_back(self, rest: tuple[PartitionState, list[AnyRecord]] | None) -> None:
        """A stream returns records (`Supply`)."""
        if rest is not None:
            self.fetcher.put_back(*rest)

    async def _until(
        self, take: Callable[[], T], timeout: float | None, *, unpack: bool = True
    ) -> T | None:
        """What `take` gives once it gives something; None at the time-out.

        With `unpack` large batches are decompressed in a thread before they are taken.
        """
        now = self._loop.time()
        deadline = None if timeout is None else now + timeout
        if now >= self._yield_at - PARSING:
            await asyncio.sleep(0)
            self._yield_at = self._loop.time() + SLICE
        if self.coordinator is not None:
            self.coordinator.asked()
        while True:
            if self._closing:
                raise ClientClosedError(f"{self._supervisor.name} is closed")
            self.check()
            self._raise_failure()
            if not self.subscription.reads:
                raise IllegalStateError(
                    "there is nothing to read: give topics= or partitions=, or call subscribe() or "
                    "assign() first"
                )
            if not self.gate.held:
                if unpack and (unpacking := self.fetcher.unpacking()) is not None:
                    await unpacking
                    self._yield_at = self._loop.time() + SLICE
                    continue  # much may have changed meanwhile
                taken = take()
                if taken:
                    return taken
            if not await self.gate.wait(deadline):
                return None
            self._yield_at = self._loop.time() + SLICE

    def _take(self, limit: int) -> list[AnyRecord]:
        return self.fetcher.take(limit, self._loop.time() + PARSING)

    def _take_converted(self, limit: int) -> list[AnyRecord]:
        convert = self._convert
        assert convert is not None
        out: list[AnyRecord] = []
        most = self.fetcher.decompressed_bytes + ENOUGH
        deadline = self._loop.time() + PARSING
        while len(out) < limit and self.fetcher.decompressed_bytes < most:
            if out and (self.fetcher.packed() is not None or self._loop.time() >= deadline):
                break
            try:
                taken = self.fetcher.take_some(limit - len(out))
                if taken is None:
                    break
                state, raw = taken
                for place, record in enumerate(raw):
                    try:
                        out.append(convert(record))
                    except RecordDeserializationError:
                        self.fetcher.put_back(state, raw[place:])
                        raise
            except KafkaError:
                if not out:
                    raise
                break  # it is met again when these have been handed out
        return out

    def _raise_failure(self) -> None:
        failure, self.herald.failure = self.herald.failure, None
        if failure is not None:
            raise failure
        overdue, self._overdue = self._overdue, None
        if overdue is not None:
            raise overdue
        if self.coordinator is None:
            return
        error = self.coordinator.error
        if error is not None and (error is not self._told or self.coordinator.hopeless):
            self._told = error
            raise error

    # -- what the application has in its hands ----------------------------------------------------

    def _begin(self) -> None:
        """Another way to ask begins: refuse it while a stream is used, else end that stream."""
        active = None if self._active is None else self._active()
        if active is not None and self._cursor.record is not None:
            raise IllegalStateError(
                "an `async for` over this consumer is under way: poll, poll_batches and async for "
                "exclude each other"
            )
        self.cut()

    def settle(self) -> None:
        """Bring the positions up to date with what a stream has handed out."""
        self._cursor.settle()

    def cut(self, state: PartitionState | None = None) -> None:
        """Take back what a stream holds of a partition, or of any, and has not handed out."""
        if state is None or self._cursor.state is state:
            self.put_back(self._cursor.cut())

    def done(self) -> None:
        """The application gives back what it has in its hands: it is done with it."""
        self.cut()
        self.asked_past()
        self.gate.moved()

    def asked_past(self) -> None:
        """The application is done with all it was given."""
        for state in self.fetcher.handed:
            state.asked_past()
        self.fetcher.handed.clear()

    def _in_hand(self) -> bool:
        self.settle()
        return any(
            state.in_hand
            for state in self.fetcher.handed
            if self.subscription.states.get(state.partition) is state
        )

    def _progress(self) -> object:
        return self._cursor.record

    # -- committing -------------------------------------------------------------------------------

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The group has taken these."""
        for partition, offset in offsets.items():
            state = self.subscription.states.get(partition)
            if state is not None:
                state.was_committed(offset.offset)
        self.gate.moved()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float,
        *,
        named: bool = False,
    ) -> None:
        """Commit what the application says; `named`: it gave the offsets itself."""
        if self.commits is None:
            raise IllegalStateError("committing needs a group_id")
        if offsets:
            await self.commits.commit(offsets, timeout, owned=self._owns(offsets), named=named)

    async def _commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        patient: bool,
        timeout: float | None = None,
    ) -> None:
        assert self.commits is not None
        if timeout is None:
            timeout = seconds(self._config.request_timeout_ms)
        if offsets:
            await self.commits.commit(offsets, timeout, owned=self._owns(offsets), patient=patient)

    def _owns(self, offsets: Collection[TopicPartition]) -> Callable[[TopicPartition], bool]:
        """Whether a partition is still this consumer's; one that never was is nobody's business."""
        ours = self.subscription.assignment.intersection(offsets)
        return lambda partition: partition not in ours or partition in self.subscription.states

    async def _commit_done(self, partitions: Collection[TopicPartition]) -> None:
        """Before partitions are given up: commit what the application is done with.

        While the consumer is closed this is not done: its last commit comes first.
        """
        if not self._config.enable_auto_commit or self._closing:
            return
        self.settle()
        due = self.subscription.to_commit(in_hand=False)
        try:
            async with asyncio.timeout(None) as self._handing_over:
                await self._commit({p: due[p] for p in partitions if p in due}, patient=False)
        except (KafkaError, TimeoutError) as error:
            logger.warning("committing before partitions are given up: %s", error)
        finally:
            self._handing_over = None

    async def _auto_commit(self) -> None:
        interval = seconds(self._config.auto_commit_interval_ms)
        while True:
            await asyncio.sleep(interval)
            if self.gate.held:
                continue
            self.settle()
            try:
                await self._commit(self.subscription.to_commit(in_hand=False), patient=False)
            except KafkaError as error:
                logger.warning("auto-commit: %s", error)


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)
