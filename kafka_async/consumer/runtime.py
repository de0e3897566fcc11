"""The parts of a started consumer and their connections.

    position finder ──▶ subscription ◀─────── group session
           │                 │                   │
           ▼                 ▼                   ▼
        fetcher ──▶ delivery queue ◀───── delivery gate ◀── record delivery: poll, async for

All parts share the subscription. The consumer's methods and the group session call
`on_partitions_changed` after they have added, removed or sought partitions.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anyio import move_on_after

from kafka_async.config import seconds
from kafka_async.consumer.delivery.delivery_gate import DeliveryGate
from kafka_async.consumer.delivery.delivery_queue import DeliveryQueue
from kafka_async.consumer.delivery.partition_streams import PartitionStreams, StreamRunner
from kafka_async.consumer.delivery.record_delivery import RecordDelivery
from kafka_async.consumer.delivery.record_processor import ProcessOptions, RecordProcessor
from kafka_async.consumer.delivery.undecodable import UndecodableRecords
from kafka_async.consumer.fetch.fetcher import Fetcher
from kafka_async.consumer.group.closing import Closing
from kafka_async.consumer.group.group_session import GroupSession, NoGroup
from kafka_async.consumer.group.transaction_offsets import TransactionOffsets
from kafka_async.consumer.missing_topics_monitor import MissingTopicsMonitor
from kafka_async.consumer.positions.offset_lookup import OffsetLookup
from kafka_async.consumer.positions.position_finder import PositionFinder
from kafka_async.consumer.statistics import ConsumerStatistics
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    KafkaError,
    TopicAuthorizationError,
)
from kafka_async.group.protocol_choice import group_protocol_of
from kafka_async.runner import stopped_by_signal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import Self

    from kafka_async.client.metadata.metadata import ClusterMetadata
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.buffer.deserialize import Convert
    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord
    from kafka_async.consumer.delivery.record_processor import Handler, Ordering, RawKeys
    from kafka_async.consumer.delivery.undecodable import OnUndecodable
    from kafka_async.consumer.group.closing import CloseDeadlines
    from kafka_async.consumer.group.rebalance_listener import RebalanceListenerInvoker
    from kafka_async.consumer.interceptors import ConsumerInterceptors
    from kafka_async.consumer.subscription import PartitionState, Subscription
    from kafka_async.errors import AuthenticationError
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.group.protocol_choice import GroupProtocol
    from kafka_async.types import Health, TopicPartition

logger = logging.getLogger("kafka_async.consumer")


class ConsumerRuntime:
    """Connects the parts of a started consumer.

    Attributes:
        drained: True once no handler may commit any more, because the consumer stops. Listeners may
            commit until the consumer has left its group.
    """

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        listeners: RebalanceListenerInvoker,
        convert: Convert | None,
        interceptors: ConsumerInterceptors | None,
        group_protocol: GroupProtocol,
    ) -> None:
        # Shared by all parts.
        self.subscription = subscription
        self.listeners = listeners
        self._services = services
        self._supervisor = supervisor
        self._config = config
        self._loop = asyncio.get_running_loop()
        # Stopping: set in this order, `drained` after the handlers have ended.
        self._stopping = False
        self._closing: Closing | None = None
        self.drained = False
        # From the client's metadata: rejected credentials, and the topics that it keeps up to date.
        self._rejection: AuthenticationError | None = None
        self._tracked_topics = frozenset[str]()
        # Delivery: the queue has what was fetched, the gate orders polls and rebalances.
        self._streams: StreamRunner | None = None
        self.queue = DeliveryQueue(supervisor, subscription)
        self.gate = DeliveryGate(self.queue, seconds(config.max_poll_interval_ms))
        self.offset_lookup = OffsetLookup(services, config)
        self._missing_topics = MissingTopicsMonitor(
            services,
            supervisor.name,
            config,
            creates=config.allow_auto_create_topics,
            wanted=lambda: (subscription.topics, subscription.manual),
            is_denied=subscription.is_denied,
            on_error=self.queue.wake_poll,
        )
        self.fetcher = Fetcher(
            services, supervisor, config, subscription, self.queue.add, self._find_positions
        )
        self.group = self._new_group(interceptors, group_protocol)
        self.transaction_offsets = TransactionOffsets(services, subscription, self.group)
        self.position_finder = PositionFinder(
            services,
            supervisor,
            config,
            subscription,
            self.fetcher,
            self.offset_lookup,
            self.group,
        )
        self.delivery = RecordDelivery(
            self.queue,
            self.gate,
            self.fetcher,
            convert,
            self.group.on_poll,
            self._check_poll,
            interceptors,
        )

    def _new_group(
        self, interceptors: ConsumerInterceptors | None, group_protocol: GroupProtocol
    ) -> GroupSession | NoGroup:
        if self._config.group_id is None:
            return NoGroup(self.subscription, self._on_partitions_added)
        return GroupSession(
            self._services,
            self._supervisor,
            self._config,
            self.subscription,
            self.gate,
            self.listeners,
            self.offset_lookup,
            interceptors,
            group_protocol,
            self.on_partitions_changed,
            self.queue.wake_poll,
        )

    # -- starting and closing ---------------------------------------------------------------------

    @classmethod
    async def create(
        cls,
        services: ClientServices,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        listeners: RebalanceListenerInvoker,
        convert: Convert | None,
        interceptors: ConsumerInterceptors | None,
    ) -> Self:
        """Create the runtime, after `group_protocol_of` has chosen the protocol of its group."""
        group_protocol = await group_protocol_of(services, config)
        return cls(
            services,
            supervisor,
            config,
            subscription,
            listeners,
            convert,
            interceptors,
            group_protocol,
        )

    def start(self) -> None:
        """Start the tasks."""

        # A poll or a rewind that waits must see the failure of any task, also of a shared client.
        def on_failure(_: KafkaError) -> None:
            self.queue.wake_poll()
            self.position_finder.position_found.notify_all()
            self.group.end_rewinds()

        self._supervisor.on_failure(on_failure)
        self._unregister = [
            self._services.supervisor.on_failure(on_failure),
            self._services.metadata.change_listeners.add(self._on_metadata),
            self._services.metadata.rejection_listeners.add(self._on_rejection),
            self._services.metadata.cluster_listeners.add(self._on_cluster_changed),
            self._services.credentials_listeners.add(self._on_credentials_replaced),
        ]
        # Without it a consumer of a closed shared client would wait forever.
        self._supervisor.spawn(self._fail_with_client, name="client")
        self._supervisor.spawn(self.position_finder.run, name="positions")
        self.group.start()
        self.on_subscription_changed()

    async def _fail_with_client(self) -> None:
        """Raise the reason why the client has stopped or died, once it has.

        This ends all tasks of the consumer and wakes polls: with a shared `Client` that is closed
        first, they would retry or wait forever.
        """
        await self._services.lifetime.wait(self._loop.create_future())

    async def stop(self, deadlines: CloseDeadlines, *, finished: bool) -> None:
        """Commit, if auto-commit is enabled, and leave the group.

        Returned records count as processed if `finished`. Raises KafkaError if the group rejected
        the commit, else the exception of a listener that no poll has raised.
        """
        # The order matters: records that a stream has not returned go back before anything is
        # committed, and waiting polls and rewinds end before handlers are waited for.
        self._closing = Closing(self._supervisor.name, deadlines, self.subscription)
        self._stopping = True
        if finished:
            self.mark_all_processed()
        self.queue.take_back()
        self.gate.end()
        self.group.on_closing(self._closing)
        # Without its tasks the consumer can neither commit nor leave; the session times out.
        if self._supervisor.failure is not None or self._services.supervisor.failure is not None:
            return
        try:
            await self._closing.drain(self.gate)
        # Even if cancelled: no handler may commit after the member has left.
        finally:
            self.drained = True
        failure: Exception | None = await self.group.close(self._closing)
        # Called last, since leaving invokes listeners too.
        if (raised := self.listeners.take_failure()) is not None:
            logger.warning("%s: a rebalance listener raised %r", self._supervisor.name, raised)
            if failure is None:
                failure = raised
            else:
                failure.add_note(f"a rebalance listener raised too: {raised!r}")
        if failure is not None:
            raise failure

    def shorten_closing(self) -> None:
        """Leave the group without the commit in progress: the caller was cancelled."""
        if self._closing is not None:
            self._closing.shorten()
            self.group.shorten_closing()

    def detach(self) -> None:
        """Stop following the client's metadata, and end all waiting."""
        self._stopping = self.drained = True
        self.group.end_rewinds()
        self.gate.end()
        for unregister in self._unregister:
            unregister()
        self._services.metadata.untrack(self._tracked_topics)
        self._missing_topics.close()

    def health(self, base: Health) -> Health:
        """Add this consumer's condition to its client's health."""
        now = self._loop.time()
        # The most serious error first.
        errors: list[BaseException | None] = [
            self._supervisor.failure,
            self.group.error,
            *(state.error for state in self.subscription),
            *self.subscription.denial_errors,
            self._missing_topics.current_error,
            self.position_finder.current_error,
        ]
        error = next((each for each in errors if each is not None), None)
        return replace(
            base,
            in_flight=self.fetcher.in_flight + self.group.in_flight,
            buffered_bytes=self.fetcher.buffered,
            assignment=tuple(sorted(self.subscription.assignment)),
            lag=self.fetcher.lags(),
            in_progress={
                state.partition: len(state.in_progress)
                for state in self.subscription
                if len(state.in_progress)
            },
            oldest_unfinished_s={
                state.partition: max(0.0, now - start)
                for state in self.subscription
                if (start := state.in_progress.oldest_start) is not None
            },
            last_poll_s=_age(self.gate.polled_at(), now),
            last_heartbeat_s=_age(self.group.heartbeat_at, now),
            last_error=base.last_error if error is None else f"{type(error).__name__}: {error}",
        )

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot of the statistics since the start."""
        fetcher = self.fetcher
        lags, throttle_total = fetcher.lags(), fetcher.throttle_total
        return ConsumerStatistics(
            records_consumed_total=self.queue.records,
            records_undecodable_total=self.queue.undecodable,
            bytes_consumed_total=fetcher.bytes,
            fetch_total=fetcher.fetches,
            commit_total=self.group.commit_count,
            rebalance_total=self.group.rebalances,
            offset_reset_total=self.position_finder.reset_count,
            assigned_partitions=len(self.subscription.assignment),
            records_lag=lags,
            records_lag_max=max(lags.values(), default=None),
            buffered_bytes=fetcher.buffered,
            fetch_throttle_time_avg=throttle_total / max(1, fetcher.fetches),
            fetch_throttle_time_max=fetcher.throttle_max,
            fetch_throttle_wait_total=round(fetcher.throttle_wait * 1000),
            quota_usage_percent=self._services.quota_usage.percentages(self._loop.time()),
        )

    @property
    def failed(self) -> bool:
        """True once a task has died, or the group has rejected this member for good."""
        return self.group.failed_permanently or self._supervisor.failure is not None

    def check(self) -> None:
        """Raise an error if a task has died, or if this is another event loop or process."""
        self._supervisor.check()
        self._services.supervisor.check()

    # -- subscription -----------------------------------------------------------------------------

    def on_subscription_changed(self) -> None:
        """Join the group or follow the pattern: the subscribed topics have changed."""
        topics = self.subscription.topics
        if topics or self.subscription.broker_pattern:
            self.group.join("the consumer subscribes")
        if topics:
            self._supervisor.spawn(self._make_known, topics, name="topics")
        if self.subscription.pattern is not None:
            self._supervisor.spawn(self._follow_pattern, self.subscription.pattern, name="pattern")
        self.on_partitions_changed()
        self._on_metadata(self._services.metadata.snapshot)

    def on_assignment_changed(self) -> None:
        """Apply a change of the assigned partitions."""
        # A stream may hold records of a partition that is no longer assigned.
        self.queue.take_back()
        self.on_partitions_changed()
        self._on_metadata(self._services.metadata.snapshot)
        self.queue.wake_poll()  # a waiting poll may have nothing to read any more

    def on_partitions_changed(self) -> None:
        """Apply that partitions were added, removed or sought."""
        # Topics are tracked while they are assigned or subscribed to.
        wanted = frozenset(p.topic for p in self.subscription.states) | self.subscription.topics
        self._services.metadata.track(wanted - self._tracked_topics)
        self._services.metadata.untrack(self._tracked_topics - wanted)
        self._tracked_topics = wanted
        self._end_former_topics()
        # A rebalance that waits for records of a removed partition can continue.
        self.gate.on_processed()
        self.position_finder.wakeup()
        self.fetcher.wakeup()
        if self._streams is not None:
            self._streams.update()

    def _on_partitions_added(self) -> None:
        """Apply that topics have grown which are read without a group."""
        self.queue.take_back()
        self.on_partitions_changed()

    def _find_positions(self) -> None:
        # A method, since the fetcher and the position finder call each other.
        self.position_finder.wakeup()

    def _on_cluster_changed(self) -> None:
        """Drop the positions, which are offsets of another cluster."""
        self.queue.take_back()
        for state in self.subscription:
            state.forget_position()
        self.on_partitions_changed()

    def _end_former_topics(self) -> None:
        """End the states of topics that were deleted and created again, with one warning each.

        Their positions, buffered records, uncommitted offsets and pauses belong to the former
        topic. The new one is read by auto_offset_reset.
        """
        former = self.subscription.of_former_topics(self._services.metadata.snapshot)
        if not former:
            return
        self.queue.take_back()
        # Without a position nothing is lost, so there is nothing to warn of.
        begun = {state.partition.topic for state in former if state.has_begun}
        for topic in sorted(begun):
            positions = {
                state.partition.partition: state.position
                for state in former
                if state.partition.topic == topic
            }
            logger.warning(
                "topic %s was deleted and created again: the positions of the former topic (%s) "
                "are dropped, with what was not returned or committed, and the new one is read by "
                "auto_offset_reset=%s",
                topic,
                ", ".join(f"{p}: {positions[p]}" for p in sorted(positions)),
                self._config.auto_offset_reset,
            )
        for state in former:
            if state.has_begun:
                # `commit` would warn of the same topic again.
                self.group.note_new_topic(state.partition.topic, state.topic_id)
            replaced = self.subscription.replace(state)
            if state.has_begun:
                self.fetcher.start_again(replaced)
        self.on_partitions_changed()

    def _on_rejection(self, error: AuthenticationError) -> None:
        """Raise an error at the next poll if no broker is known that could be fetched from.

        While brokers are known, their fetches and heartbeats report what concerns the consumer.
        """
        # Otherwise the fetches and heartbeats of a broker raise the error.
        if not self._services.metadata.snapshot.brokers:
            self._rejection = error
            self.queue.wake_poll()

    def _on_credentials_replaced(self) -> None:
        """Forget errors of the former credentials that no poll has raised yet."""
        outdated = self._services.is_outdated
        if outdated(self._rejection):
            self._rejection = None
        self.fetcher.retry_outdated()
        self.group.drop_error_if(outdated)

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        if self._stopping:
            return
        # A broker has accepted the credentials.
        if metadata.brokers:
            self._rejection = None
        self._end_former_topics()
        self.subscription.record_partition_counts(metadata)
        self.group.on_metadata(metadata)
        self.fetcher.on_metadata(metadata)
        self._missing_topics.check()

    async def _make_known(self, topics: frozenset[str]) -> None:
        """Fetch the metadata of the subscribed topics; brokers may create missing ones."""
        timeout = seconds(self._config.default_api_timeout_ms)
        create = self._config.allow_auto_create_topics
        try:
            await self._services.metadata.wait_for_topics(
                topics, timeout=timeout, allow_auto_create=create
            )
        except KafkaError as error:  # `MissingTopicsMonitor` warns of topics that do not exist
            logger.debug("looking for the topics subscribed to: %s", error)

    async def _follow_pattern(self, pattern: object) -> None:
        """Subscribe to the topics that match the pattern, and check for new ones regularly."""
        # The pattern itself identifies the subscription: after another `subscribe` this task ends.
        while self.subscription.pattern is pattern and not self._stopping:
            try:
                metadata = await self._services.metadata.refresh(all_topics=True)
            except KafkaError as error:
                logger.debug("looking for topics: %s", error)
            else:
                self._match(metadata)
            await asyncio.sleep(seconds(self._config.metadata_max_age_ms))

    def _match(self, metadata: ClusterMetadata) -> None:
        if self.subscription.match_pattern(metadata):
            self.group.join("the topics that match the pattern have changed")
            self.on_partitions_changed()
            self._on_metadata(metadata)

    # -- polls ------------------------------------------------------------------------------------

    def _check_poll(self) -> None:
        """Raise an error that a poll must raise."""
        # In this order: the state of the client, errors that a poll raises once, then those of the
        # group.
        if self._stopping:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        self.check()
        failure = self.listeners.take_failure()
        if failure is None:
            failure = self._missing_topics.take_error()
            # Raised once; from now on the partitions of this topic are retried silently.
            if isinstance(failure, TopicAuthorizationError) and failure.topic is not None:
                self.fetcher.on_denial_raised(failure.topic, failure)
        if failure is None:
            failure, self._rejection = self._rejection, None
        if failure is not None:
            raise failure
        if (error := self.group.take_error()) is not None:
            raise error
        if not self.subscription.reads_anything:
            raise IllegalStateError(
                "there is nothing to read: give topics= or partitions=, or call subscribe() or "
                "assign() first"
            )

    def mark_all_processed(self) -> None:
        """Take back a stream's records and mark the returned ones as processed."""
        self.queue.take_back()
        self.queue.mark_processed()
        self.gate.on_processed()

    async def process(
        self,
        handler: Handler,
        ordering: Ordering,
        *,
        concurrency: int,
        max_bytes: int,
        drain_timeout: float,
        handler_timeout: float | None,
        on_undecodable: OnUndecodable,
    ) -> None:
        """Handle records until the consumer is stopped, see `Consumer.process`."""
        options = ProcessOptions(
            ordering, concurrency, max_bytes, drain_timeout, handler_timeout, on_undecodable
        )
        # Records are ordered by the serialized key, which a deserializer replaces.
        by_key = ordering == "key" and self._config.key_deserializer is not None
        processor = RecordProcessor(
            lambda limit, keys: self._poll_until_stopped(limit, keys if by_key else None),
            self.subscription,
            handler,
            options,
            UndecodableRecords(
                options.on_undecodable, self.delivery.pass_undecodable, self.queue.note_undecodable
            ),
            rewind_unfinished=self._rewind_unfinished,
            failed=lambda: self.failed,
            exit_timeout=self._exit_timeout,
        )
        self.gate.set_handlers(processor)
        try:
            await processor.run()
        finally:
            await self._end_handlers()

    async def _end_handlers(self) -> None:
        """Continue at the first record that is not done, after handlers or streams have ended."""
        self.gate.set_handlers(None)
        # `stop` takes back and commits the records itself.
        if self._stopping:
            return
        self._rewind_unfinished()
        # The process ends after a signal: without this commit the finished records are handled
        # again.
        if stopped_by_signal() and self._config.enable_auto_commit:
            with move_on_after(self._exit_timeout, shield=True):
                await self.group.commit_automatically()

    @property
    def _exit_timeout(self) -> float:
        """Seconds for which handlers, and then a commit, are waited for after a signal."""
        return seconds(self._config.close_timeout_ms) / 2

    @asynccontextmanager
    async def partition_streams(
        self,
        drain_timeout: float,
        on_undecodable: OnUndecodable,
        commit: Callable[[TopicPartition], Awaitable[None]],
    ) -> AsyncGenerator[PartitionStreams[Any, Any]]:
        """Run streams while the block runs, see `Consumer.partition_streams`."""
        runner = StreamRunner(
            self.subscription,
            self._set_full,
            commit,
            self.group.on_stream_progress,
            drain_timeout,
            UndecodableRecords(
                on_undecodable, self.delivery.pass_undecodable, self.queue.note_undecodable
            ),
            self._exit_timeout,
        )
        self.gate.set_handlers(runner)
        self._streams = runner
        try:
            async with runner.running(lambda limit, _: self._poll_until_stopped(limit)):
                yield PartitionStreams(runner)
        finally:
            self._streams = None
            await self._end_handlers()

    def _set_full(self, state: PartitionState, full: bool) -> None:
        state.set_full(full)
        # Partitions that were held back may have records by now, which no event announces.
        if not full:
            if state.has_delivery:
                self.queue.add(state)
            self.fetcher.wakeup()

    async def _poll_until_stopped(
        self, limit: int, keys: RawKeys | None = None
    ) -> list[AnyRecord] | None:
        """Return records once there are any, or None once the consumer is stopped."""
        try:
            return await self.delivery.poll(limit, None, keys)
        except ClientClosedError:
            if not self._stopping:
                raise  # the shared client was closed, not this consumer
            return None

    def _rewind_unfinished(self) -> None:
        """Seek to the first record of each partition whose handler did not return."""
        for state in self.subscription:
            # First what a stream holds, so that the position is the first record that was not
            # returned.
            self.queue.take_back(state)
            state.seek_to_unfinished()
        self.on_partitions_changed()


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)
