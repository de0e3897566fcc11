"""The public consumer: checks arguments and delegates to its runtime."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, cast

from typing_extensions import TypeVar

from kafka_async.client.client import connect_with, services_of
from kafka_async.config import ConsumerConfig, hide_secrets, seconds
from kafka_async.consumer.buffer.deserialize import converter_of
from kafka_async.consumer.delivery.partition_batch import PartitionBatch
from kafka_async.consumer.group.closing import CloseDeadlines
from kafka_async.consumer.group.rebalance_listener import (
    Callback,
    RebalanceListener,
    RebalanceListenerInvoker,
)
from kafka_async.consumer.interceptors import ConsumerInterceptors
from kafka_async.consumer.offsets import EARLIEST, LATEST, UNKNOWN
from kafka_async.consumer.statistics import ConsumerStatistics
from kafka_async.consumer.subscription import Subscription
from kafka_async.errors import ClientClosedError, IllegalStateError, KafkaTimeoutError
from kafka_async.foundation.arguments import (
    MAX_INT32,
    by_partition,
    check_duration,
    check_timeout,
    function,
    milliseconds,
    offset_and_metadata,
    text,
    topic_names,
    topic_partition,
    topic_partitions,
    whole_number,
)
from kafka_async.foundation.fairness import MIB
from kafka_async.foundation.start_guard import StartGuard
from kafka_async.foundation.supervisor import Supervisor, not_started_error, wait_shielded
from kafka_async.foundation.thread_reads import readable_in_any_thread
from kafka_async.hooks import emit_task_died
from kafka_async.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

    from kafka_async.client.client import Client
    from kafka_async.config import ConsumerOptions
    from kafka_async.consumer.delivery.partition_streams import PartitionStreams
    from kafka_async.consumer.delivery.undecodable import OnUndecodable
    from kafka_async.consumer.positions.offset_lookup import ListedOffset
    from kafka_async.consumer.runtime import ConsumerRuntime
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.group.explanation import AssignmentExplanation
    from kafka_async.hooks import Hooks
    from kafka_async.kernel import Record, RecordIterator
    from kafka_async.types import GroupMetadata, Health, OffsetSource

__all__ = ["Consumer", "PartitionBatch", "RebalanceListener"]

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)
Partitions: TypeAlias = TopicPartition | Iterable[TopicPartition]
Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]

ERROR_CLOSE_TIMEOUT: Final = 10.0
"""Seconds for closing when an `async with` block raises an exception."""


class Consumer(Generic[K, V]):
    """Reads records.

        async with Consumer("localhost:9092", topics=["clicks"], group_id="web") as consumer:
            async for record in consumer:
                ...

    With a group, `topics` are assigned to its consumers; without one, this consumer reads all of
    their partitions. `partitions` are manually assigned: read regardless of the group.

    A record counts as processed once the application polls again or commits it. Until then its
    partition is not revoked, for at most max_poll_interval_ms. Auto-commit commits the records of a
    poll after the next poll, and a record of a stream after the next one was requested.
    `unsubscribe`, and an `async with` block that ends without an exception, commit all returned
    records. Keys and values are bytes unless deserializers are given. A consumer belongs to the
    event loop and the process in which it was started, and only one task at a time may poll it.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence, may also be given as
            `bootstrap_servers`; or a started `Client`, whose connections and metadata are then
            shared and not closed.
        topics: Topics to subscribe to.
        partitions: Manually assigned partitions to read.
        listener: Listener for changes of the assignment.
        config: The options as an object, without other options.
        hooks: Listeners for events; not with a `Client`.
        clock: Clock, for tests; not with a `Client`.
        dialer: Opens connections, for tests; not with a `Client`.
        **options: Options under Kafka's names; see `ConsumerConfig`.

    Attributes:
        config: The options.
        client: The client whose connections and metadata are used; shared if one was given.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        listener: RebalanceListener | None = None,
        config: ConsumerConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        # Wrapped before anything can fail: tracebacks may show local variables.
        servers, options = hide_secrets(servers), hide_secrets(options)
        chosen, client, self._owns_client = connect_with(
            servers, ConsumerConfig, config, options, hooks=hooks, clock=clock, dialer=dialer
        )
        # Checked now, so that a wrong option raises in the constructor and not in `start()`.
        _check_assignors(chosen)
        self.config = chosen
        self.client = client
        # Exists before the start, so that topics can be subscribed to and partitions assigned then.
        self._subscription = Subscription()
        name = f"Consumer {chosen.group_id or chosen.client_id}"
        self._supervisor = Supervisor(name, partial(emit_task_died, client.hooks))
        self._start_guard = StartGuard(name)
        self._runtime: ConsumerRuntime | None = None
        self._convert = converter_of(chosen)
        self._interceptors = ConsumerInterceptors.from_config(chosen)
        # Life cycle. `_closing` is the one task that closes; a handler of the consumer cannot wait
        # for it.
        self._stopped = False
        self._listeners = RebalanceListenerInvoker(
            seconds(self.config.rebalance_listener_timeout_ms)
        )
        self._started = False
        self._closing: asyncio.Task[None] | None = None
        self._stopped_by_handler = False
        if listener is not None:
            self._listeners.add(listener)
        if topics is not None:
            self._subscription.subscribe(topic_names(topics))
        if partitions is not None:
            self._subscription.assign_manually(topic_partitions(partitions))

    # -- starting and closing ---------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and start to read.

        Raises:
            BootstrapError: No bootstrap server could be used.
            RetriableError: With group_protocol="auto", the group's coordinator was not available
                for default_api_timeout_ms.
            ClientClosedError: The consumer was stopped during the start.
            IllegalStateError: The consumer was started before.
        """
        async with self._start_guard.starting():
            await self._start()

    async def _start(self) -> None:
        try:
            if self._owns_client:
                await self.client.start()
            await self._supervisor.start()
            runtime_class = await self._supervisor.offload(_load_runtime_class)
            self._runtime = await runtime_class.create(
                services_of(self.client),
                self._supervisor,
                self.config,
                self._subscription,
                self._listeners,
                self._convert,
                self._interceptors,
            )
            self._started = True
            self._runtime.start()
        # Also when cancelled: connections and tasks must not outlive a failed start.
        except BaseException:
            await self._await_closing(self._in_closing_task(self._tear_down()))
            raise

    async def stop(self, timeout: float | None = None) -> None:
        """Stop reading, commit processed records with auto-commit, leave the group and close.

        The records of the last `poll`, and the current one of an iteration, do not count as
        processed: end the `async with` block instead to commit them, or call `commit` before.

        A warning lists offsets that could not be committed in time. Without anything to commit, it
        returns within 2 s even if no broker responds. It is completed even if the caller is
        cancelled; a cancelled `stop` does not commit, and leaves the group within 1 s. Safe to call
        again. A start in progress is cancelled, and raises ClientClosedError.

        In a handler of `process` or a task of `partition_streams` it returns at once: the consumer
        closes after the handlers have returned, and `process`, or the block of `partition_streams`,
        then ends. In a task that a rebalance listener has created it also returns at once, and the
        consumer closes after the listener has returned.

        Args:
            timeout: Maximum total time in seconds (default: close_timeout_ms).

        Raises:
            KafkaError: The group rejected the automatic commit; the consumer is closed.
            IllegalStateError: A rebalance listener calls it, or the consumer was started
                in another event loop or process.
            Exception: A rebalance listener raised it, and no poll has raised it before; the
                consumer is closed.
        """
        timeout = check_timeout(timeout)
        if self._runtime is not None and self._runtime.gate.runs_listener_task:
            raise IllegalStateError(
                "stop() in a rebalance listener would wait for the listener itself: use "
                "asyncio.get_running_loop().create_task(consumer.stop())"
            )
        await self._stop(timeout, finished=False)

    async def _stop(self, timeout: float | None, *, finished: bool) -> None:
        # False: no start has begun, so there is nothing to stop.
        if not await self._start_guard.end():
            return
        runtime = self._runtime
        if runtime is None or not self._started:
            self._stopped = True
            return
        self._supervisor.check_event_loop(self._closing)
        # The first call starts to close; later ones wait for the same task.
        if self._closing is None:
            if self._stopped:
                return
            self._stopped = True
            limit = seconds(self.config.close_timeout_ms) if timeout is None else timeout
            deadlines = CloseDeadlines.of(asyncio.get_running_loop().time(), limit)
            self._closing = self._in_closing_task(
                self._stop_runtime(runtime, deadlines, finished=finished)
            )
        elif self._closing.done() and not self._stopped_by_handler:
            return
        # Closing waits for the handler or listener that calls this, so it must not wait in turn.
        if runtime.gate.runs_handler or runtime.gate.runs_listener:
            self._stopped_by_handler = True
            await asyncio.sleep(0)  # closing begins, so that no further handler does
            return
        self._stopped_by_handler = False
        await self._await_closing(self._closing, runtime.shorten_closing)

    async def _await_stop_of_handler(self) -> None:
        """Wait until the consumer is closed, if a handler has stopped it."""
        if self._stopped_by_handler:
            await self._stop(None, finished=False)

    async def _stop_runtime(
        self, runtime: ConsumerRuntime, deadlines: CloseDeadlines, *, finished: bool
    ) -> None:
        try:
            await runtime.stop(deadlines, finished=finished)
        finally:
            await self._tear_down(deadlines)

    async def _tear_down(self, deadlines: CloseDeadlines | None = None) -> None:
        self._stopped = True
        if self._runtime is not None:
            self._runtime.detach()
        try:
            await self._supervisor.stop()
        finally:
            if self._owns_client:
                left = (
                    None if deadlines is None else deadlines.end - asyncio.get_running_loop().time()
                )
                await self.client.stop(None if left is None else max(0.0, left))

    def _in_closing_task(self, closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Close in a separate task, which outlives cancellations of the caller."""
        loop = asyncio.get_running_loop()
        name = f"{self._supervisor.name} closing"
        # An empty context: listeners must not see the caller's variables.
        return loop.create_task(closing, name=name, context=contextvars.Context())

    async def _await_closing(
        self, closing: asyncio.Task[None], on_cancel: Callable[[], None] | None = None
    ) -> None:
        # The caller is cancelled only after the closing task has ended, shortened by `on_cancel`.
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
        # A shorter limit: the exception of the block should not wait for the full closing time.
        try:
            limit = min(ERROR_CLOSE_TIMEOUT, seconds(self.config.close_timeout_ms))
            await self._stop(limit, finished=False)
        except Exception as failure:  # noqa: BLE001  # the body's own exception is the one to raise
            error.add_note(f"closing the consumer failed too: {failure!r}")

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._stopped:
            self._supervisor.warn_never_stopped(self)

    # -- subscription -----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all topics whose full name matches a pattern.

        Replaces the former subscription, in the background. Manually assigned partitions stay.

        Args:
            topics: The topics.
            pattern: A regular expression, instead of `topics`. With group_protocol="consumer"
                (KIP-848) the broker matches a str, in the syntax of RE2/J, and this client matches
                a compiled one; otherwise, and with "auto", this client matches both.
            listener: Listener for changes of the assignment, added to the existing listeners.

        Raises:
            TypeError: Not exactly one of `topics` and `pattern`, or one of another type.
            ValueError: `pattern` is not a regular expression.
        """
        runtime = self._subscribing_runtime()
        if (topics is None) == (pattern is None):
            raise TypeError(
                'subscribe takes topics or pattern=, one of the two: subscribe(["orders"])'
            )
        # A compiled pattern has Python's syntax, so only the client can match it.
        on_broker = isinstance(pattern, str) and self.config.group_protocol == "consumer"
        compiled = None if pattern is None or on_broker else _compile_pattern(pattern)
        names = frozenset[str]() if topics is None else topic_names(topics)
        if listener is not None:
            self._listeners.add(listener)  # first, since it raises TypeError for other types
        broker_pattern = pattern if on_broker and isinstance(pattern, str) else ""
        self._subscription.subscribe(names, compiled, broker_pattern)
        if runtime is not None:
            runtime.on_subscription_changed()

    async def unsubscribe(self) -> None:
        """Unsubscribe from all topics, leave the group and return when that is done.

        Manually assigned partitions stay. If `subscribe` is called during this call, it replaces
        it: then this returns early, perhaps without having left the group. It does not clear the
        error of a consumer that the group rejected for good, which each poll raises until the
        consumer is closed.

        Raises:
            IllegalStateError: A rebalance listener calls it, or a handler of `process` or of a
                stream.
        """
        runtime = self._reading_runtime
        runtime.gate.check_may_wait_for_rebalance("unsubscribe")
        self._subscription.unsubscribe()
        # Leaving revokes all partitions, which waits for records in progress: this call ends them.
        runtime.mark_all_processed()
        await runtime.group.leave()
        runtime.on_assignment_changed()

    def assign(self, partitions: Partitions) -> None:
        """Set the manually assigned partitions; subscribed topics stay.

        Args:
            partitions: The partitions.
        """
        runtime = self._subscribing_runtime()
        self._subscription.assign_manually(topic_partitions(partitions))
        if runtime is not None:
            runtime.on_assignment_changed()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions assigned by the group or manually."""
        return self._subscription.assignment

    def on_assigned(self, callback: Callback) -> Callback:
        """Add a callback for newly assigned partitions.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        self._listeners.assigned.append(function(callback))
        return callback

    def on_revoked(self, callback: Callback) -> Callback:
        """Add a callback for partitions about to be revoked.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        self._listeners.revoked.append(function(callback))
        return callback

    def on_lost(self, callback: Callback) -> Callback:
        """Add a callback for lost partitions, which other members may own already.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        self._listeners.lost.append(function(callback))
        return callback

    def pause(self, partitions: Partitions = ()) -> None:
        """Return no records of these partitions until `resume`; they stay assigned.

        Args:
            partitions: The partitions (default: all assigned).
        """
        runtime = self._active_runtime
        for state in self._subscription.select(topic_partitions(partitions)):
            runtime.queue.take_back(state)
            state.pause()
        runtime.fetcher.wakeup()  # their bytes counted against other partitions

    def resume(self, partitions: Partitions = ()) -> None:
        """Undo `pause`.

        Args:
            partitions: The partitions (default: all assigned).
        """
        runtime = self._active_runtime
        for state in self._subscription.select(topic_partitions(partitions)):
            state.resume()
            if state.has_delivery:
                runtime.queue.add(state)
        runtime.fetcher.wakeup()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(state.partition for state in self._subscription if state.paused)

    # -- records ----------------------------------------------------------------------------------

    def __aiter__(self) -> RecordIterator[K, V]:
        """Return a stream of records; it ends when the consumer is stopped."""
        return self._reading_runtime.delivery.new_stream()

    async def __anext__(self) -> Record[K, V]:
        """Return the next record."""
        return await self._reading_runtime.delivery.anext_stream().__anext__()

    async def poll(
        self, *, timeout: float | None = 1.0, max_records: int | None = None
    ) -> list[Record[K, V]]:
        """Return records of any partitions once there are any, or an empty list at the timeout.

        One poll parses records for at most 2.5 ms, so it may return fewer than were fetched.

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
                raised once for all its partitions, and again only after it could be read. Other
                topics continue, and this one once the principal may read it.
            UnknownTopicOrPartitionError: A subscribed topic or a manually assigned partition has
                not existed for default_api_timeout_ms, and allow_auto_create_topics is False;
                raised once, other topics continue.
            IllegalStateError: There is nothing to read, another task polls, an `async for` is in
                progress, or a rebalance listener polls.
            ClientClosedError: The consumer is not started, or is stopped.
            AuthenticationError: The brokers reject the credentials. Positions and the membership in
                the group are kept: polls continue once the credentials are right again.
            GroupAuthorizationError: The principal may not join the group or be a member of it.
                Polls continue once it may.
            KafkaError: The group rejected this consumer, or a task of it has died. If joining
                again cannot help, as with FencedInstanceIdError, each poll raises the group's error
                until the consumer is closed.
            Exception: An exception of a rebalance listener or of an assignor.
            TypeError: An argument has another type.
            ValueError: `max_records` is less than 1, or `timeout` is negative.
        """
        timeout = check_timeout(timeout, unlimited="no limit")
        limit = self.config.max_poll_records
        if max_records is not None:
            limit = whole_number(max_records, "max_records", low=1, high=MAX_INT32)
        return await self._reading_runtime.delivery.poll(limit, timeout)

    async def poll_batches(self, *, timeout: float | None = 1.0) -> list[PartitionBatch]:
        """Return all fetched batches by partition, for Arrow or to parse elsewhere.

        Waits like `poll` and raises the same errors except RecordDeserializationError:
        deserializers are not used.

        Args:
            timeout: Maximum time in seconds (None: no limit).
        """
        timeout = check_timeout(timeout, unlimited="no limit")
        return await self._reading_runtime.delivery.poll_batches(timeout)

    async def process(
        self,
        handler: Callable[[Record[K, V]], Awaitable[object]],
        *,
        concurrency: int,
        ordering: Literal["key", "partition", "none"] = "key",
        max_bytes: int = 64 * MIB,
        drain_timeout: float = 10.0,
        handler_timeout: float | None = None,
        on_undecodable: OnUndecodable = "raise",
    ) -> None:
        """Call a handler for each record, several at a time, until the consumer is stopped.

        Commits never pass a record whose handler has not returned: auto-commit and `commit()`
        commit the offset of the first such record of each partition. So a record whose handler was
        interrupted is read again, together with later ones that were handled.

        Before partitions are revoked and before the consumer stops, no further handler of them
        begins, and running ones have `drain_timeout`; then they are cancelled. If partitions are
        lost, their handlers are cancelled at once. If a handler raises, the others are cancelled
        and `process` raises the exception; it can be called again and continues at the first record
        that was not done. An error of a poll, such as RecordDeserializationError, is raised after
        the records polled before it are done, so that a `seek` past it loses none. Records that
        were polled before a `seek` are still handled, and commits do not pass them until then.

        If this call is cancelled, its handlers are cancelled at once. If a signal has stopped the
        program (`kafka_async.run`), running ones have `drain_timeout` to end first, at most half of
        close_timeout_ms, and auto-commit commits what is done.

        Args:
            handler: An `async def` function, called with a record.
            concurrency: Maximum number of handlers at a time. Polls stop while 100 times as many
                records are not done.
            ordering: "key": records of a partition with the same key bytes are handled one after
                another, in the order of their offsets, and those without a key in no order;
                another, in the order of their offsets, and records without a key in no order;
            max_bytes: Bytes of keys and values (bytes or text) of records that are not done, from
                which on no more are polled.
            drain_timeout: Maximum time in seconds for running handlers, see above; at most half of
                the time that `stop` has.
            handler_timeout: Maximum time in seconds for a handler; then it is cancelled and
                `process` raises KafkaTimeoutError (None: no limit).
            on_undecodable: Reaction to a record that a deserializer fails on. "raise": raise
                RecordDeserializationError once all records before it are done; "skip": log a
                warning, count it in `statistics()` and continue; or an `async def` function, which
                is called like the handler, in the same order, with the RecordDeserializationError:
                its attribute `record` is the raw record.

        Raises:
            IllegalStateError: `process`, a poll or an `async for` of this consumer is in progress.
            RecordDeserializationError: A record cannot be deserialized, see `on_undecodable`; the
                next call begins with it.
            KafkaTimeoutError: A handler took longer than `handler_timeout`; the error has the
                record's topic, partition and offset.
            Exception: The exception of a handler, or an error that a poll raises.
            RuntimeError: A handler raised CancelledError although it was not cancelled: a task that
                it awaits was.
            ValueError: `concurrency` or `max_bytes` is less than 1, `drain_timeout` or
                `handler_timeout` is negative, or `ordering` or `on_undecodable` is unknown.
        """
        if ordering not in ("key", "partition", "none"):
            raise ValueError(f'ordering must be "key", "partition" or "none", not {ordering!r:.60}')
        drain_timeout = check_duration(drain_timeout, "drain_timeout")
        handler_timeout = check_timeout(handler_timeout, "handler_timeout", unlimited="no limit")
        await self._reading_runtime.process(
            function(handler, "handler"),
            ordering,
            concurrency=whole_number(concurrency, "concurrency", low=1, high=MAX_INT32),
            max_bytes=whole_number(max_bytes, "max_bytes", low=1),
            drain_timeout=drain_timeout,
            handler_timeout=handler_timeout,
            on_undecodable=_checked_on_undecodable(on_undecodable),
        )
        await self._await_stop_of_handler()

    def partition_streams(
        self, *, drain_timeout: float = 10.0, on_undecodable: OnUndecodable = "raise"
    ) -> AbstractAsyncContextManager[PartitionStreams[K, V]]:
        """Return a block with a stream of records and a group of tasks for each partition.

            async with consumer.partition_streams() as streams:
                async for stream in streams:
                    stream.start_soon(handle, stream)

        A stream comes with each partition as soon as that is assigned, and iterates over its
        records. Tasks begun with `stream.start_soon` belong to the partition. An `async for` over a
        stream directly in the loop over the streams delays all other streams; a warning is logged
        then. A partition whose stream has 1,000 records or 1 MiB waiting is not fetched until half
        of them were taken; the others continue. `pause` and `seek` apply to streams, but records
        that are already in a stream are returned after `pause`.

        Commits never pass a record that is not done: auto-commit, `commit()` and `stream.commit()`
        commit the offset of the first such record. A record is done once the task that received it
        requests the next one, calls `stream.commit()`, or returns.

        Before a partition is revoked, and before the consumer stops, its stream ends, and its tasks
        have `drain_timeout` to end too; then they are cancelled. If a partition is lost, its tasks
        are cancelled at once. Iteration over the streams ends when the consumer is stopped. When
        the block ends, so do all streams and tasks; after an exception or a cancellation the tasks
        are cancelled at once. An exception of a task or of a poll cancels the block and is raised
        from it. The consumer then continues at the first record of each partition that was not
        done. An error of a partition, such as RecordDeserializationError, ends all streams, without
        an exception in their tasks, once the records of the partition before it are done; the block
        raises it when the tasks have ended.

        If a signal has stopped the program (`kafka_async.run`), tasks have `drain_timeout` to end,
        at most half of close_timeout_ms, and auto-commit commits what is done.

        Args:
            drain_timeout: Maximum time in seconds for tasks to end, see above; at most half of the
                time that `stop` has.
            on_undecodable: Reaction to a record that a deserializer fails on: "raise", see above;
                "skip": log a warning, count it in `statistics()` and continue; or an `async def`
                function, which the stream awaits in place of returning the record, with the
                RecordDeserializationError: its attribute `record` is the raw record.

        Raises:
            IllegalStateError: `process`, a poll or an `async for` of this consumer is in progress.
            Exception: The exception of a task, or an error that a poll raises.
            RuntimeError: A task raised CancelledError although it was not cancelled.
            ValueError: `drain_timeout` is negative, or `on_undecodable` is unknown.
        """
        drain_timeout = check_duration(drain_timeout, "drain_timeout")
        _checked_on_undecodable(on_undecodable)
        return self._partition_streams(self._reading_runtime, drain_timeout, on_undecodable)

    @asynccontextmanager
    async def _partition_streams(
        self, runtime: ConsumerRuntime, drain_timeout: float, on_undecodable: OnUndecodable
    ) -> AsyncGenerator[PartitionStreams[K, V]]:
        async with runtime.partition_streams(drain_timeout, on_undecodable, self.commit) as streams:
            yield streams
        await self._await_stop_of_handler()

    # -- positions ---------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position of a partition; its returned records no longer count as unprocessed.

        Args:
            partition: The partition.
            offset: Offset of the next record to return.

        Raises:
            IllegalStateError: The partition is not assigned: seek in a callback of `on_assigned`,
                or once `assignment()` contains it. Another member of the group may have it.
        """
        partition = topic_partition(partition)
        target = offset_and_metadata(offset, "offset")
        runtime = self._active_runtime
        self._seek(runtime, partition, target.offset, target.leader_epoch)
        runtime.on_partitions_changed()

    def _seek(
        self,
        runtime: ConsumerRuntime,
        partition: TopicPartition,
        offset: int,
        epoch: int | None = None,
    ) -> None:
        """Set a position; the caller notifies the runtime once for all partitions."""
        state = self._subscription.state(partition)
        runtime.queue.take_back(state)
        state.seek(offset, UNKNOWN if epoch is None else epoch)

    async def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Seek to the first record.

        Args:
            partitions: The partitions (default: all assigned).
        """
        await self._seek_by_time(dict.fromkeys(self._chosen(partitions), EARLIEST), None)

    async def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Seek to the offset after the last record.

        Args:
            partitions: The partitions (default: all assigned).
        """
        await self._seek_by_time(dict.fromkeys(self._chosen(partitions), LATEST), None)

    async def seek_to_time(
        self,
        when: float | datetime | Mapping[TopicPartition, float | datetime],
        partitions: Partitions = (),
        *,
        timeout: float | None = None,
    ) -> None:
        """Seek to the first record not older than a time, or to the end if there is none.

        Args:
            when: Seconds since the epoch, or a datetime; or one for each partition.
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        if isinstance(when, Mapping):
            times = by_partition(when, "when", milliseconds)
        else:
            times = dict.fromkeys(self._chosen(partitions), milliseconds(when))
        await self._seek_by_time(times, timeout)

    async def _seek_by_time(
        self, times: Mapping[TopicPartition, int], timeout: float | None
    ) -> None:
        runtime = self._active_runtime
        # Raises for a partition that is not assigned, before any request is sent.
        for partition in times:
            self._subscription.state(partition)
        found = await runtime.offset_lookup.find_offsets(times, self._limit(timeout))
        # No record is as recent as the time.
        beyond = [partition for partition, target in found.items() if target.offset < 0]
        if beyond:
            found |= await runtime.offset_lookup.find_offsets(
                dict.fromkeys(beyond, LATEST), self._limit(timeout)
            )
        # After all lookups, so that an error leaves every position as it was.
        for partition, target in found.items():
            self._seek(runtime, partition, target.offset)
        runtime.on_partitions_changed()

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record to return, after waiting until it is known.

        Args:
            partition: The partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            KafkaTimeoutError: The position was not found in time.
        """
        runtime = self._active_runtime
        state = self._subscription.state(topic_partition(partition))
        if state.position == UNKNOWN and runtime.gate.listener_running:
            self._subscription.start_fetching([state.partition])  # on_assigned waits for this call
            runtime.position_finder.wakeup()
        try:
            async with asyncio.timeout(self._limit(timeout)):
                while state.position == UNKNOWN:
                    failure = state.error or self._subscription.denial_error(state.partition.topic)
                    if failure is not None:
                        raise failure
                    # The partition may have been revoked during the wait.
                    self._subscription.state(partition)
                    runtime.check()
                    await runtime.position_finder.position_found.wait()
        except TimeoutError as error:
            # Not this call's timeout: an error of the lookup.
            if isinstance(error, KafkaTimeoutError):
                raise
            raise KafkaTimeoutError(f"the position of {partition} is not known yet") from None
        return state.position

    async def rewind(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Rewind partitions of the running group, including those that other members own.

        Each owner finishes the records that it has returned, commits the offset, seeks to it and
        reports it; the other partitions continue. If the log does not have an offset, the nearest
        one is used. Partitions of this member are rewound at once, as with `seek`, unless another
        task or handlers process records.

        If other members own partitions, all members must be consumers of this package. In the
        classic protocol they rebalance; in the consumer protocol (KIP-848) they do not, and all
        need rewind_check_interval_ms.

        Args:
            offsets: Offset of the next record to read, by partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms). If other members own
                partitions and this one has returned records, the application must continue to poll
                in another task. Use this argument in place of `asyncio.wait_for`, which calls from
                another task on Python 3.11.

        Returns:
            The offsets that were committed.

        Raises:
            IllegalStateError: The consumer has no group or no subscription, a member is of another
                client or has no rewind_check_interval_ms, no member subscribes to a partition, an
                owner could not commit, or a rebalance listener, or a handler of `process` or of a
                stream, calls.
            KafkaTimeoutError: Not all owners have reported in time; they may still rewind.
            ClientClosedError: The consumer was closed during the call; owners may still rewind.
        """
        wanted = by_partition(offsets, "offsets", offset_and_metadata)
        found = {partition: row.offset for partition, row in wanted.items()}
        return (
            await self._reading_runtime.group.rewind(found, self._limit(timeout)) if found else {}
        )

    async def beginning_offsets(
        self, partitions: Partitions, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        Args:
            partitions: The partitions.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return await self._offsets_at(EARLIEST, partitions, timeout)

    async def end_offsets(
        self, partitions: Partitions, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record that isolation_level lets this consumer read.

        Args:
            partitions: The partitions.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return await self._offsets_at(LATEST, partitions, timeout)

    async def _offsets_at(
        self, end: int, partitions: Partitions, timeout: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(topic_partitions(partitions), end)
        found = await self._active_runtime.offset_lookup.find_offsets(wanted, self._limit(timeout))
        return {partition: target.offset for partition, target in found.items()}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, float | datetime], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset and time of the first record not older than a time, or None.

        Args:
            times: Seconds since the epoch, or a datetime, by partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        wanted = by_partition(times, "times", milliseconds)
        found = await self._active_runtime.offset_lookup.find_offsets(wanted, self._limit(timeout))
        return {partition: _offset_and_timestamp(target) for partition, target in found.items()}

    # -- committed offsets -------------------------------------------------------------------------

    async def commit(
        self, what: str | TopicPartition | Offsets | None = None, *, timeout: float | None = None
    ) -> None:
        """Commit the positions, which include the records returned last.

        A commit that the coordinator rejects because of a rebalance is retried after the rebalance.
        Offsets of deleted topics are dropped with a warning in the log. Partitions whose offset
        another member commits are left out (`RedundantAssignor`), as are partitions that are
        manually assigned while the consumer subscribes to topics: they are not the group's.

        Handlers of `process`, tasks of `partition_streams` and `on_revoked` may also commit while
        `stop` waits for them, and make the other calls that do not request further records.

        Args:
            what: A topic or a partition to commit alone, or the offsets to commit: the offset of
                the next record to read, by partition (default: all partitions).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            TypeError: `what` is something else, such as a record.
            UnknownTopicOrPartitionError: `what` has an offset of a topic that does not exist.
            CommitFailedError: The group has assigned a partition to another member.
            IllegalStateError: `what` contains a partition that is left out otherwise, or a topic
                that is neither assigned nor subscribed to.
            RebalanceInProgressError: A rebalance has not ended in time. Raised at once while this
                member revokes, loses or takes over partitions, as in a listener's callback.
            KafkaTimeoutError: Not committed in time.
            ClientClosedError: The consumer is not started, or is stopped.
        """
        group = self._active_runtime.group
        offsets = self._to_commit(what)
        # An automatic commit in the meantime must not commit less.
        self._subscription.begin_commit(offsets)
        await group.commit(offsets, self._limit(timeout), named=isinstance(what, Mapping))

    def _to_commit(
        self, what: str | TopicPartition | Offsets | None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if isinstance(what, Mapping):
            offsets = by_partition(what, "what", offset_and_metadata)
            self._check_commits(offsets)
            return offsets
        due = self._subscription.to_commit(include_unprocessed=True)
        if what is None:
            return due
        if not isinstance(what, str):
            if not isinstance(cast("object", what), tuple) or len(what) != 2:
                raise TypeError(
                    "what must be a topic, a partition, or a dict of the next offsets to read by "
                    f"partition, not {type(what).__name__}: to commit up to a record, write "
                    "commit({TopicPartition(record.topic, record.partition): record.offset + 1})"
                )
            what = topic_partition(what, "what")
            self._subscription.state(what)
            self._check_commits([what])
            return {what: due[what]} if what in due else {}
        if not self._subscription.may_have(what):
            raise IllegalStateError(
                f"no partition of the topic {what!r:.260} is assigned to this consumer, which does "
                "not subscribe to it either: check the name, or commit offsets by partition"
            )
        return {partition: offset for partition, offset in due.items() if partition.topic == what}

    def _check_commits(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = [p for p in partitions if p in self._subscription.states]
        # Partitions that are not assigned may be committed: the group may have no members.
        others = [p for p in assigned if not self._subscription.commits(p)]
        if others and self._subscription.is_outside_group(others[0]):
            raise IllegalStateError(
                f"{others[0]} is manually assigned and not part of the subscription, so the group "
                "has no offset for it; commit() without arguments leaves such partitions out"
            )
        if others:
            raise IllegalStateError(
                f"{others[0]} is assigned to several members, and another one commits its offset; "
                "commit() without arguments leaves such partitions out"
            )

    async def committed(
        self, partitions: Partitions = (), *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, None for partitions without one.

        Args:
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: A topic does not exist.
            KafkaTimeoutError: No response in time.
        """
        group = self._active_runtime.group
        return await group.fetch_committed(self._chosen(partitions), self._limit(timeout))

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group (KIP-447).

        Raises:
            IllegalStateError: The consumer has no group_id.
        """
        return self._active_runtime.transaction_offsets.group_metadata()

    async def seek_to_committed(
        self, partitions: Partitions = (), *, timeout: float | None = None
    ) -> None:
        """Seek to the committed offsets, as after an aborted transaction.

        A partition without a committed offset follows auto_offset_reset or, if it is new,
        auto_offset_reset_new_partitions. Partitions that are manually assigned while the consumer
        subscribes to topics stay where they are. A `seek` of another task during this call is
        undone.

        Args:
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            KafkaTimeoutError: No response in time.
        """
        runtime = self._active_runtime
        states = {
            state.partition: state
            for state in self._subscription.select(topic_partitions(partitions))
            if not self._subscription.is_outside_group(state.partition)
        }
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limit(timeout)
        # Repeated for partitions whose position or leader has changed during the request.
        while states:
            versions = {partition: state.version for partition, state in states.items()}
            left = max(0.0, deadline - loop.time())
            found = await runtime.group.fetch_committed(versions, left)
            newer = await runtime.position_finder.partitions_newer_than_group(found)
            for partition, offset in found.items():
                state = states[partition]
                if self._subscription.states.get(partition) is not state:
                    del states[partition]  # revoked
                elif state.version == versions[partition]:
                    runtime.queue.take_back(state)
                    runtime.position_finder.start_at(state, offset, newer=partition in newer)
                    del states[partition]
                # Otherwise its leader or position has changed, so the offset may be old.
        # The transaction that had lost records is over; the next one starts at what is committed.
        self._subscription.lost_uncommitted.clear()
        runtime.on_partitions_changed()

    # -- topics, statistics and health ------------------------------------------------------------

    async def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all topics except internal ones.

        Args:
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        self._active_runtime.check()
        metadata = await services_of(self.client).metadata.refresh(
            all_topics=True, timeout=self._limit(timeout)
        )
        return frozenset(n for n, topic in metadata.topics.items() if not topic.is_internal)

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> list[int]:
        """Return the numbers of a topic's partitions. It never creates the topic.

        Args:
            topic: Name of the topic.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: A broker responded that the topic does not exist.
            KafkaTimeoutError: No broker responded in time.
        """
        self._active_runtime.check()
        text(topic, "topic")
        metadata = await services_of(self.client).metadata.wait_for_topics(
            [topic], timeout=self._limit(timeout), retry_unknown=False
        )
        return list(range(metadata.partitions(topic) or 0))

    @readable_in_any_thread
    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot of the statistics since `start`.

        This may be called in any thread at any time: before `start` all counts are 0, and after
        `stop` they are the last ones.
        """
        return ConsumerStatistics() if self._runtime is None else self._runtime.statistics()

    def explain(self) -> AssignmentExplanation:
        """Explain the group's current assignment: the partitions of each member, and the reasons.

        Only the group leader has the assignment of all members; other members have their own.

        Returns:
            The generation, the assignor, the reason of the rebalance and the members, with a reason
            for each partition; without members before the first assignment.

        Raises:
            IllegalStateError: The consumer has no group_id.
        """
        return self._active_runtime.group.explain()

    @readable_in_any_thread
    def health(self) -> Health:
        """Return a snapshot of the consumer's condition; sends no request.

        This may be called in any thread at any time, also before `start` and after `stop`. The
        state is "failed" once a task has died or the group has rejected this member for good, and
        "degraded" while no broker is both connected and responding. Brokers are counted by the
        client, which may be shared; `in_flight` counts the consumer's own requests.
        """
        health = replace(self.client.health(), in_flight=0, state=self._state())
        return health if self._runtime is None else self._runtime.health(health)

    def _state(self) -> str:
        if self._stopped:
            return "stopping" if self._supervisor.hosting else "closed"
        if not self._started:
            return "starting" if self._start_guard.begun else "new"
        if self._runtime is not None and self._runtime.failed:
            return "failed"
        return self.client.health().state

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record that all in-sync replicas have; no request.

        It is as of the last fetch response, or None before the first one of this partition.

        Args:
            partition: The partition.

        Raises:
            IllegalStateError: The partition is not assigned to this consumer.
        """
        return _none_if_unknown(self._subscription.state(topic_partition(partition)).high_watermark)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset below which no transaction is open; sends no request (KIP-98).

        Records below it are what `isolation_level="read_committed"` lets a consumer read. It is as
        of the last fetch response, or None before the first one of this partition.

        Args:
            partition: The partition.

        Raises:
            IllegalStateError: The partition is not assigned to this consumer.
        """
        return _none_if_unknown(
            self._subscription.state(topic_partition(partition)).last_stable_offset
        )

    def __offset_source__(self) -> OffsetSource:
        """Return the offsets and group metadata that a transaction needs (KIP-447)."""
        return self._active_runtime.transaction_offsets

    # -- helpers -----------------------------------------------------------------------------------

    @property
    def _active_runtime(self) -> ConsumerRuntime:
        """Runtime of a consumer that is started and owns its partitions, or ClientClosedError.

        While `stop` waits for handlers and listeners, calls work as before it.
        """
        runtime = self._runtime
        if runtime is None or not self._started:
            if self._stopped:
                raise ClientClosedError(f"{self._supervisor.name} is closed")
            raise not_started_error(self._supervisor.name)
        if runtime.drained and not runtime.gate.listener_running:
            raise ClientClosedError(
                f"{self._supervisor.name} is closed: commit, and call it otherwise, before stop(), "
                "in on_revoked, or in a handler of process() or a task of partition_streams() "
                "before it returns; stop() waits for handlers and tasks, for drain_timeout and "
                "half of its timeout at most"
            )
        runtime.check()
        return runtime

    @property
    def _reading_runtime(self) -> ConsumerRuntime:
        """Runtime of a consumer that may read; raises ClientClosedError once it is stopped."""
        if self._stopped:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        return self._active_runtime

    def _subscribing_runtime(self) -> ConsumerRuntime | None:
        """Return the runtime that a change of the subscription concerns; None before the start."""
        return self._reading_runtime if self._started or self._stopped else None

    def _limit(self, timeout: float | None) -> float:
        timeout = check_timeout(timeout, unlimited="default_api_timeout_ms")
        return seconds(self.config.default_api_timeout_ms) if timeout is None else timeout

    def _chosen(self, partitions: Partitions) -> list[TopicPartition]:
        return topic_partitions(partitions) or list(self._subscription.assignment)


def partitions_outside_group(consumer: Consumer[Any, Any]) -> frozenset[TopicPartition]:
    """Return the partitions that are manually assigned in addition to a subscription."""
    subscription = consumer._subscription  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return frozenset(p for p in subscription.manual if subscription.is_outside_group(p))


def _checked_on_undecodable(value: OnUndecodable) -> OnUndecodable:
    if callable(value) or value in ("raise", "skip"):
        return value
    raise ValueError(
        f'on_undecodable must be "raise", "skip" or an `async def` function, not {value!r:.60}'
    )


def _none_if_unknown(offset: int) -> int | None:
    return None if offset < 0 else offset


def _offset_and_timestamp(found: ListedOffset) -> OffsetAndTimestamp | None:
    if found.offset < 0:
        return None
    return OffsetAndTimestamp(
        found.offset, found.timestamp, None if found.epoch < 0 else found.epoch
    )


def _load_runtime_class() -> type[ConsumerRuntime]:
    """Import the runtime; in a thread, because it would block the event loop."""
    from kafka_async.consumer.runtime import ConsumerRuntime
    from kafka_async.records.compression import Codec, compress

    # The first use of each codec imports its library.
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
