"""Acquires records from the leaders of the assigned partitions, and sends acknowledgements.

Each broker has a `BrokerShareFetcher` with one request at a time in a share session. It sends a
ShareFetch only when a poll waits for records, so that no record is locked before it is needed; the
request carries the acknowledgements that are due. Without a fetch, ShareAcknowledge sends them: at
once for a commit or a release, otherwise after ACKNOWLEDGE_DELAY. Renewals are sent before a fetch:
otherwise they would wait for its response, by which time the lock might have ended.

With share_acquire_mode="record_limit" one broker at a time fetches, since several could acquire
more records together than a poll returns (KIP-1206).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from anyio import move_on_after

from kafka_async import hooks
from kafka_async.client.connection.broker_connection import ConnectionKind
from kafka_async.client.metadata.metadata import LeaderHint
from kafka_async.config import seconds
from kafka_async.consumer.fetch.fetch_errors import FetchErrorAction, fetch_error_action
from kafka_async.consumer.fetch.fetch_session import FetchSession, PartitionFetch
from kafka_async.consumer.fetch.fetcher import LARGEST_BATCH
from kafka_async.consumer.offsets import UNKNOWN
from kafka_async.consumer.share.acquired_records import (
    AcknowledgeType,
    AcquiredRecord,
    AcquiredRecords,
    RecordState,
    by_partition,
    by_topic_id,
)
from kafka_async.consumer.share.share_requests import (
    SESSION_ID,
    AcquiredPartition,
    ShareMember,
    acknowledge_request,
    fetch_request,
    named_partitions,
)
from kafka_async.errors import (
    InvalidMetadataError,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RetriableError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownServerError,
    error_for,
)
from kafka_async.foundation.fairness import MAX_SCAN_SECONDS
from kafka_async.protocol.wire import ZERO_UUID
from kafka_async.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from kafka_async.client.services import ClientServices
    from kafka_async.config import ShareConsumerConfig
    from kafka_async.consumer.buffer.deserialize import Convert
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.protocol.message import Request
    from kafka_async.protocol.messages import share_acknowledge, share_fetch

ShareResponseT = TypeVar(
    "ShareResponseT",
    "share_fetch.ShareFetchResponse",
    "share_acknowledge.ShareAcknowledgeResponse",
)

logger = logging.getLogger("kafka_async.consumer")

ACKNOWLEDGE_DELAY: Final = 0.5
"""Maximum seconds for which acknowledgements wait for a ShareFetch that carries them."""
_CLOSE_TIMEOUT: Final = 1.0
# The broker has no such session, so a new one is opened; metadata is not the cause.
_SESSION_ERRORS: Final = (
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)


class FetchDemand(NamedTuple):
    """Request of a poll; brokers may wait until `deadline`, an event loop time."""

    max_records: int
    deadline: float | None


class AcknowledgementCollector:
    """Collects the outcome of the acknowledgements that a commit sends, by partition."""

    def __init__(self, rows: Iterable[AcquiredRecord]) -> None:
        self.pending = set(rows)
        self.outcome: dict[TopicPartition, KafkaError | None] = dict.fromkeys(
            sorted({each.partition for each in self.pending})
        )

    def on_completed(
        self, partition: TopicPartition, rows: Iterable[AcquiredRecord], error: KafkaError | None
    ) -> None:
        """Note the outcome of some records of a partition; the first error counts."""
        completed = self.pending.intersection(rows)
        self.pending -= completed
        if completed and self.outcome[partition] is None:
            self.outcome[partition] = error


class ShareFetcher:
    """Fetches the assigned partitions and acknowledges records, for one share consumer.

    Attributes:
        records: The acquired records.
        errors: Errors that the next polls raise, after the records that precede them.
        lock_timeout_ms: Time for which brokers lock an acquired record; None before the first
            response.
        abandoned: True after a cancelled poll: records that arrive are released at once.
        fetches: ShareFetch responses.
        bytes: Bytes of their batches.
        throttle_total: Sum of their throttle times, in milliseconds.
        throttle_max: Longest of their throttle times, in milliseconds.
        acknowledged: Recorded acknowledgements by type.
        failed_acknowledgements: Acknowledgements that failed, or whose outcome is unknown.
    """

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        config: ShareConsumerConfig,
        member_id: Callable[[], str],
        convert: Convert | None,
        on_acknowledged: Callable[[TopicPartition, frozenset[int], KafkaError | None], None],
    ) -> None:
        # State that polls, commits and statistics read.
        self.records = AcquiredRecords()
        self.errors: list[KafkaError] = []
        self.lock_timeout_ms: int | None = None
        self.abandoned = False
        self.closing = False
        self.fetches = self.bytes = 0
        self.throttle_total = self.throttle_max = 0
        self.acknowledged: Counter[str] = Counter()
        self.failed_acknowledgements = 0
        # Parts of the consumer.
        self._services = services
        self._supervisor = supervisor
        self.config = config
        self._member_id = member_id
        self.convert = convert
        self._on_acknowledged = on_acknowledged
        self._loop = asyncio.get_running_loop()
        # Brokers with a task, and for record_limit the one that fetched last, since they take
        # turns.
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._brokers: dict[int, BrokerShareFetcher] = {}
        self._last_node = -1
        # Per partition, after an error: the earliest next fetch.
        self._retry_at: dict[TopicPartition, float] = {}
        # For waiting polls and commits.
        self._changed = asyncio.Event()
        self._collectors: list[AcknowledgementCollector] = []

    @property
    def member(self) -> ShareMember:
        """The identity in requests."""
        assert self.config.group_id is not None
        return ShareMember(self.config.group_id, self._member_id())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return self._assignment

    @property
    def in_flight(self) -> int:
        """Requests without a response."""
        return sum(broker.in_flight for broker in self._brokers.values())

    def quota_usage_percent(self) -> dict[tuple[int, str], float | None]:
        """Return the used part of each quota of the client, see `ConsumerStatistics`."""
        return self._services.quota_usage.percentages(self._loop.time())

    # -- for polls and commits --------------------------------------------------------------------

    def assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch these partitions from now on; acquired records of others remain acquired."""
        self._assignment = partitions
        self.notify()

    def notify(self) -> None:
        """Make waiting polls and commits check again."""
        self._changed.set()

    async def wait(self, deadline: float | None) -> bool:
        """Wait for `notify` until an event loop time; return False if that has passed."""
        with move_on_after(None if deadline is None else max(0.0, deadline - self._loop.time())):
            await self._changed.wait()
            self._changed.clear()
            return True
        return False

    def request_records(self, demand: FetchDemand) -> None:
        """Let brokers fetch for a poll, except those that already do."""
        nodes = self._nodes_by_leader()
        # Each broker alone keeps to the limit of records, so only one fetches at a time (KIP-1206).
        if self.config.share_acquire_mode == "record_limit" and nodes:
            if any(broker.fetches for broker in self._brokers.values()):
                return
            later = [node_id for node_id in sorted(nodes) if node_id > self._last_node]
            self._last_node = later[0] if later else min(nodes)
            nodes = [self._last_node]
        for node_id in nodes:
            broker = self._brokers.get(node_id) or self._start_broker(node_id)
            broker.request_records(demand)

    def release_unreturned(self) -> None:
        """Release the records that no poll has returned, including those that arrive later.

        Renewed records are released only when the consumer closes: the application is processing
        them.
        """
        self.abandoned = True
        self.records.release_unreturned(renewed=self.closing)
        self.flush()

    def flush(self, *, delay: float = 0.0) -> None:
        """Send the pending acknowledgements after at most this many seconds."""
        now = self._loop.time()
        for node_id in self.records.pending_nodes:
            if (broker := self._brokers.get(node_id)) is not None:  # None while closing
                broker.flush_by(now + delay)

    async def commit(self, deadline: float) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements and return the outcome by partition."""
        # Sent ones too: an earlier request may carry them.
        states = RecordState.ACKNOWLEDGED, RecordState.IN_FLIGHT
        collector = AcknowledgementCollector(each for s in states for each in self.records[s])
        self._collectors.append(collector)
        self.flush()
        try:
            while collector.pending:
                self._supervisor.check()
                if not await self.wait(deadline):
                    error = KafkaTimeoutError("no broker has responded to the acknowledgement")
                    for partition, rows in by_partition(collector.pending).items():
                        collector.on_completed(partition, rows, error)
        finally:
            self._collectors.remove(collector)
        return collector.outcome

    async def close(self, deadline: float) -> None:
        """Release records, send acknowledgements and end sessions, until an event loop time."""
        self.closing = True
        self.release_unreturned()
        for broker in self._brokers.values():
            broker.wakeup.set()
        while self._brokers and await self.wait(deadline):
            pass

    # -- brokers ----------------------------------------------------------------------------------

    def partitions_to_fetch(self, node_id: int) -> dict[TopicPartition, PartitionFetch]:
        """Return the assigned partitions that a broker leads and that may be fetched now."""
        metadata, now = self._services.metadata.snapshot, self._loop.time()
        found: dict[TopicPartition, PartitionFetch] = {}
        for partition in sorted(self._assignment):
            leader, topic_id = metadata.leader(partition), metadata.topic_id(partition.topic)
            if leader is None or topic_id == ZERO_UUID:
                self._services.metadata.request_update()
            elif leader.leader_id == node_id and self._retry_at.get(partition, 0.0) <= now:
                # A share group has no positions: the broker chooses the records.
                found[partition] = PartitionFetch(topic_id, 0, UNKNOWN, 0)
        return found

    def _nodes_by_leader(self) -> list[int]:
        metadata = self._services.metadata.snapshot
        leaders = {metadata.leader(partition) for partition in self._assignment}
        return sorted(leader.leader_id for leader in leaders if leader is not None)

    def _start_broker(self, node_id: int) -> BrokerShareFetcher:
        broker = self._brokers[node_id] = BrokerShareFetcher(self._services, node_id, self)
        self._supervisor.spawn(broker.run, name=f"share fetches from broker {node_id}")
        return broker

    def remove(self, broker: BrokerShareFetcher) -> None:
        """Remove a broker whose task has ended."""
        if self._brokers.get(broker.node_id) is broker:
            del self._brokers[broker.node_id]
        self.notify()

    # -- responses --------------------------------------------------------------------------------

    def complete(self, rows: Sequence[AcquiredRecord], error: KafkaError | None) -> None:
        """End the acknowledgements of records, and report the outcome by partition."""
        lock = 0.0 if self.lock_timeout_ms is None else seconds(self.lock_timeout_ms)
        # Renewed locks last from now on.
        self.records.complete(rows, self._loop.time() + lock, accepted=error is None)
        for partition, each in by_partition(rows).items():
            for collector in self._collectors:
                collector.on_completed(partition, each, error)
            self._count_acknowledgements(partition, each, error)
            self._on_acknowledged(partition, frozenset(row.offset for row in each), error)
        self.notify()

    def _count_acknowledgements(
        self,
        partition: TopicPartition,
        rows: Sequence[AcquiredRecord],
        error: KafkaError | None,
    ) -> None:
        """Count acknowledgements of a partition and emit their event; gaps are not records."""
        gap = AcknowledgeType.GAP
        counts = Counter(row.type.name.lower() for row in rows if row.type is not gap)
        if error is None:
            self.acknowledged += counts
        else:
            self.failed_acknowledgements += counts.total()
        if not counts or not self._services.hooks.active:
            return
        named = self._services.config.client_id, self.member.group_id, partition
        ordered = tuple(sorted(counts.items()))
        self._services.hooks.emit(
            hooks.RecordsAcknowledged(*named, ordered)
            if error is None
            else hooks.AcknowledgementFailed(*named, ordered, error)
        )

    def count_fetch(self, node_id: int, response: share_fetch.ShareFetchResponse) -> None:
        """Count a ShareFetch response, and emit an event if it has records."""
        sizes = [
            len(row.records)
            for topic in response.responses
            for row in topic.partitions
            if row.records
        ]
        self.fetches += 1
        self.bytes += sum(sizes)
        self.throttle_total += response.throttle_time_ms
        self.throttle_max = max(self.throttle_max, response.throttle_time_ms)
        if sizes and self._services.hooks.active:
            client_id = self._services.config.client_id
            self._services.hooks.emit(hooks.Fetched(client_id, node_id, len(sizes), sum(sizes)))

    async def add(self, acquired: AcquiredPartition) -> None:
        """Read the acquired records of a partition; other tasks may run in between."""
        until = self._loop.time() + MAX_SCAN_SECONDS
        try:
            for _ in acquired.read():
                if self._loop.time() >= until:
                    await asyncio.sleep(0)
                    until = self._loop.time() + MAX_SCAN_SECONDS
        except ProtocolError as error:
            self.errors.append(error)
            return
        # The broker has delivered them again, so its lock for the first delivery had ended.
        if unsent := self.records.add(acquired.rows):
            error = InvalidRecordStateError(
                "the locks of the records had ended, so that they have been delivered again"
            )
            self.complete(unsent, error)
        for row, kind in acquired.acknowledged:
            self.records.acknowledge_row(row, kind)
        if acquired.error is not None:
            self.errors.append(acquired.error)
        # The poll was cancelled while the records were on their way.
        if self.abandoned or self.closing:
            self.release_unreturned()

    def on_partition_error(
        self,
        partition: TopicPartition,
        error: KafkaError,
        leader: share_fetch.LeaderIdAndEpoch,
        endpoints: Mapping[int, Node],
        topic_id: UUID,
    ) -> None:
        """Handle a partition's error in a ShareFetch response."""
        action = fetch_error_action(error)
        # One failing partition must not keep the broker's others from being fetched.
        self._retry_at[partition] = self._loop.time() + seconds(self.config.retry_backoff_ms)
        if action not in (FetchErrorAction.REFRESH_METADATA, FetchErrorAction.RETRY):
            self.errors.append(error)
        self.learn_leader(partition, error, leader, endpoints, topic_id)

    def learn_leader(
        self,
        partition: TopicPartition,
        error: KafkaError | None,
        leader: share_fetch.LeaderIdAndEpoch | share_acknowledge.LeaderIdAndEpoch,
        endpoints: Mapping[int, Node],
        topic_id: UUID,
    ) -> None:
        """Apply the leader in a response with NOT_LEADER_OR_FOLLOWER (KIP-951)."""
        if not isinstance(error, InvalidMetadataError):
            return
        node_id, epoch = leader.leader_id, leader.leader_epoch
        if node_id >= 0 and isinstance(error, NotLeaderOrFollowerError):
            hint = LeaderHint(partition, node_id, epoch, endpoints.get(node_id), topic_id)
            self._services.metadata.update_leaders([hint])
        self._services.metadata.request_update()


class BrokerShareFetcher:
    """Fetches from one broker and sends it acknowledgements, one request at a time."""

    def __init__(self, services: ClientServices, node_id: int, fetcher: ShareFetcher) -> None:
        # `wakeup` covers a poll, acknowledgements that are due, and the end of the consumer.
        self.node_id = node_id
        self.wakeup = asyncio.Event()
        self._services = services
        self._fetcher = fetcher
        self._config = config = fetcher.config
        # The share session, and the ids of the topics that its responses refer to.
        self._session = FetchSession()
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._connection = services.brokers.connection(
            node_id,
            ConnectionKind.FETCH,
            self,
            max_frame_size=config.fetch_max_bytes + LARGEST_BATCH,
            fetch_max_wait=seconds(config.fetch_max_wait_ms),
        )
        self._loop = asyncio.get_running_loop()
        self._backoff = services.retry_backoff()
        # What to send next: a fetch for a poll, and acknowledgements by a time.
        self._demand: FetchDemand | None = None
        self._flush_by: float | None = None
        self._fetching = False

    @property
    def in_flight(self) -> int:
        """Requests without a response."""
        return self._connection.in_flight

    @property
    def fetches(self) -> bool:
        """True while a poll's request for records has no response."""
        return self._fetching or self._demand is not None

    def request_records(self, demand: FetchDemand) -> None:
        """Fetch for a poll, unless a fetch is in flight."""
        if not self._fetching:
            # A fetch in flight serves this poll too.
            self._demand = demand
            self.wakeup.set()

    def flush_by(self, time: float) -> None:
        """Send the pending acknowledgements at this event loop time at the latest."""
        self._flush_by = time if self._flush_by is None else min(time, self._flush_by)
        self.wakeup.set()

    async def run(self) -> None:
        """Send requests in a loop, until the consumer closes."""
        fetcher = self._fetcher
        try:
            # In this order: acknowledgements that a fetch cannot carry, the fetch, and
            # acknowledgements whose time has come.
            while not fetcher.closing:
                self.wakeup.clear()
                now = self._loop.time()
                demand = self._demand
                if demand is not None and not self._has_to_acknowledge_first():
                    await self._fetch(demand)
                elif demand is not None or (self._flush_by is not None and self._flush_by <= now):
                    await self._acknowledge()
                else:
                    left = None if self._flush_by is None else self._flush_by - now
                    with move_on_after(left):
                        await self.wakeup.wait()
            # The session's end releases what is still locked.
            if self._session.epoch:
                await self._acknowledge(closing=True)
        finally:
            # Without a response their outcome is unknown.
            fetcher.complete(self._take_pending(), KafkaConnectionError("the consumer is closed"))
            fetcher.remove(self)
            with move_on_after(_CLOSE_TIMEOUT, shield=True):
                await self._connection.close()

    # -- ShareFetch -------------------------------------------------------------------------------

    async def _fetch(self, demand: FetchDemand) -> None:
        # Reset before the request, so that a poll that comes during it is noticed.
        self._demand, self._fetching = None, True
        fetcher = self._fetcher
        sent: list[AcquiredRecord] = []
        try:
            wanted = fetcher.partitions_to_fetch(self.node_id)
            if not wanted:
                # All partitions back off, or leaders are unknown.
                await asyncio.sleep(self._backoff.next())
                return
            # Added to, since acknowledgements may refer to partitions that are not fetched any
            # more.
            self._topic_ids |= {partition: each.topic_id for partition, each in wanted.items()}
            # Acknowledgements need an open session, which the first request opens.
            if self._session.epoch:
                pending = fetcher.records.pending(self.node_id)
                # A request that renews fetches nothing, so ShareAcknowledge carries renewals.
                sent = [
                    each
                    for each in pending
                    if each.partition in wanted
                    and each.topic_id == wanted[each.partition].topic_id
                    and not _is_renewal(each)
                ]
                fetcher.records.mark_sent(sent)
            wait = seconds(self._config.fetch_max_wait_ms)
            if self._holds_renewed():
                wait = min(wait, ACKNOWLEDGE_DELAY)  # the next renewal waits for the response
            if demand.deadline is not None:
                wait = min(wait, max(0.0, demand.deadline - self._loop.time()))
            request = fetch_request(
                self._config,
                fetcher.member,
                self._session.next_request(wanted),
                by_partition(sent),
                self._topic_ids,
                max_records=demand.max_records,
                max_wait=wait,
            )
            timeout = seconds(self._config.request_timeout_ms) + wait
            response = await self._exchange(request, timeout, sent)
            if response is not None:
                await self._on_fetched(response, sent)
        finally:
            self._fetching = False
            fetcher.notify()

    async def _on_fetched(
        self, response: share_fetch.ShareFetchResponse, sent: Sequence[AcquiredRecord]
    ) -> None:
        fetcher = self._fetcher
        fetcher.count_fetch(self.node_id, response)
        endpoints = _endpoints(response.node_endpoints)
        locked_until = self._loop.time() + seconds(response.acquisition_lock_timeout_ms)
        pending = by_partition(sent)
        for partition, row in named_partitions(response.responses, self._topic_ids):
            if (acknowledged := pending.pop(partition, None)) is not None:
                error = _error(row.acknowledge_error_code, row.acknowledge_error_message, partition)
                fetcher.complete(acknowledged, error)
            if row.error_code:
                error = _error(row.error_code, row.error_message, partition)
                assert error is not None
                fetcher.on_partition_error(
                    partition,
                    error,
                    row.current_leader,
                    endpoints,
                    self._topic_ids.get(partition, ZERO_UUID),
                )
            elif row.acquired_records:
                await fetcher.add(
                    AcquiredPartition(
                        partition,
                        row,
                        self.node_id,
                        locked_until,
                        self._topic_ids.get(partition, ZERO_UUID),
                        fetcher.convert,
                    )
                )
        # A broker must respond to each acknowledgement.
        self._complete_rest(pending)
        fetcher.flush(delay=ACKNOWLEDGE_DELAY)

    # -- ShareAcknowledge -------------------------------------------------------------------------

    async def _acknowledge(self, *, closing: bool = False) -> None:
        fetcher, sent = self._fetcher, self._take_pending()
        # The locks ended with the session.
        if not self._session.epoch:
            error = ShareSessionNotFoundError(
                "the broker that had locked the records has ended the session, so that they are "
                "delivered again"
            )
            fetcher.complete(sent, error)
            return
        # The records were acquired again, or another request has sent them.
        if not sent and not closing:
            return
        epoch = self._session.epoch
        if closing:
            ended = self._session.closing_request()
            assert ended is not None
            epoch = ended.epoch
        request = acknowledge_request(fetcher.member, epoch, sent)
        timeout = seconds(self._config.request_timeout_ms)
        response = await self._exchange(request, timeout, sent)
        if response is None:
            return
        endpoints = _endpoints(response.node_endpoints)
        pending = by_topic_id(sent)
        for topic in response.responses:
            for row in topic.partitions:
                rows = pending.pop((topic.topic_id, row.partition_index), None)
                if rows is not None:
                    partition = rows[0].partition
                    error = _error(row.error_code, row.error_message, partition)
                    fetcher.learn_leader(
                        partition, error, row.current_leader, endpoints, topic.topic_id
                    )
                    fetcher.complete(rows, error)
        self._complete_rest(pending)

    def _take_pending(self) -> list[AcquiredRecord]:
        self._flush_by = None
        pending = self._fetcher.records.pending(self.node_id)
        self._fetcher.records.mark_sent(pending)
        return pending

    def _complete_rest(self, pending: Mapping[Any, Sequence[AcquiredRecord]]) -> None:
        """Fail the acknowledgements of partitions that a response lacks."""
        for rows in pending.values():
            error = UnknownServerError("the broker's response does not name the partition")
            self._fetcher.complete(rows, error)

    # -- renewals ---------------------------------------------------------------------------------

    def _has_to_acknowledge_first(self) -> bool:
        """Return True if there are acknowledgements that a ShareFetch cannot carry.

        These are renewals, and acknowledgements for a topic that was deleted and created again.
        """
        return self._session.epoch > 0 and any(
            _is_renewal(each) or each.topic_id != self._topic_ids.get(each.partition, each.topic_id)
            for each in self._fetcher.records.pending(self.node_id)
        )

    def _holds_renewed(self) -> bool:
        """Return True if a poll is about to return a renewed record again."""
        acquired = self._fetcher.records[RecordState.ACQUIRED]
        return any(_is_renewal(each) and each.node_id == self.node_id for each in acquired)

    # -- both -------------------------------------------------------------------------------------

    async def _exchange(
        self,
        request: Request[ShareResponseT],
        timeout: float,
        sent: Sequence[AcquiredRecord],
    ) -> ShareResponseT | None:
        """Send a request of the session; if it fails, fail its acknowledgements, return None."""
        try:
            response = await self._connection.send(request, timeout=timeout)
            if response.error_code:
                raise error_for(
                    response.error_code,
                    response.error_message,
                    needs="READ",
                    name=self._config.group_id,
                )
        except KafkaError as error:
            await self._on_failed(error, sent)
            return None
        self._backoff.reset()
        # A share session has no id; `FetchSession` only counts its epochs.
        self._session.on_response(SESSION_ID)
        if response.acquisition_lock_timeout_ms > 0:
            self._fetcher.lock_timeout_ms = response.acquisition_lock_timeout_ms
        return response

    async def _on_failed(self, error: KafkaError, sent: Sequence[AcquiredRecord]) -> None:
        logger.debug("share session with broker %d: %s", self.node_id, error)
        fetcher = self._fetcher
        # Whether the broker has handled the request is unknown, and so is the epoch.
        self._session.on_session_lost()
        # The others are retried silently.
        if not isinstance(error, RetriableError):
            fetcher.errors.append(error)
        if not isinstance(error, _SESSION_ERRORS):
            self._services.metadata.request_update()
        fetcher.complete(sent, error)
        await asyncio.sleep(self._backoff.next())


def _is_renewal(row: AcquiredRecord) -> bool:
    return row.type is AcknowledgeType.RENEW


def _error(code: int, message: str | None, partition: TopicPartition) -> KafkaError | None:
    if not code:
        return None
    topic, number = partition
    return error_for(code, message, topic=topic, partition=number, needs="READ")


def _endpoints(
    rows: Iterable[share_fetch.NodeEndpoint | share_acknowledge.NodeEndpoint],
) -> dict[int, Node]:
    return {row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in rows}
