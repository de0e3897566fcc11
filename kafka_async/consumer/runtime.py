"""The parts of a started consumer and their connections.

    position finder ──▶ subscription ◀── rebalance handler ◀── group membership
           │                 │                   │
           ▼                 ▼                   ▼
        fetcher ──▶ delivery queue ◀───── delivery gate ◀── record delivery: poll, async for

All parts share the subscription. `on_partitions_changed` is called by the consumer's methods and by
the rebalance handler when they have added, removed or sought partitions.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anyio import move_on_after

from kafka_async.config import seconds
from kafka_async.consumer.closing import Closing
from kafka_async.consumer.delivery.delivery_gate import DeliveryGate
from kafka_async.consumer.delivery.delivery_queue import DeliveryQueue
from kafka_async.consumer.delivery.partition_streams import PartitionStreams, StreamRunner
from kafka_async.consumer.delivery.record_delivery import RecordDelivery
from kafka_async.consumer.delivery.record_processor import ProcessOptions, RecordProcessor
from kafka_async.consumer.delivery.undecodable import UndecodableRecords
from kafka_async.consumer.fetch.fetcher import Fetcher
from kafka_async.consumer.group.offset_committer import OffsetCommitter
from kafka_async.consumer.group.rebalance_handler import ConsumerRebalanceHandler
from kafka_async.consumer.group.rewind.rewind_store import RewindStore
from kafka_async.consumer.group.rewind.rewinds import Rewinds
from kafka_async.consumer.group.rewind.stored_rewinds import StoredRewinds
from kafka_async.consumer.group.transaction_offsets import TransactionOffsets
from kafka_async.consumer.missing_topics_monitor import MissingTopicsMonitor
from kafka_async.consumer.positions.offset_lookup import OffsetLookup
from kafka_async.consumer.positions.position_finder import PositionFinder
from kafka_async.consumer.statistics import ConsumerStatistics
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationError,
)
from kafka_async.group.consumer_group_heartbeat import ConsumerGroupMembership
from kafka_async.group.consumer_group_requests import ConsumerHeartbeatRequests
from kafka_async.group.member import GroupSettings
from kafka_async.group.member_states import REJOINS_AT_POLL, MemberState
from kafka_async.group.membership import GroupMembership
from kafka_async.group.protocol_choice import group_protocol_of
from kafka_async.runner import stopped_by_signal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
    from typing import Self

    from kafka_async.client.metadata.metadata import ClusterMetadata
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.buffer.deserialize import Convert
    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord
    from kafka_async.consumer.closing import CloseDeadlines
    from kafka_async.consumer.delivery.record_processor import Handler, Ordering, RawKeys
    from kafka_async.consumer.delivery.undecodable import OnUndecodable
    from kafka_async.consumer.group.rebalance_listener import RebalanceListenerInvoker
    from kafka_async.consumer.interceptors import ConsumerInterceptors
    from kafka_async.consumer.subscription import PartitionState, Subscription
    from kafka_async.errors import AuthenticationError
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.group.protocol_choice import GroupProtocol
    from kafka_async.types import Health, OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kafka_async.consumer")


class ConsumerRuntime:
    """Connects the parts of a started consumer.

    Attributes:
        drained: True once no handler may commit any more, because the consumer stops; listeners
            may, until the consumer has left its group.
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
        self.subscription = subscription
        self.listeners = listeners
        self._services = services
        self._supervisor = supervisor
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._closing: Closing | None = None
        self.drained = False
        self._revoke_commit: asyncio.Timeout | None = None
        self._pending_rewinds: set[asyncio.Timeout] = set()
        self._rejection: AuthenticationError | None = None
        self._tracked_topics = frozenset[str]()
        self._missing_topics = MissingTopicsMonitor(
            services,
            supervisor.name,
            config,
            creates=config.allow_auto_create_topics,
            wanted=lambda: (subscription.topics, subscription.manual),
            is_denied=subscription.is_denied,
            on_error=lambda: self.queue.wake_poll(),
        )
        self._streams: StreamRunner | None = None
        self.queue = DeliveryQueue(supervisor, subscription)
        self.gate = DeliveryGate(self.queue, seconds(config.max_poll_interval_ms))
        self.offset_lookup = OffsetLookup(services, config)
        self.fetcher = Fetcher(services, supervisor, config, subscription, self.queue.add)
        self.delivery = RecordDelivery(
            self.queue,
            self.gate,
            self.fetcher,
            convert,
            self._before_poll,
            self._check_poll,
            interceptors,
        )
        self.membership: GroupMembership | None = None
        self.offset_committer: OffsetCommitter | None = None
        self.rewinds: Rewinds | None = None
        self.stored_rewinds: StoredRewinds | None = None
        self.rebalance_handler: ConsumerRebalanceHandler | None = None
        if config.group_id is not None:
            self.rebalance_handler = ConsumerRebalanceHandler(
                services,
                supervisor,
                config,
                subscription,
                self.gate,
                listeners,
                self._commit_before_revoke,
                self.on_partitions_changed,
            )
            settings = GroupSettings.of(config)
            self.membership = self._new_membership(group_protocol, settings, self.rebalance_handler)
            self.offset_committer = OffsetCommitter(
                services, config, self.membership, subscription, self.gate, interceptors
            )
            self.rewinds = Rewinds(
                self.offset_lookup,
                self.offset_committer,
                self.membership.rejoin,
                seconds(config.request_timeout_ms),
            )
            if isinstance(self.membership, ConsumerGroupMembership):
                self.stored_rewinds = self._new_stored_rewinds(
                    self.rewinds, self.membership, config.group_id
                )
            self.rebalance_handler.set_rewinds(self.rewinds, self.stored_rewinds)
        self.transaction_offsets = TransactionOffsets(
            services, subscription, self.membership, self.offset_committer
        )
        self.position_finder = PositionFinder(
            services,
            supervisor,
            config,
            subscription,
            self.fetcher,
            self.offset_lookup,
            None if self.offset_committer is None else self.offset_committer.fetch_committed,
        )
        self.fetcher.on_position_needed = self.position_finder.wakeup

    def _new_membership(
        self,
        group_protocol: GroupProtocol,
        settings: GroupSettings,
        handler: ConsumerRebalanceHandler,
    ) -> GroupMembership:
        services, supervisor, on_error = self._services, self._supervisor, self._on_member_error
        if group_protocol == "consumer":
            return ConsumerGroupMembership(
                services,
                supervisor,
                settings,
                handler,
                on_error,
                ConsumerHeartbeatRequests(
                    self._config.group_remote_assignor, self._config.client_rack or None
                ),
            )
        return GroupMembership(services, supervisor, settings, handler, on_error)

    def _new_stored_rewinds(
        self, rewinds: Rewinds, membership: GroupMembership, group_id: str
    ) -> StoredRewinds:
        timeout = seconds(self._config.request_timeout_ms)
        return StoredRewinds(
            RewindStore(self._services, group_id, timeout),
            rewinds,
            self.subscription,
            membership,
            seconds(self._config.rewind_check_interval_ms),
            self._services.clock.wall,
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

        def on_failure(_: KafkaError) -> None:
            self.queue.wake_poll()
            self.position_finder.position_found.notify_all()
            self._end_rewinds()

        self._supervisor.on_failure(on_failure)
        self._unregister = [
            self._services.supervisor.on_failure(on_failure),
            self._services.metadata.add_listener(self._on_metadata),
            self._services.metadata.add_rejection_listener(self._on_rejection),
            self._services.metadata.add_cluster_listener(self._on_cluster_changed),
            self._services.add_credentials_listener(self._on_credentials_replaced),
        ]
        self._supervisor.spawn(self._fail_with_client, name="client")
        self._supervisor.spawn(self.position_finder.run, name="positions")
        if self.membership is not None:
            self.membership.start()
            if self._config.enable_auto_commit:
                self._supervisor.spawn(self._run_auto_commit, name="auto-commit")
            if self.stored_rewinds is not None and self._config.rewind_check_interval_ms:
                self._supervisor.spawn(self.stored_rewinds.run, name="rewinds")
        self.on_subscription_changed()

    async def _fail_with_client(self) -> None:
        """Raise the reason why the client has stopped or died, once it has.

        This ends all tasks of the consumer and wakes polls: with a shared `Client` that is closed
        first, they would retry or wait forever.
        """
        await self._services.lifetime.wait(self._loop.create_future())

    async def stop(self, deadlines: CloseDeadlines, *, finished: bool) -> None:
        """Commit, if auto-commit is enabled, and leave the group.

        `finished` says that the application has processed the returned records. Raises KafkaError
        if the group rejected the commit, else the exception of a listener that no poll has raised.
        """
        self._closing = Closing(self._supervisor.name, deadlines, self.subscription)
        self._stopping = True
        if finished:
            self.mark_all_processed()
        self.queue.take_back()
        self._end_rewinds()
        self.gate.end()
        if self._revoke_commit is not None:
            self._revoke_commit.reschedule(deadlines.commit_by)
        if self._supervisor.failure is not None or self._services.supervisor.failure is not None:
            return
        failure: Exception | None = None
        try:
            await self._closing.drain(self.gate)
        finally:
            self.drained = True
        if self._config.enable_auto_commit and self.offset_committer is not None:
            failure = await self._closing.commit(self.offset_committer)
        if self.membership is not None:
            await self._closing.leave_group(self.membership)
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
            if self._revoke_commit is not None:
                self._revoke_commit.reschedule(self._closing.commit_by)

    def detach(self) -> None:
        """Stop following the client's metadata, and end all waiting."""
        self._stopping = self.drained = True
        self._end_rewinds()
        self.gate.end()
        for unregister in self._unregister:
            unregister()
        self._services.metadata.untrack(self._tracked_topics)
        self._missing_topics.close()

    def health(self, base: Health) -> Health:
        """Add this consumer's condition to its client's health."""
        now = self._loop.time()
        member = self.membership
        errors: list[BaseException | None] = [
            self._supervisor.failure,
            None if member is None else member.error,
            *(state.error for state in self.subscription),
            *self.subscription.denial_errors,
            self._missing_topics.current_error,
            self.position_finder.current_error,
        ]
        error = next((each for each in errors if each is not None), None)
        return replace(
            base,
            in_flight=self.fetcher.in_flight + (0 if member is None else member.in_flight),
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
            last_heartbeat_s=None if member is None else _age(member.heartbeat_at, now),
            last_error=base.last_error if error is None else f"{type(error).__name__}: {error}",
        )

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot of the statistics since the start."""
        fetcher, committer = self.fetcher, self.offset_committer
        lags, throttle_total = fetcher.lags(), fetcher.throttle_total
        return ConsumerStatistics(
            records_consumed_total=self.queue.records,
            records_undecodable_total=self.queue.undecodable,
            bytes_consumed_total=fetcher.bytes,
            fetch_total=fetcher.fetches,
            commit_total=0 if committer is None else committer.commit_count,
            rebalance_total=0 if self.membership is None else self.membership.rebalances,
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
        refused = self.membership is not None and self.membership.failed_permanently
        return refused or self._supervisor.failure is not None

    def check(self) -> None:
        """Raise an error if a task has died, or if this is another event loop or process."""
        self._supervisor.check()
        self._services.supervisor.check()

    # -- subscription -----------------------------------------------------------------------------

    def on_subscription_changed(self) -> None:
        """Join the group or follow the pattern: the subscribed topics have changed."""
        topics = self.subscription.topics
        if (topics or self.subscription.broker_pattern) and self.membership is not None:
            self.membership.join("the consumer subscribes")
        if topics:
            self._supervisor.spawn(self._make_known, topics, name="topics")
        if self.subscription.pattern is not None:
            self._supervisor.spawn(self._follow_pattern, self.subscription.pattern, name="pattern")
        self.on_partitions_changed()
        self._on_metadata(self._services.metadata.snapshot)

    def on_assignment_changed(self) -> None:
        """Apply a change of the assigned partitions."""
        self.queue.take_back()
        self.on_partitions_changed()
        self._on_metadata(self._services.metadata.snapshot)
        self.queue.wake_poll()  # a waiting poll may have nothing to read any more

    def on_partitions_changed(self) -> None:
        """Apply that partitions were added, removed or sought."""
        wanted = frozenset(p.topic for p in self.subscription.states) | self.subscription.topics
        self._services.metadata.track(wanted - self._tracked_topics)
        self._services.metadata.untrack(self._tracked_topics - wanted)
        self._tracked_topics = wanted
        self._end_former_topics()
        self.gate.on_processed()
        self.position_finder.wakeup()
        self.fetcher.wakeup()
        if self._streams is not None:
            self._streams.update()

    def _on_cluster_changed(self) -> None:
        """Drop the positions, which are offsets of another cluster."""
        self.queue.take_back()
        for state in self.subscription:
            state.forget_position()
        self.on_partitions_changed()

    def _end_former_topics(self) -> None:
        """End the states of topics that were deleted and created again, with one warning each.

        Their positions, buffered records, uncommitted offsets and pauses are those of the former
        topic. The new one is read by auto_offset_reset.
        """
        former = self.subscription.of_former_topics(self._services.metadata.snapshot)
        if not former:
            return
        self.queue.take_back()
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
            if state.has_begun and self.offset_committer is not None:
                self.offset_committer.note_warning(state.partition.topic, state.topic_id)
            replaced = self.subscription.replace(state)
            if state.has_begun:
                self.fetcher.start_again(replaced)
        self.on_partitions_changed()

    def _on_rejection(self, error: AuthenticationError) -> None:
        """Raise an error at the next poll if no broker is known that could be fetched from.

        While brokers are known, their fetches and heartbeats report what concerns the consumer.
        """
        if not self._services.metadata.snapshot.brokers:
            self._rejection = error
            self.queue.wake_poll()

    def _on_credentials_replaced(self) -> None:
        """Forget errors of the former credentials that no poll has raised yet."""
        outdated = self._services.is_outdated
        if outdated(self._rejection):
            self._rejection = None
        self.fetcher.retry_outdated()
        if self.membership is not None and outdated(self.membership.error):
            self.membership.drop_error()

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        if self._stopping:
            return
        if metadata.brokers:
            self._rejection = None
        self._end_former_topics()
        subscription = self.subscription
        subscription.record_partition_counts(metadata)
        if self.membership is None:
            if subscription.own_all_partitions(
                {t: metadata.partitions(t) for t in subscription.topics}
            ):
                self.queue.take_back()
                self.on_partitions_changed()
        elif self.rebalance_handler is not None:
            self.rebalance_handler.on_metadata(metadata, self.membership.rejoin)
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
            if self.membership is not None:
                self.membership.join("the topics that match the pattern have changed")
            self.on_partitions_changed()
            self._on_metadata(metadata)

    # -- polls ------------------------------------------------------------------------------------

    def _before_poll(self) -> None:
        member = self.membership
        if member is None or (
            member.state is MemberState.POLL_TIMEOUT and self.gate.poll_timed_out
        ):
            return  # the task of a stream that has caused the timeout is late still
        member.on_poll()

    def _check_poll(self) -> None:
        """Raise an error that a poll must raise."""
        if self._stopping:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        self.check()
        failure = self.listeners.take_failure()
        if failure is None:
            failure = self._missing_topics.take_error()
            if isinstance(failure, TopicAuthorizationError) and failure.topic is not None:
                self.fetcher.on_denial_raised(failure.topic, failure)
        if failure is None:
            failure, self._rejection = self._rejection, None
        if failure is not None:
            raise failure
        if self.membership is not None:
            error = self.membership.take_error()
            if error is not None:
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
        if self._stopping:
            return
        self._rewind_unfinished()
        if stopped_by_signal() and self._config.enable_auto_commit:
            with move_on_after(self._exit_timeout, shield=True):
                await self._commit_automatically()

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
            self._on_stream_progress,
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

    def _on_stream_progress(self) -> None:
        """Join again, after a task of a stream has caused a poll timeout, if none is late now."""
        member = self.membership
        if member is not None and member.state is MemberState.POLL_TIMEOUT:
            self._before_poll()

    def _set_full(self, state: PartitionState, full: bool) -> None:
        state.set_full(full)
        if not full:
            if state.has_delivery:
                self.queue.add(state)
            self.fetcher.wakeup()

    async def _poll_until_stopped(
        self, limit: int, keys: RawKeys | None = None
    ) -> list[AnyRecord] | None:
        """Return records once there are any; None once the consumer is stopped."""
        try:
            return await self.delivery.poll(limit, None, keys)
        except ClientClosedError:
            if not self._stopping:
                raise  # the shared client was closed, not this consumer
            return None

    def _rewind_unfinished(self) -> None:
        """Seek to the first record of each partition whose handler did not return."""
        for state in self.subscription:
            self.queue.take_back(state)
            state.seek_to_unfinished()
        self.on_partitions_changed()

    async def rewind(
        self, offsets: dict[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int]:
        """Rewind partitions of the group, see `Consumer.rewind`."""
        if self.rewinds is None or not self.subscription.subscribes:
            raise IllegalStateError("rewind needs a group_id and a subscription; else use seek")
        self.check_may_wait_for_rebalance("rewind")
        self._check_member()
        member = self.membership
        if member is not None and member.state in REJOINS_AT_POLL:
            raise IllegalStateError(
                f"{self._supervisor.name} has left its group ({member.state.value}), and joins it "
                "again at its next poll: poll, then rewind"
            )
        pending = asyncio.timeout(None)
        self._pending_rewinds.add(pending)
        try:
            async with pending:
                return await self._rewind(self.rewinds, offsets, self._loop.time() + timeout)
        except TimeoutError:
            if not pending.expired():
                raise
        finally:
            self._pending_rewinds.remove(pending)
        if not self._stopping:
            self.check()
            self._check_member()
        raise ClientClosedError(
            f"{self._supervisor.name} is closed, and its rewind may or may not have been applied"
        )

    def check_may_wait_for_rebalance(self, call: str) -> None:
        """Raise if a rebalance would wait for the caller, who cannot wait for a rebalance."""
        if self.gate.runs_listener:
            raise IllegalStateError(
                f"{call}() in a rebalance listener, or in a task that it has created, would wait "
                "for the listener itself: call it after the listener has returned, or in a task "
                f"that the listener does not await: asyncio.get_running_loop().create_task("
                f"consumer.{call}(...), context=contextvars.Context())"
            )
        if self.gate.runs_handler:
            raise IllegalStateError(
                f"{call}() waits for the running handlers, so a handler cannot wait for it: call "
                "it in a task that was created outside of them"
            )

    async def _rewind(
        self, rewinds: Rewinds, offsets: dict[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, int]:
        if self._may_rewind_at_once(offsets) and (
            actual := await self._rewind_at_once(offsets, deadline - self._loop.time())
        ):
            return actual
        left = max(0.0, deadline - self._loop.time())
        try:
            if self.stored_rewinds is not None:
                return await self.stored_rewinds.rewind(offsets, left)
            return await rewinds.rewind(offsets, left)
        except KafkaTimeoutError as error:
            if not self.gate.delays_rebalance:
                raise
            raise KafkaTimeoutError(
                f"{error.message}; {self._supervisor.name} cannot rebalance before the records "
                "that its last poll has returned are processed: commit them before rewind, or poll "
                "in another task meanwhile"
            ) from error

    def _check_member(self) -> None:
        """Raise the error for which the group has rejected this member for good."""
        member = self.membership
        if member is not None and member.failed_permanently and member.error is not None:
            raise member.error

    def _on_member_error(self) -> None:
        self.queue.wake_poll()
        if self.failed:
            self._end_rewinds()

    def _end_rewinds(self) -> None:
        """End pending rewinds: this consumer applies no replies any more."""
        for pending in self._pending_rewinds:
            if not pending.expired():
                pending.reschedule(self._loop.time())

    def _may_rewind_at_once(self, offsets: dict[TopicPartition, int]) -> bool:
        """Return True if this member owns the partitions and no handler has records of them."""
        member = self.membership
        return (
            member is not None
            and member.state is MemberState.STABLE
            and offsets.keys() <= self.subscription.owned
            and self.gate.may_seek
        )

    async def _rewind_at_once(
        self, offsets: dict[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int] | None:
        """Rewind own partitions; None if a rebalance may have committed former positions since."""
        member, handler, rewinds = self.membership, self.rebalance_handler, self.rewinds
        assert member is not None
        assert handler is not None
        assert rewinds is not None
        rebalances = member.rebalances
        actual = await rewinds.rewind_at_once(offsets, timeout, handler.rewind_at_once)
        undisturbed = member.state is MemberState.STABLE and member.rebalances == rebalances
        return actual if undisturbed else None

    # -- committing -------------------------------------------------------------------------------

    async def _commit_before_revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Commit processed records before their partitions are revoked, with auto-commit.

        This is not done when a closing consumer leaves: its last commit has come first.
        """
        closing, member = self._closing, self.membership
        leaves = member is not None and member.state is MemberState.LEAVING
        if not self._config.enable_auto_commit or (closing is not None and leaves):
            return
        due = self.subscription.to_commit(include_unprocessed=False)
        commit_by = None if closing is None else closing.commit_by
        try:
            async with asyncio.timeout_at(commit_by) as self._revoke_commit:
                await self._auto_commit({p: due[p] for p in partitions if p in due})
        except (KafkaError, TimeoutError) as error:
            logger.warning("committing before partitions are revoked: %s", error)
        finally:
            self._revoke_commit = None

    async def _auto_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        assert self.offset_committer is not None
        timeout = seconds(self._config.request_timeout_ms)
        await self.offset_committer.commit(offsets, timeout, wait_for_rebalance=False)

    async def _run_auto_commit(self) -> None:
        interval = seconds(self._config.auto_commit_interval_ms)
        while True:
            await asyncio.sleep(interval)
            if self._stopping:
                return  # `stop` commits; after LeaveGroup the coordinator would refuse this commit
            if not self.gate.held:
                await self._commit_automatically()

    async def _commit_automatically(self) -> None:
        try:
            await self._auto_commit(self.subscription.to_commit(include_unprocessed=False))
        except KafkaError as error:
            logger.warning("auto-commit: %s", error)


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)
