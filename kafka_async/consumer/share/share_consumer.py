"""The public consumer of a share group (KIP-932).

    ShareConsumer ──▶ AcquiredRecords ◀── ShareFetcher ──▶ BrokerShareFetcher, one per leader
                                               ▲
    ConsumerGroupMembership ──▶ _ShareHandler ─┘ assigned partitions

The membership uses the consumer protocol with other heartbeats. Members may share partitions, so
nothing is revoked before it is assigned elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from kafka_async.client.client import connect_with, services_of
from kafka_async.config import ShareConsumerConfig, hide_secrets, seconds
from kafka_async.consumer.buffer.deserialize import REJECT, converter_of
from kafka_async.consumer.group.rebalance_handler import topic_names_by_id
from kafka_async.consumer.missing_topics_monitor import MissingTopicsMonitor
from kafka_async.consumer.share.acquired_records import AcknowledgeType, RecordState
from kafka_async.consumer.share.share_fetcher import ACKNOWLEDGE_DELAY, FetchDemand, ShareFetcher
from kafka_async.consumer.share.share_record import ShareRecord
from kafka_async.consumer.statistics import ShareConsumerStatistics
from kafka_async.errors import ClientClosedError, IllegalStateError, InvalidConfigurationError
from kafka_async.foundation.arguments import (
    MAX_INT32,
    check_timeout,
    instance_of,
    plain_function,
    topic_names,
    whole_number,
)
from kafka_async.foundation.fairness import MAX_LOOP_SECONDS
from kafka_async.foundation.thread_reads import readable_in_any_thread
from kafka_async.group.consumer_group_heartbeat import ConsumerGroupMembership
from kafka_async.group.consumer_group_requests import ShareHeartbeatRequests
from kafka_async.group.group_client import GroupClient
from kafka_async.group.member import GroupSettings, GroupSubscription
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Self
    from uuid import UUID

    from typing_extensions import Unpack

    from kafka_async.client.client import Client
    from kafka_async.client.metadata.metadata import ClusterMetadata
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ShareConsumerOptions
    from kafka_async.errors import KafkaError
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.group.membership import GroupMembership
    from kafka_async.hooks import Hooks
    from kafka_async.types import Health

__all__ = ["AcknowledgementCallback", "ShareConsumer", "ShareRecord"]

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)
AcknowledgementCallback: TypeAlias = (
    "Callable[[TopicPartition, frozenset[int], KafkaError | None], object]"
)
"""Called with a partition, the acknowledged offsets, and the error or None."""

ACKNOWLEDGE_TYPES: Final[Mapping[str, AcknowledgeType]] = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
    "renew": AcknowledgeType.RENEW,
}

logger = logging.getLogger("kafka_async.consumer")


class ShareConsumer(GroupClient, Generic[K, V]):
    """Reads records of a share group, and acknowledges each of them (KIP-932).

        async with ShareConsumer("localhost:9092", topics=["jobs"], group_id="workers") as consumer:
            async for record in consumer:
                ...

    The members of a share group share the partitions: any number of them may read the same one,
    and a broker locks each record for one member at a time. A record that is accepted or rejected
    is not delivered again; one that is released, or not acknowledged before its lock ends, is
    delivered again, to any member, up to the group's limit of deliveries. There is no position and
    no order.

    With share_acknowledgement_mode="implicit" the next poll, `commit`, or the orderly end of an
    `async with` block accepts the records that the last poll returned; an `async for` accepts each
    record when the next one is requested. With "explicit" the application calls `acknowledge` for
    each record. Closing releases the other records, and so does an exception in an `async with`
    block. A poll that is cancelled has returned nothing, and releases what it may have locked.

    A share consumer belongs to the event loop and the process in which it was started, and only one
    task at a time may poll it.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence, may also be given as
            `bootstrap_servers`; or a started `Client`, whose connections and metadata are then
            shared and not closed.
        topics: Topics to subscribe to.
        config: The options as an object, without other options.
        hooks: Listeners for events; not with a `Client`.
        clock: Clock, for tests; not with a `Client`.
        dialer: Opens connections, for tests; not with a `Client`.
        **options: Options under Kafka's names, `group_id` among them; see `ShareConsumerConfig`.

    Attributes:
        config: The options.
        client: The client whose connections are used; shared if one was given.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid, or there is no
            group_id.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        topics: Iterable[str],
        config: ShareConsumerConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._topics = topic_names(topics)
        self.config, client, owns_client = connect_with(
            servers, ShareConsumerConfig, config, options, hooks=hooks, clock=clock, dialer=dialer
        )
        if not self.config.group_id:
            raise InvalidConfigurationError(
                "a ShareConsumer needs group_id, the share group", option="group_id"
            )
        super().__init__(
            f"ShareConsumer {self.config.group_id}", client, self.config, owns=owns_client
        )
        self._convert = converter_of(self.config, REJECT)
        self._implicit = self.config.share_acknowledgement_mode == "implicit"
        self._callbacks: list[AcknowledgementCallback] = []
        # Exist from the start on.
        self._fetcher: ShareFetcher | None = None
        self._missing_topics: MissingTopicsMonitor | None = None
        # The group's poll timeout, and the fairness of polls.
        self._polled_at: float | None = None
        self._polling = False
        self._records_consumed = 0
        self._yield_at = 0.0

    # -- starting and closing ---------------------------------------------------------------------

    def _begin(self, services: ClientServices) -> GroupMembership:
        self._fetcher = fetcher = ShareFetcher(
            services,
            self._supervisor,
            self.config,
            # A lambda, since the membership is created after the fetcher.
            lambda: membership.member_id,
            self._convert,
            self._on_acknowledged,
        )
        membership = ConsumerGroupMembership(
            services,
            self._supervisor,
            GroupSettings.of_share(self.config),
            _ShareHandler(services, self.config, self._topics, fetcher, self._last_poll_time),
            fetcher.notify,
            ShareHeartbeatRequests(self.config.client_rack or None),
        )
        self._polled_at = self._supervisor.loop.time()
        self._missing_topics = missing = MissingTopicsMonitor(
            services,
            self._supervisor.name,
            self.config,
            creates=False,
            wanted=lambda: (self._topics, ()),
            is_denied=lambda _: False,
            on_error=fetcher.notify,
        )

        def on_metadata(_: ClusterMetadata) -> None:
            fetcher.notify()
            missing.check()

        services.metadata.track(self._topics)
        self._unregister = services.metadata.change_listeners.add(on_metadata)
        missing.check()  # topics that another consumer of the client already tracks
        membership.start()
        membership.join("the consumer has started")
        return membership

    def _wake(self) -> None:
        if self._fetcher is not None:
            self._fetcher.notify()

    async def _before_leaving(self, deadline: float, *, finished: bool) -> None:
        fetcher = self._fetcher
        assert fetcher is not None
        # As in a poll: an orderly end of the block accepts the records.
        processed = finished and self._implicit
        fetcher.records.acknowledge_all(
            RecordState.DELIVERED,
            AcknowledgeType.ACCEPT if processed else AcknowledgeType.RELEASE,
        )
        await fetcher.close(deadline)

    async def _tear_down(self, deadline: float | None) -> None:
        if self._membership is not None:
            self._unregister()
            if self._missing_topics is not None:
                self._missing_topics.close()
            services_of(self.client).metadata.untrack(self._topics)
        await super()._tear_down(deadline)

    @readable_in_any_thread
    def health(self) -> Health:
        """Return a snapshot of the consumer's condition; no request is sent.

        This may be called in any thread at any time. Brokers are counted by the client, which
        may be shared. A share consumer has no lag: see `Admin.list_share_group_offsets` for the
        group's lag.
        """
        health, fetcher = super().health(), self._fetcher
        if fetcher is None:
            return health
        error = health.last_error
        # Errors of fetches first: missing topics are logged as warnings too.
        found = fetcher.errors[0] if fetcher.errors else None
        if found is None and error is None and self._missing_topics is not None:
            found = self._missing_topics.current_error
        if found is not None:
            error = f"{type(found).__name__}: {found}"
        now = self._supervisor.loop.time()
        return replace(
            health,
            in_flight=health.in_flight + fetcher.in_flight,
            assignment=tuple(sorted(fetcher.assignment)),
            last_poll_s=None if self._polled_at is None else max(0.0, now - self._polled_at),
            last_error=error,
        )

    @readable_in_any_thread
    def statistics(self) -> ShareConsumerStatistics:
        """Return a snapshot of the statistics since `start`.

        This may be called in any thread at any time: before `start` all counts are 0, and after
        `stop` they are the last ones.
        """
        membership, fetcher = self._membership, self._fetcher
        if membership is None or fetcher is None:
            none = dict.fromkeys(ACKNOWLEDGE_TYPES, 0)
            return ShareConsumerStatistics(acknowledgements_total=none)
        states = RecordState.ACQUIRED, RecordState.DELIVERED
        states = *states, RecordState.ACKNOWLEDGED, RecordState.IN_FLIGHT
        return ShareConsumerStatistics(
            records_consumed_total=self._records_consumed,
            bytes_consumed_total=fetcher.bytes,
            fetch_total=fetcher.fetches,
            rebalance_total=membership.rebalances,
            assigned_partitions=len(fetcher.assignment),
            acquired_records=sum(
                row.record is not None for state in states for row in fetcher.records[state]
            ),
            acknowledgements_total={name: fetcher.acknowledged[name] for name in ACKNOWLEDGE_TYPES},
            acknowledgements_error_total=fetcher.failed_acknowledgements,
            fetch_throttle_time_avg=fetcher.throttle_total / max(1, fetcher.fetches),
            fetch_throttle_time_max=fetcher.throttle_max,
            quota_usage_percent=fetcher.quota_usage_percent(),
        )

    # -- subscription -----------------------------------------------------------------------------

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions assigned to this member, which other members may have too."""
        return frozenset() if self._fetcher is None else self._fetcher.assignment

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Time for which a broker locks a record for this member; None before any response.

        It is the group's share.record.lock.duration.ms. A renewal restarts it.
        """
        return None if self._fetcher is None else self._fetcher.lock_timeout_ms

    # -- records ----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord[K, V]:
        """Return the next record; ends when the consumer is stopped.

        Raises the errors of `poll`.
        """
        try:
            return (await self._poll(1, self.config.max_poll_records, None))[0]
        except ClientClosedError:
            if not self._stopped:
                raise
            raise StopAsyncIteration from None

    async def poll(
        self, *, timeout: float | None = 1.0, max_records: int | None = None
    ) -> list[ShareRecord[K, V]]:
        """Return acquired records as soon as there are any, or an empty list at the timeout.

        Records are acquired only while a poll waits for them. A record whose lock has been renewed
        is returned again before others (KIP-1222).

        Args:
            timeout: Maximum time in seconds (None: no limit).
            max_records: Maximum number of records (default: max_poll_records). With
                share_acquire_mode="batch_optimized" more may be acquired, for the next polls.

        Raises:
            IllegalStateError: With share_acknowledgement_mode="explicit", a record of the last poll
                is not acknowledged; or another task polls.
            CorruptRecordError: A record cannot be read, and was rejected; the next poll continues.
            RecordDeserializationError: A record cannot be deserialized, and was released; the next
                poll continues.
            UnsupportedVersionError: The brokers have no share groups; each poll raises it.
            GroupIdNotFoundError: The group has members of another protocol; each poll raises it.
            GroupMaxSizeReachedError: The group is full; the next poll joins again.
            GroupAuthorizationError: The principal may not READ the group.
            TopicAuthorizationError: The principal may not DESCRIBE or READ a topic.
            UnknownTopicOrPartitionError: A topic has not existed for default_api_timeout_ms; raised
                once, and the next poll continues. Warnings are logged before.
            ClientClosedError: The consumer is not started, or is stopped.
            AuthenticationError: The brokers reject the credentials.
            KafkaError: A task of the consumer has died.
            TypeError: An argument has another type.
            ValueError: `max_records` is less than 1, or `timeout` is negative.
        """
        timeout = check_timeout(timeout, unlimited="no limit")
        limit = self.config.max_poll_records
        if max_records is not None:
            limit = whole_number(max_records, "max_records", low=1, high=MAX_INT32)
        return await self._poll(limit, limit, timeout)

    async def _poll(
        self, limit: int, acquired: int, timeout: float | None
    ) -> list[ShareRecord[Any, Any]]:
        """Return at most `limit` records; request `acquired` records at a time from brokers."""
        membership, fetcher = self._begin_poll()
        now = self._supervisor.loop.time
        deadline = None if timeout is None else now() + timeout
        self._polling, fetcher.abandoned = True, False
        try:
            # A poll that finds records at once never waits, so it yields here.
            if now() >= self._yield_at:
                await asyncio.sleep(0)
                self._yield_at = now() + MAX_LOOP_SECONDS
            # Ends with records, an error, or the deadline. Records come before errors, since they
            # were acquired earlier.
            while True:
                self._running()
                rows = fetcher.records.take(limit, now())
                fetcher.flush(delay=ACKNOWLEDGE_DELAY)
                if rows:
                    self._records_consumed += len(rows)
                    return [row.record for row in rows if row.record is not None]
                if fetcher.errors:
                    raise fetcher.errors.pop(0)
                assert self._missing_topics is not None
                error = membership.take_error() or self._missing_topics.take_error()
                if error is not None:
                    raise error
                fetcher.request_records(FetchDemand(acquired, deadline))
                if not await fetcher.wait(deadline):
                    return []
                self._yield_at = now() + MAX_LOOP_SECONDS
        # The application has not received them; without this they would stay locked.
        except asyncio.CancelledError:
            fetcher.release_unreturned()
            raise
        finally:
            self._polling = False
            # The interval counts from the end of a poll too.
            self._polled_at = now()

    def _begin_poll(self) -> tuple[GroupMembership, ShareFetcher]:
        """Accept the last poll's records, or check that they are acknowledged."""
        membership, fetcher = self._running(), self._started()
        if self._polling:
            raise IllegalStateError("only one task at a time may poll a ShareConsumer")
        unacknowledged = fetcher.records[RecordState.DELIVERED]
        if self._implicit:
            fetcher.records.acknowledge_all(RecordState.DELIVERED, AcknowledgeType.ACCEPT)
        elif unacknowledged:
            raise IllegalStateError(
                f"{len(unacknowledged)} records of the last poll are not acknowledged: call "
                'acknowledge() for each, or use share_acknowledgement_mode="implicit"'
            )
        self._polled_at = self._supervisor.loop.time()
        membership.on_poll()
        return membership, fetcher

    def acknowledge(
        self,
        record: ShareRecord[Any, Any],
        type: Literal["accept", "release", "reject", "renew"] = "accept",
    ) -> None:
        """Acknowledge a record of the last poll; the next poll or `commit` sends that.

        Until then another call replaces the acknowledgement.

        Args:
            record: The record.
            type: "accept": it was processed; "release": deliver it again, to any member; "reject":
                it cannot be processed, do not deliver it again; "renew": it is still being
                processed, prolong its lock, and return it from a later poll (KIP-1222).

        Raises:
            IllegalStateError: The acknowledgement mode is "implicit", the last poll did not return
                the record, or its acknowledgement was sent already.
            ClientClosedError: The consumer is not started, or is stopped.
            ValueError: `type` is none of these.
        """
        kind = ACKNOWLEDGE_TYPES.get(type)
        if kind is None:
            raise ValueError(
                f"type must be one of {', '.join(ACKNOWLEDGE_TYPES)}, not {type!r:.60}"
            )
        if self._implicit:
            raise IllegalStateError(
                'polls acknowledge the records: use share_acknowledgement_mode="explicit" to '
                "call acknowledge()"
            )
        self._running()
        record = instance_of(record, ShareRecord, "record")
        partition = TopicPartition(record.topic, record.partition)
        self._started().records.acknowledge(partition, record.offset, kind)

    async def commit(
        self, *, timeout: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements that have no response, and wait for the responses.

        With share_acknowledgement_mode="implicit" it accepts the records of the last poll first. An
        error means that the broker has recorded no acknowledgement of that request in the
        partition: the records are delivered again, up to the group's limit. After
        KafkaConnectionError or KafkaTimeoutError it is unknown whether the broker has recorded
        them, so the records may or may not be delivered again.

        Args:
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            For each partition with acknowledgements None, or its first error:
            InvalidRecordStateError if a lock has ended, NotLeaderOrFollowerError if the partition
            has another leader, ShareSessionNotFoundError if the broker has ended the session,
            KafkaConnectionError if the connection was lost, or KafkaTimeoutError if there was no
            response in time.

        Raises:
            ClientClosedError: The consumer is not started, or is stopped.
            KafkaError: A task of the consumer has died.
        """
        timeout = check_timeout(timeout)
        self._running()
        fetcher = self._started()
        if timeout is None:
            timeout = seconds(self.config.default_api_timeout_ms)
        if self._implicit:
            fetcher.records.acknowledge_all(RecordState.DELIVERED, AcknowledgeType.ACCEPT)
        return await fetcher.commit(self._supervisor.loop.time() + timeout)

    def on_acknowledged(self, callback: AcknowledgementCallback) -> AcknowledgementCallback:
        """Add a callback for the outcome of all acknowledgements, with or without `commit`.

        Without a callback, failed acknowledgements are logged as warnings. Its exceptions go to the
        event loop's exception handler.

        Args:
            callback: A plain function, called with the partition, a frozenset of offsets, and the
                error: None if the broker has recorded the acknowledgements.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        self._callbacks.append(plain_function(callback, "callback"))
        return callback

    def _on_acknowledged(
        self, partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None
    ) -> None:
        for callback in self._callbacks:
            # Later, so that a callback cannot interfere with the handling of a response.
            self._supervisor.loop.call_soon(callback, partition, offsets, error)
        if error is not None and not self._callbacks:
            logger.warning(
                "%s: %d records of %s, from offset %d on, were not acknowledged, so they may be "
                "delivered again: %s",
                self._supervisor.name,
                len(offsets),
                partition,
                min(offsets),
                error,
            )

    def _started(self) -> ShareFetcher:
        assert self._fetcher is not None
        return self._fetcher

    def _last_poll_time(self) -> float:
        if self._polling or self._polled_at is None:
            return self._supervisor.loop.time()
        return self._polled_at


class _ShareHandler:
    """Passes the assignment of the coordinator to the fetcher (`ConsumerProtocolHandler`)."""

    def __init__(
        self,
        services: ClientServices,
        config: ShareConsumerConfig,
        topics: frozenset[str],
        fetcher: ShareFetcher,
        last_poll_time: Callable[[], float],
    ) -> None:
        self._metadata = services.metadata
        self._group_id = config.group_id
        self._timeout = seconds(config.request_timeout_ms)
        self._topics = topics
        self._fetcher = fetcher
        self.last_poll_time = last_poll_time

    def subscription(self) -> GroupSubscription:
        return GroupSubscription(self._topics)

    async def topic_names(self, ids: Collection[UUID]) -> Mapping[UUID, str]:
        return await topic_names_by_id(self._metadata, ids, self._topics, self._timeout)

    async def on_assignment(self, assigned: frozenset[TopicPartition], epoch: int) -> None:
        self._fetcher.assign(assigned)

    def on_membership_ended(self) -> None:
        pass  # brokers lock records for less time than it takes to remove a member

    async def on_partitions_lost(self) -> None:
        # Without an assignment there is nothing to warn of.
        if self._fetcher.assignment:
            logger.warning(
                "share group %s: this member has lost its place in the group, as when its session "
                "ends, and joins again; records that it has not acknowledged are delivered again "
                "once their locks have ended",
                self._group_id,
            )
        self._fetcher.assign(frozenset())

    async def on_leave_prepare(self) -> None:
        self._fetcher.assign(frozenset())
