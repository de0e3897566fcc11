"""The public consumer: checks arguments and delegates to its runtime."""

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
from kafka_async.consumer.close_deadlines import CloseDeadlines
from kafka_async.consumer.commit_methods import CommitMethods
from kafka_async.consumer.partition_batch import PartitionBatch
from kafka_async.consumer.position_methods import PositionMethods
from kafka_async.consumer.rebalance_listener import (
    Callback,
    RebalanceListener,
    RebalanceListenerInvoker,
)
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
    from kafka_async.consumer.runtime import ConsumerRuntime
    from kafka_async.hooks import Hooks
    from kafka_async.kernel import Record, RecordIterator
    from kafka_async.types import Health, TopicPartition

__all__ = ["Consumer", "PartitionBatch", "RebalanceListener"]

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

ERROR_CLOSE_TIMEOUT: Final = 10.0
"""Seconds for closing when an `async with` block raises an exception."""


class Consumer(PositionMethods, CommitMethods, Generic[K, V]):
    """Reads records.

        async with Consumer("localhost:9092", topics=["clicks"], group_id="web") as consumer:
            async for record in consumer:
                ...

    With a group, `topics` are assigned to its consumers; without one, this consumer reads all of
    their partitions. `partitions` are manually assigned: read regardless of the group.

    Returned records are being processed until the application polls again or commits them. Until
    then none of their partitions is revoked, unless it takes longer than max_poll_interval_ms.
    Auto-commit commits the records that a poll returned only after the next poll, and a record of a
    stream only after the next one was requested; `unsubscribe`, and an `async with` block that ends
    without an exception, commit what was returned before. Keys and values are bytes unless
    deserializers are given. A consumer belongs to the event loop and the process in which it was
    started, and only one task at a time may poll it.

    Args:
        bootstrap_servers: "host:port" addresses, or a started `Client`, whose connections and
            metadata are then shared and which is not closed.
        topics: Topics to subscribe to.
        partitions: Manually assigned partitions to read.
        listener: Listener for changes of the assignment.
        hooks: Listeners for events; not with a shared `Client`.
        clock: Clock, for tests; not with a shared `Client`.
        dialer: Opens connections, for tests; not with a shared `Client`.
        **options: Options under Kafka's names; see `ConsumerConfig`.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **options: Any) -> Self:
            """Reject arguments in the form of other clients."""
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
        self._set_topics(topics, partitions, listener)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, object],
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        listener: RebalanceListener | None = None,
    ) -> Self:
        """Return a consumer with options under Java's names, as {"fetch.min.bytes": 1}.

        Args:
            properties: The options.
            topics: Topics to subscribe to.
            partitions: Manually assigned partitions to read.
            listener: Listener for changes of the assignment.
        """
        config = ConsumerConfig.from_properties(properties)
        consumer = cls.__new__(cls)
        consumer._init(config, Client.from_config(config), owned=True)  # noqa: SLF001  # its own
        consumer._set_topics(topics, partitions, listener)  # noqa: SLF001  # its own
        return consumer

    def _init(self, config: ConsumerConfig, client: Client, *, owned: bool) -> None:
        _check_assignors(config)
        super().__init__(config, client)
        self._listeners = RebalanceListenerInvoker()
        self._owns_client = owned
        self._started = self._starting = False
        self._closing: asyncio.Task[None] | None = None

    def _set_topics(
        self,
        topics: Iterable[str] | None,
        partitions: Iterable[TopicPartition] | None,
        listener: RebalanceListener | None,
    ) -> None:
        if listener is not None:
            self._listeners.add(listener)
        if topics is not None:
            self._subscription.topics = topic_names(topics)
        if partitions is not None:
            self._subscription.set_static(topic_partitions(partitions))

    # -- starting and closing ---------------------------------------------------------------------

    async def start(self, **unknown: Never) -> None:
        """Connect and start to read.

        Raises:
            BootstrapError: No bootstrap server could be used.
        """
        if unknown:
            raise unknown_keyword(self.start, unknown)
        self._starting = True
        if self._owns_client:
            await self.client.start()
        try:
            await self._supervisor.start()
            make = await self._supervisor.offload(_load_runtime_class)
            self._runtime = make(
                self.client,
                self._supervisor,
                self.config,
                self._subscription,
                self._listeners,
                self._convert,
            )
            self._started = True
            self._runtime.start()
        except BaseException:
            await self._await_closing(self._in_closing_task(self._tear_down()))
            raise

    async def stop(self, timeout: float | None = None, **unknown: Never) -> None:
        """Stop reading, commit processed records with auto-commit, leave the group and close.

        Offsets that could not be committed in time are named in a warning. Without anything to
        commit, and without a broker that responds, it returns at once. It is completed even if the
        caller is cancelled; a cancelled `stop` does not commit, and leaves the group within 1 s.
        Safe to call again.

        Args:
            timeout: Maximum total time in seconds (default: close_timeout_ms).

        Raises:
            KafkaError: The group rejected the automatic commit; the consumer is closed.
        """
        if unknown:
            raise unknown_keyword(self.stop, unknown)
        check_timeout(timeout)
        await self._stop(timeout, finished=False)

    async def _stop(self, timeout: float | None, *, finished: bool) -> None:
        runtime = self._runtime
        if runtime is None:
            return
        if self._closing is None:
            if self._stopped:
                return
            self._stopped = True
            limit = seconds(self.config.close_timeout_ms) if timeout is None else timeout
            deadlines = CloseDeadlines.of(asyncio.get_running_loop().time(), limit)
            self._closing = self._in_closing_task(
                self._close(runtime, deadlines, finished=finished)
            )
        elif self._closing.done():
            return
        await self._await_closing(self._closing, runtime.shorten_closing)

    async def _close(
        self, runtime: ConsumerRuntime, deadlines: CloseDeadlines, *, finished: bool
    ) -> None:
        try:
            await runtime.stop(deadlines, finished=finished)
        finally:
            await self._tear_down(deadlines)

    async def _tear_down(self, deadlines: CloseDeadlines | None = None) -> None:
        self._stopped = True
        if self._runtime is not None:
            self._runtime.close()
        try:
            await self._supervisor.stop()
        finally:
            if self._owns_client:
                left = (
                    None if deadlines is None else deadlines.end - asyncio.get_running_loop().time()
                )
                await self.client.stop(None if left is None else max(0.0, left))

    def _in_closing_task(self, closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Close in a separate task, which no cancel scope or cancellation of the caller ends."""
        loop = asyncio.get_running_loop()
        name = f"{self._supervisor.name} closing"
        return loop.create_task(closing, name=name, context=contextvars.Context())

    async def _await_closing(
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
        """Stop; returned records count as processed unless the block raised an exception."""
        if error is None:
            await self._stop(None, finished=True)
            return
        try:
            limit = min(ERROR_CLOSE_TIMEOUT, seconds(self.config.close_timeout_ms))
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

    # -- subscription -----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        **unknown: Never,
    ) -> None:
        """Subscribe to topics, or to all topics whose full name matches a pattern.

        Replaces the former subscription, in the background. Manually assigned partitions stay.

        Args:
            topics: The topics.
            pattern: A regular expression, instead of `topics`.
            listener: Listener for changes of the assignment, added to the existing listeners.

        Raises:
            TypeError: Not exactly one of `topics` and `pattern`, or one of another type.
            ValueError: `pattern` is not a regular expression.
        """
        if unknown:
            raise unknown_keyword(self.subscribe, unknown)
        if (topics is None) == (pattern is None):
            raise TypeError(
                'subscribe takes topics or pattern=, one of the two: subscribe(["orders"])'
            )
        compiled = None if pattern is None else _compile_pattern(pattern)
        names = frozenset[str]() if topics is None else topic_names(topics)
        if listener is not None:
            self._listeners.add(listener)  # first, since it raises TypeError for another type
        self._subscription.pattern, self._subscription.topics = compiled, names
        if self._runtime is not None:
            self._active_runtime.on_subscription_changed()

    async def unsubscribe(self, **unknown: Never) -> None:
        """Unsubscribe from all topics, leave the group and return when that is done.

        Manually assigned partitions stay.
        """
        if unknown:
            raise unknown_keyword(self.unsubscribe, unknown)
        runtime = self._active_runtime
        self._subscription.topics, self._subscription.pattern = frozenset(), None
        runtime.mark_all_processed()
        if runtime.membership is not None:
            await runtime.membership.leave()
        runtime.on_assignment_changed()

    def assign(self, partitions: Partitions, **unknown: Never) -> None:
        """Set the manually assigned partitions; subscribed topics stay.

        Args:
            partitions: The partitions.
        """
        if unknown:
            raise unknown_keyword(self.assign, unknown)
        self._subscription.set_static(topic_partitions(partitions))
        if self._runtime is not None:
            self._active_runtime.on_assignment_changed()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions assigned by the group or manually."""
        return self._subscription.assignment

    def on_assigned(self, callback: Callback, **unknown: Never) -> Callback:
        """Add a callback for newly assigned partitions.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        if unknown:
            raise unknown_keyword(self.on_assigned, unknown)
        self._listeners.assigned.append(function(callback))
        return callback

    def on_revoked(self, callback: Callback, **unknown: Never) -> Callback:
        """Add a callback for partitions about to be revoked.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        if unknown:
            raise unknown_keyword(self.on_revoked, unknown)
        self._listeners.revoked.append(function(callback))
        return callback

    def on_lost(self, callback: Callback, **unknown: Never) -> Callback:
        """Add a callback for lost partitions, which other members may own already.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        if unknown:
            raise unknown_keyword(self.on_lost, unknown)
        self._listeners.lost.append(function(callback))
        return callback

    def pause(self, partitions: Partitions = (), **unknown: Never) -> None:
        """Return no records of these partitions until `resume`; they stay assigned.

        Args:
            partitions: The partitions (default: all assigned).
        """
        if unknown:
            raise unknown_keyword(self.pause, unknown)
        for state in self._subscription.select(topic_partitions(partitions)):
            state.paused = True
            self._active_runtime.take_back(state)
            state.buffer.drop_decompressed()
        self._active_runtime.fetcher.wakeup()  # their bytes counted against other partitions

    def resume(self, partitions: Partitions = (), **unknown: Never) -> None:
        """Undo `pause`.

        Args:
            partitions: The partitions (default: all assigned).
        """
        if unknown:
            raise unknown_keyword(self.resume, unknown)
        for state in self._subscription.select(topic_partitions(partitions)):
            state.paused = False
            self._active_runtime.fetcher.on_resumed(state)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(state.partition for state in self._subscription if state.paused)

    # -- records ----------------------------------------------------------------------------------

    def __aiter__(self) -> RecordIterator[K, V]:
        """Return a stream of records; it ends when the consumer is stopped."""
        return self._active_runtime.record_stream()

    async def __anext__(self) -> Record[K, V]:
        """Return the next record."""
        return await self._active_runtime.anext_stream().__anext__()

    async def poll(
        self,
        *misplaced: Never,
        timeout: float | None = 1.0,
        max_records: int | None = None,
        **unknown: Never,
    ) -> list[Record[K, V]]:
        """Return records of any partitions, once there are any; an empty list at the timeout.

        One poll parses records for at most 2.5 ms, so it may return fewer than there are.

        Args:
            timeout: Maximum time in seconds (None: no limit).
            max_records: Maximum number of records (default: max_poll_records).

        Raises:
            CorruptRecordError: The next record cannot be read; `seek` past it to continue.
            RecordDeserializationError: The next record cannot be deserialized; `seek` past it to
                continue.
            NoOffsetForPartitionError: There is no committed offset, and auto_offset_reset is
                "none".
            OffsetOutOfRangeError: The position is out of range, and auto_offset_reset is "none".
            RecordTooLargeError: The next batch is larger than the bytes fetched: raise
                max_partition_fetch_bytes, or `seek` past it to continue.
            TopicAuthorizationError: The principal may not read a subscribed or assigned topic;
                raised once, other topics continue.
            UnknownTopicOrPartitionError: A subscribed topic or a manually assigned partition has
                not existed for default_api_timeout_ms, and allow_auto_create_topics is False;
                raised once, other topics continue.
            IllegalStateError: There is nothing to read, another task polls, an `async for` is in
                progress, or a rebalance listener polls.
            ClientClosedError: The consumer is not started, or is stopped.
            KafkaError: The group rejected this consumer, or a task of it has died.
            Exception: An exception of a rebalance listener or of an assignor.
            TypeError: A positional argument, or an argument of another type.
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
        return await self._active_runtime.poll(limit, timeout)

    async def poll_batches(
        self, *misplaced: Never, timeout: float | None = 1.0, **unknown: Never
    ) -> list[PartitionBatch]:
        """Return all fetched batches by partition, for Arrow or to parse elsewhere.

        Waits like `poll` and raises the same errors except RecordDeserializationError, since
        deserializers are not used.

        Args:
            timeout: Maximum time in seconds (None: no limit).
        """
        if unknown:
            raise unknown_keyword(self.poll_batches, unknown)
        if misplaced:
            raise TypeError("poll_batches takes its time-out by name: poll_batches(timeout=1.0)")
        check_timeout(timeout, unlimited="no limit")
        return await self._active_runtime.poll_batches(timeout)

    # -- topics, statistics and health ------------------------------------------------------------

    async def topics(self, *, timeout: float | None = None, **unknown: Never) -> frozenset[str]:
        """Return the names of all topics except internal ones.

        Args:
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        if unknown:
            raise unknown_keyword(self.topics, unknown)
        self._active_runtime.check()
        metadata = await self.client.refresh_metadata(all_topics=True, timeout=self._limit(timeout))
        return frozenset(n for n, topic in metadata.topics.items() if not topic.is_internal)

    async def partitions_for(
        self, topic: str, *, timeout: float | None = None, **unknown: Never
    ) -> list[int]:
        """Return the numbers of a topic's partitions; never creates the topic.

        Args:
            topic: Name of the topic.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: A broker responded that the topic does not exist.
            KafkaTimeoutError: No broker responded in time.
        """
        if unknown:
            raise unknown_keyword(self.partitions_for, unknown)
        self._active_runtime.check()
        text(topic, "topic")
        metadata = await self.client.metadata_for(
            [topic], timeout=self._limit(timeout), retry_unknown=False
        )
        return list(range(metadata.partitions(topic) or 0))

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot of the statistics since `start`."""
        runtime = self._active_runtime
        runtime.update_positions()
        lags = runtime.fetcher.lags()
        return ConsumerStatistics(
            records_consumed_total=runtime.fetcher.records,
            bytes_consumed_total=runtime.fetcher.bytes,
            fetch_total=runtime.fetcher.fetches,
            commit_total=0
            if runtime.offset_committer is None
            else runtime.offset_committer.commit_count,
            rebalance_total=0 if runtime.membership is None else runtime.membership.rebalances,
            offset_reset_total=runtime.positions.reset_count,
            assigned_partitions=len(self._subscription.assignment),
            records_lag=lags,
            records_lag_max=max(lags.values(), default=None),
            buffered_bytes=runtime.fetcher.buffered,
            fetch_throttle_time_avg=runtime.fetcher.throttle_total
            / max(1, runtime.fetcher.fetches),
            fetch_throttle_time_max=runtime.fetcher.throttle_max,
        )

    def health(self) -> Health:
        """Return a snapshot of the consumer's condition; sends no request.

        It may be called at any time, also before `start` and after `stop`. The state is "failed"
        once a task has died or the group has rejected this member for good, and "degraded" while no
        broker is both connected and responding. The brokers are those of its client, which may be
        shared; `in_flight` counts the consumer's own requests.
        """
        health = replace(self.client.health(), in_flight=0, state=self._state())
        return health if self._runtime is None else self._runtime.health(health)

    def _state(self) -> str:
        if self._stopped:
            return "stopping" if self._supervisor.hosting else "closed"
        if not self._started:
            return "starting" if self._starting else "new"
        if self._runtime is not None and self._runtime.failed:
            return "failed"
        return self.client.health().state

    def high_watermark(self, partition: TopicPartition, **unknown: Never) -> int | None:
        """Return the offset after the last record that all in-sync replicas have; no request.

        It is as of the last fetch response, and None before the first one of this partition.

        Args:
            partition: The partition.

        Raises:
            IllegalStateError: The partition is not assigned to this consumer.
        """
        if unknown:
            raise unknown_keyword(self.high_watermark, unknown)
        return _none_if_unknown(self._subscription.state(topic_partition(partition)).high_watermark)

    def last_stable_offset(self, partition: TopicPartition, **unknown: Never) -> int | None:
        """Return the offset below which no transaction is open; sends no request (KIP-98).

        Records below it are what `isolation_level="read_committed"` lets a consumer read. It is as
        of the last fetch response, and None before the first one of this partition.

        Args:
            partition: The partition.

        Raises:
            IllegalStateError: The partition is not assigned to this consumer.
        """
        if unknown:
            raise unknown_keyword(self.last_stable_offset, unknown)
        return _none_if_unknown(
            self._subscription.state(topic_partition(partition)).last_stable_offset
        )


add_foreign_names(Consumer, CONSUMER)


def _none_if_unknown(offset: int) -> int | None:
    return None if offset < 0 else offset


def _load_runtime_class() -> type[ConsumerRuntime]:
    """Import the runtime; in a thread, because it would block the event loop."""
    from kafka_async.consumer.runtime import ConsumerRuntime
    from kafka_async.records.compression import Codec, compress

    for codec in Codec:
        compress(codec, b"")
    return ConsumerRuntime


def _check_assignors(config: ConsumerConfig) -> None:
    """Raise an error for assignors that the group could not use."""
    if config.partition_assignment_strategy != ConsumerConfig.partition_assignment_strategy:
        from kafka_async.group.assignors import (
            create_assignors,  # the default needs no check, nor the import
        )

        create_assignors(config.partition_assignment_strategy)


def _compile_pattern(pattern: object) -> re.Pattern[str]:
    source = getattr(pattern, "pattern", pattern)
    if not isinstance(source, str):
        raise TypeError(f"pattern must be str or a compiled pattern of str, not {pattern!r:.60}")
    try:
        return re.compile(cast("str | re.Pattern[str]", pattern))
    except re.error as error:
        raise ValueError(f"pattern {pattern!r:.60} is no regular expression: {error}") from error
