"""The consumer, as its user sees it: checks what it is given, and hands it to the parts."""

from __future__ import annotations

import asyncio
import contextvars
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from typing_extensions import TypeVar

from kafka_async.arguments import (
    MAX_INT32,
    check_timeout,
    function,
    text,
    topic_names,
    topic_partition,
    topic_partitions,
    whole_number,
)
from kafka_async.cluster.client import Client
from kafka_async.config import ConsumerConfig, seconds
from kafka_async.consumer.close_deadlines import ClosingTime
from kafka_async.consumer.commit_methods import Committing
from kafka_async.consumer.partition_batch import PartitionBatch
from kafka_async.consumer.position_methods import Seeking
from kafka_async.consumer.rebalance_listener import Callback, Herald, RebalanceListener
from kafka_async.consumer.statistics import ConsumerStatistics
from kafka_async.errors import InvalidConfigurationError
from kafka_async.foreign_names import (
    CONSUMER,
    add_foreign_names,
    check_construction,
    unknown_keyword,
)
from kafka_async.supervisor import wait_shielded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Never, Self

    from typing_extensions import Unpack

    from kafka_async.clock import Clock, Dialer
    from kafka_async.config import ConsumerOptions
    from kafka_async.consumer.consumer_base import Partitions
    from kafka_async.consumer.runtime import Engine
    from kafka_async.hooks import Hooks
    from kafka_async.kernel import Record, RecordIterator
    from kafka_async.types import Health, TopicPartition

__all__ = ["Consumer", "PartitionBatch", "RebalanceListener"]

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

HURRY: Final = 10.0
"""Seconds for closing when an `async with` is left by an exception."""


class Consumer(Seeking, Committing, Generic[K, V]):
    """Reads records.

        async with Consumer("localhost:9092", topics=["clicks"], group_id="web") as consumer:
            async for record in consumer:
                ...

    The first argument is bootstrap servers, or a started `Client`, whose connections and metadata
    are shared then and not closed. `topics` are shared out among the consumers of the group, or all
    read by this one if it has no group; `partitions` are read besides, whatever the group does. All
    others are keyword options (see `ConsumerConfig`), under Kafka's own names.

    Records that were handed out stay in the application's hands until it asks for more or commits
    them: until then none of their partitions leaves this consumer, unless it takes longer than
    max_poll_interval_ms. Auto-commit commits a record only once the next was asked for. Keys and
    values are bytes unless deserializers are given. A consumer belongs to the event loop and the
    process it is started in, and one task at a time asks it for records.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **options: Any) -> Self:
            """Refuse arguments in the form of other clients."""
            check_construction(cls, args, options)
            return super().__new__(cls)

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Client,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        listener: RebalanceListener | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        given: dict[str, Any] = dict(options)
        if isinstance(bootstrap_servers, Client):
            if hooks is not None or clock is not None or dialer is not None:
                raise InvalidConfigurationError(
                    "hooks, clock and dialer belong to the shared Client: give them to it"
                )
            config = ConsumerConfig.shared(bootstrap_servers.config, **given)
            self._init(config, bootstrap_servers, owned=False)
        else:
            config = ConsumerConfig.create(bootstrap_servers, **given)
            client = Client.from_config(config, hooks=hooks, clock=clock, dialer=dialer)
            self._init(config, client, owned=True)
        self._read(topics, partitions, listener)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, object],
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        listener: RebalanceListener | None = None,
    ) -> Self:
        """A consumer with options under Java's names, as {"fetch.min.bytes": 1}."""
        config = ConsumerConfig.from_properties(properties)
        consumer = cls.__new__(cls)
        consumer._init(config, Client.from_config(config), owned=True)  # noqa: SLF001  # its own
        consumer._read(topics, partitions, listener)  # noqa: SLF001  # its own
        return consumer

    def _init(self, config: ConsumerConfig, client: Client, *, owned: bool) -> None:
        _check_assignors(config)
        super().__init__(config, client)
        self._herald = Herald()
        self._owned = owned
        self._started = self._starting = False
        self._closing: asyncio.Task[None] | None = None

    def _read(
        self,
        topics: Iterable[str] | None,
        partitions: Iterable[TopicPartition] | None,
        listener: RebalanceListener | None,
    ) -> None:
        if listener is not None:
            self._herald.add(listener)
        if topics is not None:
            self._subscription.topics = topic_names(topics)
        if partitions is not None:
            self._subscription.set_static(topic_partitions(partitions))

    # -- life -------------------------------------------------------------------------------------

    async def start(self, **unknown: Never) -> None:
        """Connect and begin to read. Raises BootstrapError: no bootstrap server could be used."""
        if unknown:
            raise unknown_keyword(self.start, unknown)
        self._starting = True
        if self._owned:
            await self.client.start()
        try:
            await self._supervisor.start()
            make = await self._supervisor.offload(_engine_class)
            self._running = make(
                self.client,
                self._supervisor,
                self.config,
                self._subscription,
                self._herald,
                self._convert,
            )
            self._started = True
            self._running.start()
        except BaseException:
            await self._outlast(self._in_closing_task(self._tear_down()))
            raise

    async def stop(self, timeout: float | None = None, **unknown: Never) -> None:
        """Stop reading, commit what was asked past if that is automatic, leave the group, close.

        Offsets that could not be committed in time are named in a warning. Without anything to
        commit, and without a broker that responds, it returns at once. It is completed even if the
        caller is cancelled; a cancelled `stop` commits no more and leaves the group within 1 s.
        Safe to call again.

        Args:
            timeout: Maximum time for all of it, in seconds (default: close_timeout_ms).

        Raises:
            KafkaError: The group refused the automatic commit; the consumer is closed.
        """
        if unknown:
            raise unknown_keyword(self.stop, unknown)
        check_timeout(timeout)
        await self._stop(timeout, finished=False)

    async def _stop(self, timeout: float | None, *, finished: bool) -> None:
        engine = self._running
        if engine is None:
            return
        if self._closing is None:
            if self._stopped:
                return
            self._stopped = True
            limit = seconds(self.config.close_timeout_ms) if timeout is None else timeout
            time = ClosingTime.of(asyncio.get_running_loop().time(), limit)
            self._closing = self._in_closing_task(self._close(engine, time, finished=finished))
        elif self._closing.done():
            return
        await self._outlast(self._closing, engine.shorten_closing)

    async def _close(self, engine: Engine, time: ClosingTime, *, finished: bool) -> None:
        try:
            await engine.stop(time, finished=finished)
        finally:
            await self._tear_down(time)

    async def _tear_down(self, time: ClosingTime | None = None) -> None:
        self._stopped = True
        if self._running is not None:
            self._running.close()
        try:
            await self._supervisor.stop()
        finally:
            if self._owned:
                left = None if time is None else time.end - asyncio.get_running_loop().time()
                await self.client.stop(None if left is None else max(0.0, left))

    def _in_closing_task(self, closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Close in a separate task, which no cancel scope or cancellation of the caller ends."""
        loop = asyncio.get_running_loop()
        name = f"{self._supervisor.name} closing"
        return loop.create_task(closing, name=name, context=contextvars.Context())

    async def _outlast(
        self, closing: asyncio.Task[None], on_cancel: Callable[[], None] | None = None
    ) -> None:
        cancelled = await wait_shielded(closing, on_cancel=on_cancel)
        failure = closing.exception()
        if cancelled is not None:
            if failure is not None:
                cancelled.add_note(f"closing the consumer failed too: {failure!r}")
            raise cancelled
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop. Left in order, what is in hand counts as done; by an exception, it doesn't."""
        if error is None:
            await self._stop(None, finished=True)
            return
        try:
            limit = min(HURRY, seconds(self.config.close_timeout_ms))
            await self._stop(limit, finished=False)
        except Exception as failure:  # noqa: BLE001  # the body's own exception is the one to raise
            error.add_note(f"closing the consumer failed too: {failure!r}")

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._stopped:
            warnings.warn(
                f"{self._supervisor.name} was started and never stopped: use `async with`, "
                "or await stop()",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    # -- what to read -----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        **unknown: Never,
    ) -> None:
        """Read these topics and no other ones, or all whose whole name matches `pattern`.

        Takes effect in the background. Static partitions stay.
        """
        if unknown:
            raise unknown_keyword(self.subscribe, unknown)
        if (topics is None) == (pattern is None):
            raise TypeError(
                'subscribe takes topics or pattern=, one of the two: subscribe(["orders"])'
            )
        compiled = None if pattern is None else _compiled(pattern)
        names = frozenset[str]() if topics is None else topic_names(topics)
        if listener is not None:
            self._herald.add(listener)  # which refuses what is no listener: nothing has changed yet
        self._subscription.pattern, self._subscription.topics = compiled, names
        if self._running is not None:
            self._engine.subscribed()

    async def unsubscribe(self, **unknown: Never) -> None:
        """Read no topics any more and leave the group; returns when that is done.

        Static partitions stay.
        """
        if unknown:
            raise unknown_keyword(self.unsubscribe, unknown)
        engine = self._engine
        self._subscription.topics, self._subscription.pattern = frozenset(), None
        engine.done()
        if engine.coordinator is not None:
            await engine.coordinator.leave()
        engine.reassigned()

    def assign(self, partitions: Partitions, **unknown: Never) -> None:
        """Read these static partitions, and no other static ones; subscribed topics stay."""
        if unknown:
            raise unknown_keyword(self.assign, unknown)
        self._subscription.set_static(topic_partitions(partitions))
        if self._running is not None:
            self._engine.reassigned()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions read now: the group's share and static ones."""
        return self._subscription.assignment

    def on_assigned(self, callback: Callback, **unknown: Never) -> Callback:
        """Have `callback(partitions)` called, or awaited, when partitions are newly ours."""
        if unknown:
            raise unknown_keyword(self.on_assigned, unknown)
        self._herald.assigned.append(function(callback))
        return callback

    def on_revoked(self, callback: Callback, **unknown: Never) -> Callback:
        """Have `callback(partitions)` called, or awaited, before partitions are given up."""
        if unknown:
            raise unknown_keyword(self.on_revoked, unknown)
        self._herald.revoked.append(function(callback))
        return callback

    def on_lost(self, callback: Callback, **unknown: Never) -> Callback:
        """Have `callback(partitions)` called, or awaited, when partitions may be another's."""
        if unknown:
            raise unknown_keyword(self.on_lost, unknown)
        self._herald.lost.append(function(callback))
        return callback

    def pause(self, partitions: Partitions = (), **unknown: Never) -> None:
        """Hand out nothing of these partitions, or of any, until `resume`; they stay assigned."""
        if unknown:
            raise unknown_keyword(self.pause, unknown)
        for state in self._subscription.select(topic_partitions(partitions)):
            state.paused = True
            self._engine.cut(state)
            state.buffer.pack()
        self._engine.fetcher.wake()  # what these hold was counted against the others

    def resume(self, partitions: Partitions = (), **unknown: Never) -> None:
        """Undo `pause` for these partitions, or for all."""
        if unknown:
            raise unknown_keyword(self.resume, unknown)
        for state in self._subscription.select(topic_partitions(partitions)):
            state.paused = False
            self._engine.fetcher.resumed(state)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.partition for state in self._subscription if state.paused)

    # -- records ----------------------------------------------------------------------------------

    def __aiter__(self) -> RecordIterator[K, V]:
        """Records without end; the stream ends when the consumer is stopped."""
        return self._engine.iterate()

    async def __anext__(self) -> Record[K, V]:
        """The next record."""
        return await self._engine.single().__anext__()

    async def poll(
        self,
        *misplaced: Never,
        timeout: float | None = 1.0,
        max_records: int | None = None,
        **unknown: Never,
    ) -> list[Record[K, V]]:
        """Records of any partitions, at most `max_records` (default: max_poll_records).

        Waits until there is one, at most `timeout` seconds (None: for ever), and gives an empty
        list then. Of very many it gives what can be parsed in 2.5 ms, so as not to hold the loop.

        Raises:
            CorruptRecordError, RecordDeserializationError: the next record cannot be read; `seek`
                past it to go on.
            NoOffsetForPartitionError, OffsetOutOfRangeError: there is nowhere to go on, and
                auto_offset_reset is "none".
            TopicAuthorizationError: the principal may not read a topic that is subscribed to or
                assigned; raised once, other topics go on.
            KafkaError: the group refuses this consumer, or a task of it has died.
            TypeError: an argument without its name, or of another type.
            ValueError: `max_records` is less than 1, or `timeout` is negative.
        """
        if unknown:
            raise unknown_keyword(self.poll, unknown)
        if misplaced:
            raise TypeError(
                "poll takes arguments by name: poll(timeout=1.0), in seconds, or "
                "poll(max_records=500)"
            )
        check_timeout(timeout, unlimited="no limit")
        limit = self.config.max_poll_records
        if max_records is not None:
            limit = whole_number(max_records, "max_records", low=1, high=MAX_INT32)
        return await self._engine.poll(limit, timeout)

    async def poll_batches(
        self, *misplaced: Never, timeout: float | None = 1.0, **unknown: Never
    ) -> list[PartitionBatch]:
        """All that was fetched, by partition, as it came: for Arrow, or to parse elsewhere.

        Waits like `poll`, and raises what it raises; deserializers are not used.
        """
        if unknown:
            raise unknown_keyword(self.poll_batches, unknown)
        if misplaced:
            raise TypeError("poll_batches takes its time-out by name: poll_batches(timeout=1.0)")
        check_timeout(timeout, unlimited="no limit")
        return await self._engine.poll_batches(timeout)

    # -- the cluster, and figures -----------------------------------------------------------------

    async def topics(self, *, timeout: float | None = None, **unknown: Never) -> frozenset[str]:
        """The names of all topics but internal ones."""
        if unknown:
            raise unknown_keyword(self.topics, unknown)
        self._engine.check()
        metadata = await self.client.refresh_metadata(all_topics=True, timeout=self._limit(timeout))
        return frozenset(n for n, topic in metadata.topics.items() if not topic.is_internal)

    async def partitions_for(
        self, topic: str, *, timeout: float | None = None, **unknown: Never
    ) -> list[int]:
        """Return the numbers of a topic's partitions; never creates the topic.

        Args:
            topic: The topic's name.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: A broker responded that there is no such topic.
            KafkaTimeoutError: No broker responded in time.
        """
        if unknown:
            raise unknown_keyword(self.partitions_for, unknown)
        self._engine.check()
        text(topic, "topic")
        metadata = await self.client.metadata_for(
            [topic], timeout=self._limit(timeout), retry_unknown=False
        )
        return list(range(metadata.partitions(topic) or 0))

    def statistics(self) -> ConsumerStatistics:
        """What it has done since its start."""
        engine = self._engine
        engine.settle()
        lags = engine.fetcher.lags()
        return ConsumerStatistics(
            records_consumed_total=engine.fetcher.records,
            bytes_consumed_total=engine.fetcher.bytes,
            fetch_total=engine.fetcher.fetches,
            commit_total=0 if engine.commits is None else engine.commits.count,
            rebalance_total=0 if engine.coordinator is None else engine.coordinator.rebalances,
            offset_reset_total=engine.positions.resets,
            assigned_partitions=len(self._subscription.assignment),
            records_lag=lags,
            records_lag_max=max(lags.values(), default=None),
            buffered_bytes=engine.fetcher.buffered,
            fetch_throttle_time_avg=engine.fetcher.throttle_total / max(1, engine.fetcher.fetches),
            fetch_throttle_time_max=engine.fetcher.throttle_max,
        )

    def health(self) -> Health:
        """Return a snapshot of the consumer's condition; no request is sent.

        It may be taken at any time, before `start` and after `stop` too. The state is "failed" once
        a task has died or the group refuses this member for good; "degraded" while no broker is
        both connected and responding. The brokers are those of its client, which it may share;
        `in_flight` counts the consumer's own requests.
        """
        health = replace(self.client.health(), in_flight=0, state=self._state())
        return health if self._running is None else self._running.condition(health)

    def _state(self) -> str:
        if self._stopped:
            return "stopping" if self._supervisor.hosting else "closed"
        if not self._started:
            return "starting" if self._starting else "new"
        if self._running is not None and self._running.failed:
            return "failed"
        return self.client.health().state

    def high_watermark(self, partition: TopicPartition, **unknown: Never) -> int | None:
        """Return the offset after the last record that all in-sync replicas have; no request.

        It is as of the last fetch response, and None until there was one for this partition.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer.
        """
        if unknown:
            raise unknown_keyword(self.high_watermark, unknown)
        return _known(self._subscription.state(topic_partition(partition)).high_watermark)

    def last_stable_offset(self, partition: TopicPartition, **unknown: Never) -> int | None:
        """Return the offset below which no transaction is open; no request (KIP-98).

        Records below it are what `isolation_level="read_committed"` lets a consumer read. It is as
        of the last fetch response, and None until there was one for this partition.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer.
        """
        if unknown:
            raise unknown_keyword(self.last_stable_offset, unknown)
        return _known(self._subscription.state(topic_partition(partition)).last_stable_offset)


add_foreign_names(Consumer, CONSUMER)


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset


def _engine_class() -> type[Engine]:
    """Load what a consumer needs; in a thread, because it would stall the loop."""
    from kafka_async.consumer.runtime import Engine
    from kafka_async.records.compression import Codec, compress

    for codec in Codec:
        compress(codec, b"")
    return Engine


def _check_assignors(config: ConsumerConfig) -> None:
    """Raise for assignors that the group could not use, which are built when it starts."""
    if config.partition_assignment_strategy != ConsumerConfig.partition_assignment_strategy:
        from kafka_async.group.assignors import choose  # the default needs no check, nor the import

        choose(config.partition_assignment_strategy)


def _compiled(pattern: object) -> re.Pattern[str]:
    source = getattr(pattern, "pattern", pattern)
    if not isinstance(source, str):
        raise TypeError(f"pattern must be str or a compiled pattern of str, not {pattern!r:.60}")
    try:
        return re.compile(cast("str | re.Pattern[str]", pattern))
    except re.error as error:
        raise ValueError(f"pattern {pattern!r:.60} is no regular expression: {error}") from error
