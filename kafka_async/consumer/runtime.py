"""The parts of a started consumer and their connections.

    positions ──▶ subscription ◀── rebalance handler ◀── group membership
        │              │                   │
        ▼              ▼                   ▼
    fetcher ──▶ fetch buffers ──▶ delivery gate ──▶ poll, async for, poll_batches

All parts share the subscription. `on_partitions_changed` is called by the consumer's methods and by
the rebalance handler when they have added, removed or sought partitions.
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
from kafka_async.consumer.delivery_gate import DeliveryGate
from kafka_async.consumer.fetch_buffer import MAX_DECOMPRESSED_BYTES_PER_POLL
from kafka_async.consumer.fetcher import Fetcher
from kafka_async.consumer.list_offsets import OffsetLookup
from kafka_async.consumer.missing_topics import MissingTopics, find_missing, find_unauthorized
from kafka_async.consumer.offset_committer import OffsetCommitter
from kafka_async.consumer.partition_batch import PartitionBatch
from kafka_async.consumer.positions import Positions
from kafka_async.consumer.rebalance_handler import ConsumerRebalanceHandler
from kafka_async.consumer.stream import MAX_LOOP_SECONDS, StreamCursor
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    KafkaError,
    RecordDeserializationError,
    RetriableError,
)
from kafka_async.group.member import GroupSettings
from kafka_async.group.membership import GroupMembership

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping

    from kafka_async.cluster.client import Client
    from kafka_async.cluster.metadata import ClusterMetadata
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.close_deadlines import CloseDeadlines
    from kafka_async.consumer.deserialize import Convert
    from kafka_async.consumer.fetch_buffer import AnyRecord
    from kafka_async.consumer.rebalance_listener import RebalanceListenerInvoker
    from kafka_async.consumer.subscription import PartitionState, Subscription
    from kafka_async.kernel import RecordIterator
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import Health, OffsetAndMetadata, TopicPartition

T = TypeVar("T")
MAX_PARSE_SECONDS: Final = MAX_LOOP_SECONDS / 2
"""Seconds for which one poll may parse records; the application has the rest."""
MAX_OFFSETS_IN_LOG: Final = 10
"""Maximum offsets in a log message."""
logger = logging.getLogger("kafka_async.consumer")


class ConsumerRuntime:
    """Connects the parts of a started consumer."""

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        listeners: RebalanceListenerInvoker,
        convert: Convert | None,
    ) -> None:
        self.subscription = subscription
        self.listeners = listeners
        self._client = client
        self._supervisor = supervisor
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._convert = convert
        self._yield_at = 0.0
        self._closing = False
        self._close_deadlines: CloseDeadlines | None = None
        self._current_step: tuple[asyncio.Timeout, Callable[[], float]] | None = None
        self._revoke_commit: asyncio.Timeout | None = None
        self._checking_deleted = False
        self._raised_error: Exception | None = None
        self._tracked_topics = frozenset[str]()
        self._cursor = StreamCursor(self, self._convert)
        self._active_stream: weakref.ref[RecordIterator[Any, Any]] | None = None
        self._anext_stream: RecordIterator[Any, Any] | None = None
        self._missing_topics = MissingTopics(
            creates=config.allow_auto_create_topics,
            limit=seconds(config.default_api_timeout_ms),
        )
        self._missing_timer: asyncio.TimerHandle | None = None
        self._missing_error: KafkaError | None = None
        self.gate = DeliveryGate(
            self._has_unprocessed, self._current_record, seconds(config.max_poll_interval_ms)
        )
        self.gate.on_hold = self.take_back
        self.offset_lookup = OffsetLookup(client, config)
        self.fetcher = Fetcher(client, supervisor, config, subscription, self.gate)
        self.membership: GroupMembership | None = None
        self.offset_committer: OffsetCommitter | None = None
        self._rebalance_handler: ConsumerRebalanceHandler | None = None
        if config.group_id is not None:
            self._rebalance_handler = ConsumerRebalanceHandler(
                client,
                config,
                subscription,
                self.gate,
                listeners,
                self._commit_before_revoke,
                self.on_partitions_changed,
            )
            self.membership = GroupMembership(
                client, supervisor, GroupSettings.of(config), self._rebalance_handler
            )
            self.membership.on_fatal_error = self.gate.data_ready.set
            self.offset_committer = OffsetCommitter(
                client, config, self.membership, self.on_committed
            )
        self.positions = Positions(
            client,
            supervisor,
            config,
            subscription,
            self.fetcher,
            self.offset_lookup,
            self.offset_committer,
        )
        self.fetcher.on_position_needed = self.positions.wakeup

    # -- starting and closing ---------------------------------------------------------------------

    def start(self) -> None:
        """Start the tasks."""

        def on_failure(_: KafkaError) -> None:
            self.gate.data_ready.set()
            self.positions.position_found.notify_all()

        self._supervisor.on_failure(on_failure)
        self._unregister = [
            self._client.supervisor.on_failure(on_failure),
            self._client.on_metadata(self._on_metadata),
        ]
        self._supervisor.spawn(self.positions.run, name="positions")
        if self.membership is not None:
            self.membership.start()
            if self._config.enable_auto_commit:
                self._supervisor.spawn(self._auto_commit, name="auto-commit")
        self.on_subscription_changed()

    async def stop(self, deadlines: CloseDeadlines, *, finished: bool) -> None:
        """Commit, if auto-commit is enabled, and leave the group.

        Offsets that could not be committed in time are logged.

        Args:
            deadlines: Deadlines of the steps.
            finished: Whether the application has processed the returned records.

        Raises:
            KafkaError: The group rejected the commit.
        """
        self._close_deadlines = deadlines
        self._closing = True
        if finished:
            self.mark_all_processed()
        self.take_back()
        self.gate.close()
        if self._revoke_commit is not None:
            self._revoke_commit.reschedule(deadlines.commit_by)
        if self._supervisor.failure is not None or self._client.supervisor.failure is not None:
            return
        failure: KafkaError | None = None
        if self._config.enable_auto_commit and self.offset_committer is not None:
            failure = await self._commit_on_close(deadlines)
        if self.membership is not None:
            await self._leave_group(self.membership, deadlines)
        if failure is not None:
            raise failure

    def shorten_closing(self) -> None:
        """Leave the group without the commit in progress: the caller was cancelled."""
        deadlines, now = self._close_deadlines, self._loop.time()
        if deadlines is None:
            return
        deadlines.shorten(now)
        if self._current_step is not None:
            step, deadline = self._current_step
            step.reschedule(max(now, deadline()))

    def close(self) -> None:
        """Detach from the client."""
        self._closing = True
        self.gate.close()
        for unregister in self._unregister:
            unregister()
        self._client.untrack_topics(self._tracked_topics)
        if self._missing_timer is not None:
            self._missing_timer.cancel()

    def health(self, base: Health) -> Health:
        """Add this consumer's condition to its client's health."""
        self.update_positions()
        now = self._loop.time()
        member = self.membership
        errors: list[BaseException | None] = [
            self._supervisor.failure,
            None if member is None else member.error,
            *(state.error for state in self.subscription),
            self._missing_topics.error,
        ]
        error = next((each for each in errors if each is not None), None)
        return replace(
            base,
            in_flight=self.fetcher.in_flight + (0 if member is None else member.in_flight),
            buffered_bytes=self.fetcher.buffered,
            assignment=tuple(sorted(self.subscription.assignment)),
            lag=self.fetcher.lags(),
            last_poll_s=_age(self.gate.polled_at(), now),
            last_heartbeat_s=None if member is None else _age(member.heartbeat_at, now),
            last_error=base.last_error if error is None else f"{type(error).__name__}: {error}",
        )

    @property
    def failed(self) -> bool:
        """True once a task has died, or the group has rejected this member for good."""
        refused = self.membership is not None and self.membership.failed_permanently
        return refused or self._supervisor.failure is not None

    def check(self) -> None:
        """Raise an error if a task has died, or if this is another event loop or process."""
        self._supervisor.check()
        self._client.supervisor.check()

    async def _commit_on_close(self, deadlines: CloseDeadlines) -> KafkaError | None:
        """Commit and log what was not committed; return an error that a retry cannot resolve."""
        error: Exception | None = None
        try:
            async with self._closing_timeout(lambda: deadlines.commit_by):
                left = max(0.001, deadlines.commit_by - self._loop.time())
                due = self.subscription.to_commit(include_unprocessed=False)
                await self._commit(due, wait_for_rebalance=False, timeout=left)
        except TimeoutError as timeout:
            error = timeout
        except KafkaError as failure:
            error = failure
        due = self.subscription.to_commit(include_unprocessed=False)
        if error is None or not due:
            return None
        shown = ", ".join(
            f"{p}: {row.offset}" for p, row in islice(due.items(), MAX_OFFSETS_IN_LOG)
        )
        logger.warning(
            "%s was closed, and offsets of %d partitions were not committed (%s): %s%s; the "
            "records before them will be read again",
            self._supervisor.name,
            len(due),
            str(error) or "no response in time",
            shown,
            ", ..." if len(due) > MAX_OFFSETS_IN_LOG else "",
        )
        if isinstance(error, KafkaError) and not isinstance(error, RetriableError):
            return error
        return None

    async def _leave_group(self, membership: GroupMembership, deadlines: CloseDeadlines) -> None:
        try:
            async with self._closing_timeout(lambda: deadlines.leave_by):
                await membership.leave(close=True, deadline=deadlines.leave_by)
        except TimeoutError:
            logger.warning(
                "%s was closed, but did not leave its group in order: it was %s",
                self._supervisor.name,
                membership.state.value,
            )

    @contextlib.asynccontextmanager
    async def _closing_timeout(self, deadline: Callable[[], float]) -> AsyncGenerator[None]:
        """Limit a step of closing; `shorten_closing` may bring its deadline forward."""
        try:
            async with asyncio.timeout_at(deadline()) as step:
                self._current_step = step, deadline
                yield
        finally:
            self._current_step = None

    # -- subscription -----------------------------------------------------------------------------

    def on_subscription_changed(self) -> None:
        """Join the group or follow the pattern: the subscribed topics have changed."""
        topics = self.subscription.topics
        if topics and self.membership is not None:
            self.membership.join("the consumer subscribes")
        if topics:
            self._supervisor.spawn(self._make_known, topics, name="topics")
        if self.subscription.pattern is not None:
            self._supervisor.spawn(self._follow_pattern, self.subscription.pattern, name="pattern")
        self.on_partitions_changed()
        self._on_metadata(self._client.metadata)

    def on_assignment_changed(self) -> None:
        """Apply a change of the assigned partitions."""
        self.take_back()
        self.on_partitions_changed()
        self._on_metadata(self._client.metadata)
        self.gate.data_ready.set()  # a waiting poll may have nothing to read any more

    def on_partitions_changed(self) -> None:
        """Apply that partitions were added, removed or sought."""
        wanted = frozenset(p.topic for p in self.subscription.states) | self.subscription.topics
        self._client.track_topics(wanted - self._tracked_topics)
        self._client.untrack_topics(self._tracked_topics - wanted)
        self._tracked_topics = wanted
        self.gate.on_processed()
        self.positions.wakeup()
        self.fetcher.wakeup()

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        if self._closing:
            return
        subscription = self.subscription
        subscription.record_partition_counts(metadata)
        if self.membership is None:
            if subscription.own_all_partitions(
                {t: metadata.partitions(t) for t in subscription.topics}
            ):
                self.take_back()
                self.on_partitions_changed()
        elif self._rebalance_handler is not None:
            reason = self._rebalance_handler.rebalance_reason(metadata)
            if reason is not None:
                self.membership.rejoin(reason)
            elif not self._checking_deleted and (
                unknown := self._rebalance_handler.missing_topics(metadata)
            ):
                self._checking_deleted = True
                self._supervisor.spawn(self._check_deleted, unknown, name="deleted topics")
        self.fetcher.on_metadata(metadata)
        self._check_missing()

    def _check_missing(self) -> None:
        """Warn of topics and partitions that do not exist, and set a timer for the next check."""
        if self._missing_timer is not None:
            self._missing_timer.cancel()
            self._missing_timer = None
        if self._closing:
            return
        subscription = self.subscription
        now = self._loop.time()
        missing = find_missing(subscription.topics, subscription.static, self._client.metadata)
        for warning in self._missing_topics.update(missing, now):
            logger.warning("%s: %s", self._supervisor.name, warning)
            self._client.request_metadata_update()
        read = subscription.topics | {partition.topic for partition in subscription.static}
        errors = find_unauthorized(read, self._client.metadata)
        pending = self._missing_error if missing or errors else None
        self._missing_error = (
            self._missing_topics.new_authorization_error(errors)
            or self._missing_topics.overdue_error(now)
            or pending
        )
        if self._missing_error is not None:
            self.gate.data_ready.set()
        check_at = self._missing_topics.next_check_at()
        if check_at is not None:
            self._missing_timer = self._loop.call_at(check_at, self._check_missing)

    async def _check_deleted(self, topics: frozenset[str]) -> None:
        """Rejoin as the leader once it is certain that topics of the group were deleted."""
        assert self.membership is not None
        assert self._rebalance_handler is not None
        deadline = self._loop.time() + seconds(self._config.request_timeout_ms)
        try:
            deleted = await deleted_topics(self._client, topics, deadline)
            missing = deleted & self._rebalance_handler.missing_topics(self._client.metadata)
            if missing:
                self.membership.rejoin(f"topics were deleted: {', '.join(sorted(missing))}")
        except KafkaError as error:  # the next metadata response starts the check again
            logger.debug("checking whether topics were deleted: %s", error)
        finally:
            self._checking_deleted = False

    async def _make_known(self, topics: frozenset[str]) -> None:
        """Fetch the metadata of the subscribed topics.

        The brokers create missing topics if allow_auto_create_topics is True.
        """
        timeout = seconds(self._config.default_api_timeout_ms)
        create = self._config.allow_auto_create_topics
        try:
            await self._client.metadata_for(topics, timeout=timeout, allow_auto_create=create)
        except KafkaError as error:  # `_check_missing` warns of topics that do not exist
            logger.debug("looking for the topics subscribed to: %s", error)

    async def _follow_pattern(self, pattern: object) -> None:
        """Subscribe to the topics that match the pattern, and check for new ones regularly."""
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
            if self.membership is not None:
                self.membership.join("the topics that match the pattern have changed")
            self.on_partitions_changed()
            self._on_metadata(metadata)

    # -- returning records ------------------------------------------------------------------------

    def record_stream(self) -> RecordIterator[Any, Any]:
        """Return a stream of records; there may be one at a time."""
        self.check()
        self._begin_poll()
        self._anext_stream = None
        stream = self._cursor.stream()
        self._active_stream = weakref.ref(stream)
        return stream

    def anext_stream(self) -> RecordIterator[Any, Any]:
        """Return the stream that `anext(consumer)` reads."""
        if self._anext_stream is None:
            self._begin_poll()
            self._anext_stream = self._cursor.stream()
        return self._anext_stream

    async def poll(self, limit: int, timeout: float | None) -> list[AnyRecord]:
        """Return records of any partitions."""
        take = self._take_records if self._convert is None else self._take_deserialized
        return await self._poll(lambda: take(limit), timeout) or []

    async def poll_batches(self, timeout: float | None) -> list[PartitionBatch]:
        """Return batches by partition."""
        taken = await self._poll(self.fetcher.take_batches, timeout, decompress=False) or []
        return [
            PartitionBatch(state.partition, views, start, end) for state, views, start, end in taken
        ]

    async def _poll(
        self, take: Callable[[], T], timeout: float | None, *, decompress: bool = True
    ) -> T | None:
        self._begin_poll()
        self._anext_stream = None
        with self.gate:
            self.mark_processed()
            return await self._wait_for_records(take, timeout, decompress=decompress)

    async def next_records(self) -> tuple[PartitionState, list[AnyRecord]]:
        """Return a stream's next records (`RecordSource`)."""
        with self.gate:
            self.mark_processed()
            taken = await self._wait_for_records(self.fetcher.take_chunk, None)
            assert taken is not None
            return taken

    async def yield_to_event_loop(self) -> None:
        """Let other tasks run (`RecordSource`)."""
        with self.gate:
            self.update_positions()
            self.mark_processed()
            if self._cursor.current is not None:
                self.fetcher.unprocessed.add(self._cursor.current)  # more of it is to be returned
            await asyncio.sleep(0)

    def put_back(self, rest: tuple[PartitionState, list[AnyRecord]] | None) -> None:
        """Put back records of a stream (`RecordSource`)."""
        if rest is not None:
            self.fetcher.put_back(*rest)

    async def _wait_for_records(
        self, take: Callable[[], T], timeout: float | None, *, decompress: bool = True
    ) -> T | None:
        """Return the first result of `take` that is not empty; None at the timeout.

        With `decompress`, large batches are decompressed in a thread before they are taken.
        """
        now = self._loop.time()
        deadline = None if timeout is None else now + timeout
        if now >= self._yield_at - MAX_PARSE_SECONDS:
            await asyncio.sleep(0)
            self._yield_at = self._loop.time() + MAX_LOOP_SECONDS
        if self.membership is not None:
            self.membership.on_poll()
        while True:
            if self._closing:
                raise ClientClosedError(f"{self._supervisor.name} is closed")
            self.check()
            self._raise_pending_error()
            if not self.subscription.reads_anything:
                raise IllegalStateError(
                    "there is nothing to read: give topics= or partitions=, or call subscribe() or "
                    "assign() first"
                )
            if not self.gate.held:
                if decompress and (decompression := self.fetcher.decompression()) is not None:
                    await decompression
                    self._yield_at = self._loop.time() + MAX_LOOP_SECONDS
                    continue  # partitions may have changed meanwhile
                taken = take()
                if taken:
                    return taken
            if not await self.gate.wait(deadline):
                return None
            self._yield_at = self._loop.time() + MAX_LOOP_SECONDS

    def _take_records(self, limit: int) -> list[AnyRecord]:
        return self.fetcher.take_records(limit, self._loop.time() + MAX_PARSE_SECONDS)

    def _take_deserialized(self, limit: int) -> list[AnyRecord]:
        convert = self._convert
        assert convert is not None
        out: list[AnyRecord] = []
        max_decompressed = self.fetcher.decompressed_bytes + MAX_DECOMPRESSED_BYTES_PER_POLL
        deadline = self._loop.time() + MAX_PARSE_SECONDS
        while len(out) < limit and self.fetcher.decompressed_bytes < max_decompressed:
            if out and (
                self.fetcher.next_compressed() is not None or self._loop.time() >= deadline
            ):
                break
            try:
                taken = self.fetcher.take_chunk(limit - len(out))
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
                break  # raised again once these records have been returned
        return out

    def _raise_pending_error(self) -> None:
        failure, self.listeners.failure = self.listeners.failure, None
        if failure is not None:
            raise failure
        missing_error, self._missing_error = self._missing_error, None
        if missing_error is not None:
            raise missing_error
        if self.membership is None:
            return
        error = self.membership.error
        if error is not None and (
            error is not self._raised_error or self.membership.failed_permanently
        ):
            self._raised_error = error
            raise error

    # -- processed records ------------------------------------------------------------------------

    def _begin_poll(self) -> None:
        """Raise an error while an `async for` is in progress; otherwise end the last stream."""
        active = None if self._active_stream is None else self._active_stream()
        if active is not None and self._cursor.record is not None:
            raise IllegalStateError(
                "an `async for` over this consumer is in progress: poll, poll_batches and "
                "async for exclude each other"
            )
        self.take_back()

    def update_positions(self) -> None:
        """Set the position after the record that a stream returned last."""
        self._cursor.update_position()

    def take_back(self, state: PartitionState | None = None) -> None:
        """Put back what a stream has not returned, of one partition or of any."""
        if state is None or self._cursor.state is state:
            self.put_back(self._cursor.take_back())

    def mark_all_processed(self) -> None:
        """Take back a stream's records and mark the returned ones as processed."""
        self.take_back()
        self.mark_processed()
        self.gate.on_processed()

    def mark_processed(self) -> None:
        """Mark all returned records as processed."""
        for state in self.fetcher.unprocessed:
            state.mark_processed()
        self.fetcher.unprocessed.clear()

    def _has_unprocessed(self) -> bool:
        self.update_positions()
        return any(
            state.has_unprocessed
            for state in self.fetcher.unprocessed
            if self.subscription.states.get(state.partition) is state
        )

    def _current_record(self) -> object:
        return self._cursor.record

    # -- committing -------------------------------------------------------------------------------

    def on_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record committed offsets."""
        for partition, offset in offsets.items():
            state = self.subscription.states.get(partition)
            if state is not None:
                state.on_committed(offset.offset)
        self.gate.on_processed()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float,
        *,
        named: bool = False,
    ) -> None:
        """Commit offsets; `named` says that the application named them."""
        if self.offset_committer is None:
            raise IllegalStateError("committing needs a group_id")
        if offsets:
            await self.offset_committer.commit(
                offsets, timeout, owned=self._owns(offsets), named=named
            )

    async def _commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        wait_for_rebalance: bool,
        timeout: float | None = None,
    ) -> None:
        assert self.offset_committer is not None
        if timeout is None:
            timeout = seconds(self._config.request_timeout_ms)
        if offsets:
            await self.offset_committer.commit(
                offsets, timeout, owned=self._owns(offsets), wait_for_rebalance=wait_for_rebalance
            )

    def _owns(self, offsets: Collection[TopicPartition]) -> Callable[[TopicPartition], bool]:
        """Return a function that says whether a partition may still be committed.

        Partitions that were never assigned to this consumer may.
        """
        ours = self.subscription.assignment.intersection(offsets)
        return lambda partition: partition not in ours or partition in self.subscription.states

    async def _commit_before_revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Commit processed records before their partitions are revoked, with auto-commit.

        While the consumer is closing this is not done: its last commit comes first.
        """
        if not self._config.enable_auto_commit or self._closing:
            return
        self.update_positions()
        due = self.subscription.to_commit(include_unprocessed=False)
        try:
            async with asyncio.timeout(None) as self._revoke_commit:
                await self._commit(
                    {p: due[p] for p in partitions if p in due}, wait_for_rebalance=False
                )
        except (KafkaError, TimeoutError) as error:
            logger.warning("committing before partitions are revoked: %s", error)
        finally:
            self._revoke_commit = None

    async def _auto_commit(self) -> None:
        interval = seconds(self._config.auto_commit_interval_ms)
        while True:
            await asyncio.sleep(interval)
            if self.gate.held:
                continue
            self.update_positions()
            try:
                await self._commit(
                    self.subscription.to_commit(include_unprocessed=False), wait_for_rebalance=False
                )
            except KafkaError as error:
                logger.warning("auto-commit: %s", error)


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)
