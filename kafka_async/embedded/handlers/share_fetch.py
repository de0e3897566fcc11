"""ShareFetch and ShareAcknowledge: members acquire and acknowledge records (KIP-932).

A request may do both. Renewal of locks is KIP-1222, the record limit KIP-1206.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.groups.share_partition import (
    AcknowledgementBatch,
    AcknowledgeType,
    Acquire,
    AcquireMode,
    LogBatch,
)
from kafka_async.embedded.groups.share_states import ShareKey
from kafka_async.embedded.state.acls import Operation
from kafka_async.embedded.state.share_sessions import FINAL_EPOCH
from kafka_async.errors import (
    InvalidRequestError,
    KafkaError,
    OffsetOutOfRangeError,
    ShareSessionLimitReachedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka_async.protocol.messages import share_acknowledge as ack_messages
from kafka_async.protocol.messages.share_fetch import (
    AcquiredRecords,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kafka_async.records.batch import BatchHeader
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from kafka_async.embedded.groups.group_configs import GroupConfigs
    from kafka_async.embedded.groups.share_partition import AcquiredRecords as Acquired
    from kafka_async.embedded.groups.share_partition import SharePartition
    from kafka_async.embedded.groups.share_partition_manager import (
        ShareBrokers,
        SharePartitionManager,
    )
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.log import FetchDataInfo, PartitionLog
    from kafka_async.embedded.state.partition import Partition
    from kafka_async.embedded.state.share_sessions import ShareSession, TopicIdPartition
    from kafka_async.embedded.state.topics import TopicTable
    from kafka_async.protocol.messages.share_acknowledge import (
        ShareAcknowledgeRequest,
        ShareAcknowledgeResponse,
    )

T = TypeVar("T")
Outcome: TypeAlias = tuple[int, str | None]
"""Error code and message of a partition's acknowledgements."""

MAX_MEMBER_ID_LENGTH: Final = 36
RENEW_MIN_VERSION: Final = 2


class ShareParts(NamedTuple):
    """Holds the parts of the cluster that the handlers need."""

    settings: Settings
    brokers: Brokers
    topics: TopicTable
    share_brokers: ShareBrokers
    configs: GroupConfigs
    authorization: Authorization

    def lock_duration_ms(self, group_id: str) -> int:
        """Return the lock duration of a group's records."""
        return self.configs.milliseconds(group_id, "share.record.lock.duration.ms")

    def partition(self, context: RequestContext, it: TopicIdPartition) -> Partition:
        """Return the partition of a topic that the client may read; raises the broker's error."""
        name = self.topics.resolve_name("", it[0], by_id=True)
        self.authorization.require_topic(context, Operation.READ, name)
        partition = self.topics.partition(TopicPartition(name, it[1]))
        if partition is None:
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        return partition

    def leader_hint(self, it: TopicIdPartition) -> tuple[int, int]:
        """Return id and epoch of the leader of a partition."""
        topic = self.topics.by_id(it[0])
        partition = (
            None if topic is None else self.topics.partition(TopicPartition(topic.name, it[1]))
        )
        return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


# -- ShareFetch -----------------------------------------------------------------------------------


async def share_fetch(
    parts: ShareParts, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    """Acknowledge, then wait for records and acquire them, or fail at once."""
    manager = parts.share_brokers.manager(context.broker.id)
    try:
        group_id, member_id = _require_member(parts, request)
        renews = context.version >= RENEW_MIN_VERSION and request.is_renew_ack
        if renews:
            _check_renewal(request)
        acknowledged = _requested(request.topics)
        forgotten = [
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        has_acknowledgements = any(acknowledged.values())
        session = manager.sessions.session_for(
            (group_id, member_id),
            request.share_session_epoch,
            (acknowledged, forgotten),
            context.session,
            acknowledges=has_acknowledgements,
        )
        _end_with_connection(manager, context)
        outcomes: dict[TopicIdPartition, Outcome] = {}
        if has_acknowledgements:
            outcomes = _Acknowledgements(parts, manager, context, renews).apply(
                group_id, member_id, acknowledged
            )
        fetched: dict[TopicIdPartition, PartitionData] = {}
        if not renews and request.share_session_epoch != FINAL_EPOCH:
            fetch = _Fetch(parts, manager, context, request, session, _acquire_of(request))
            fetched = await fetch.run()
    except ShareSessionLimitReachedError as error:
        # Delay the error: an immediate retry would not get a session either.
        await asyncio.sleep(request.max_wait_ms / 1000)
        return ShareFetchResponse(error_code=error_code_of(error))
    except KafkaError as error:
        return ShareFetchResponse(error_code=error_code_of(error))
    response = _fetch_response(parts, context, session, fetched, outcomes)
    response.acquisition_lock_timeout_ms = parts.lock_duration_ms(group_id)
    if request.share_session_epoch == FINAL_EPOCH:
        manager.release_session(group_id, member_id)
    return response


def _require_member(
    parts: ShareParts, request: ShareFetchRequest | ShareAcknowledgeRequest
) -> tuple[str, str]:
    """Return the group and the member of a request; raise if one is missing."""
    if parts.settings.share_version < 1:
        raise UnsupportedVersionError("The cluster has no share groups.")
    if request.group_id is None:
        raise InvalidRequestError("Invalid group id in the request.")
    if not request.member_id or len(request.member_id) > MAX_MEMBER_ID_LENGTH:
        raise InvalidRequestError("Invalid member id in the request.")
    return request.group_id, request.member_id


def _check_renewal(request: ShareFetchRequest) -> None:
    limits = request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms
    if any(limits):
        raise InvalidRequestError(
            "max_bytes, min_bytes, max_records and max_wait_ms must be 0 if is_renew_ack is true."
        )


def _end_with_connection(manager: SharePartitionManager, context: RequestContext) -> None:
    """End the session when its connection is closed."""
    connection = context.session
    if connection is not None:
        connection.on_closed = lambda: manager.on_connection_closed(connection)


def _acquire_of(request: ShareFetchRequest) -> Acquire | None:
    """Return the acquisition that a request describes, or None for an unknown mode."""
    if request.share_acquire_mode not in set(AcquireMode):
        return None
    mode = AcquireMode(request.share_acquire_mode)
    return Acquire(request.member_id or "", request.max_records, request.batch_size, mode)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Waits for records of the partitions of one session, and acquires them."""

    parts: ShareParts
    manager: SharePartitionManager
    context: RequestContext
    request: ShareFetchRequest
    session: ShareSession
    acquire: Acquire | None
    results: dict[TopicIdPartition, PartitionData] = field(
        default_factory=dict["TopicIdPartition", PartitionData]
    )

    async def run(self) -> dict[TopicIdPartition, PartitionData]:
        """Return the acquired records, and the errors of partitions that cannot be fetched."""
        found: dict[TopicIdPartition, Partition] = {}
        for it in self._rotated():
            try:
                found[it] = self.parts.partition(self.context, it)
            except KafkaError as error:
                self._fail(it, error)
        if not found:
            return self.results
        if self.acquire is None:
            raise UnknownServerError(f"there is no mode {self.request.share_acquire_mode}")
        if not self.request.max_records or not self.request.max_bytes:
            return self.results
        for it, partition in list(found.items()):
            try:
                self.parts.topics.leader_partition(self.context.broker.id, partition.tp)
                self.manager.load(self._key(it), partition)
            except KafkaError as error:
                del found[it]
                self._fail(it, error)
        if found:
            await self._wait_for_records(found, self.acquire)
        return self.results

    async def _wait_for_records(
        self, partitions: Mapping[TopicIdPartition, Partition], acquire: Acquire
    ) -> None:
        deadline = self.context.received + self.request.max_wait_ms / 1000
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        for partition in partitions.values():
            partition.add_listener(changed.set)
        try:
            while True:
                reads = self._read_all(partitions)
                # Records become available by appends, but also by releases and expired locks: every
                # change reads all partitions again.
                if self._is_enough(reads) or loop.time() >= deadline:
                    break
                changed.clear()
                try:
                    async with asyncio.timeout_at(deadline):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            for partition in partitions.values():
                partition.remove_listener(changed.set)
        for it, (share, offset, data) in reads.items():
            log = partitions[it].log
            self.results[it] = self._acquire(it, acquire, share, offset, data, log)
            rows = self.results[it].acquired_records
            count = sum(row.last_offset - row.first_offset + 1 for row in rows)
            # The limit of records holds for the whole request.
            acquire = acquire._replace(max_records=acquire.max_records - count)
        self.manager.set_timer()

    def _read_all(
        self, partitions: Mapping[TopicIdPartition, Partition]
    ) -> dict[TopicIdPartition, tuple[SharePartition, int, FetchDataInfo | None]]:
        """Read all partitions with records to acquire; None stands for an offset out of range."""
        shares = {
            it: share
            for it in partitions
            if (share := self.manager.find(self._key(it))) is not None and share.can_acquire
        }
        committed = self.parts.configs.reads_committed(self.session.key[0])
        reads: dict[TopicIdPartition, tuple[SharePartition, int, FetchDataInfo | None]] = {}
        size = 0
        for it, share in shares.items():
            log, offset = partitions[it].log, share.next_fetch_offset
            try:
                log.check_offset(offset)
            except OffsetOutOfRangeError:
                reads[it] = share, offset, None
                continue
            data = log.read(
                offset,
                self.request.max_bytes // len(shares),
                committed=committed,
                at_least_one=not size,
            )
            size += len(data.records)
            reads[it] = share, offset, data
        return reads

    def _is_enough(
        self, reads: Mapping[TopicIdPartition, tuple[SharePartition, int, FetchDataInfo | None]]
    ) -> bool:
        found = [data for _, _, data in reads.values()]
        if not found or None in found:
            return bool(found)
        return sum(len(data.records) for data in found if data) >= self.request.min_bytes

    def _acquire(
        self,
        it: TopicIdPartition,
        acquire: Acquire,
        share: SharePartition,
        offset: int,
        data: FetchDataInfo | None,
        log: PartitionLog,
    ) -> PartitionData:
        response = PartitionData(partition_index=it[1], records=b"")
        if data is None:
            share.on_log_start(log.start_offset)
            return response
        batches = _log_batches(data)
        rows = share.acquire(acquire, offset, batches, asyncio.get_running_loop().time())
        if rows:
            response.records = _sliced(data.records, batches, rows)
            response.acquired_records = [
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in rows
            ]
        return response

    def _rotated(self) -> list[TopicIdPartition]:
        """Return the partitions of the session, rotated by the session's epoch."""
        partitions = list(self.session.partitions)
        epoch = self.request.share_session_epoch
        at = epoch % len(partitions) if partitions and epoch > 0 else 0
        return partitions[at:] + partitions[:at]

    def _key(self, it: TopicIdPartition) -> ShareKey:
        return ShareKey(self.session.key[0], *it)

    def _fail(self, it: TopicIdPartition, error: KafkaError) -> None:
        code = error_code_of(error)
        self.results[it] = PartitionData(partition_index=it[1], error_code=code, records=b"")


def _log_batches(data: FetchDataInfo) -> list[LogBatch]:
    """Return the record batches of a read; batches of aborted transactions are marked."""
    batches: list[LogBatch] = []
    rest = data.records
    while rest:
        header = BatchHeader.unpack(rest)
        base = header.base_offset
        aborted = header.is_transactional and any(
            it.producer_id == header.producer_id and it.first_offset <= base < it.last_offset
            for it in data.aborted or ()
        )
        batches.append(LogBatch(base, base + header.last_offset_delta, header.size, aborted))
        rest = rest[header.size :]
    return batches


def _sliced(
    records: memoryview, batches: Sequence[LogBatch], rows: Sequence[Acquired]
) -> memoryview:
    """Return the record batches from the first acquired record to the last one."""
    first, last = rows[0].first, rows[-1].last
    start = sum(it.size for it in batches if it.last < first)
    size = sum(it.size for it in batches if it.last >= first and it.first <= last)
    return records[start : start + size]


def _fetch_response(
    parts: ShareParts,
    context: RequestContext,
    session: ShareSession,
    fetched: Mapping[TopicIdPartition, PartitionData],
    outcomes: Mapping[TopicIdPartition, Outcome],
) -> ShareFetchResponse:
    rows = {
        it: row
        for it, row in fetched.items()
        if session.should_send(it, has_records=bool(row.records), failed=bool(row.error_code))
    }
    for it, (code, message) in outcomes.items():
        row = rows.setdefault(it, PartitionData(partition_index=it[1], records=b""))
        row.acknowledge_error_code, row.acknowledge_error_message = code, message
    leaders: set[int] = set()
    for it, row in rows.items():
        if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:  # KIP-951
            leader_id, leader_epoch = parts.leader_hint(it)
            row.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            leaders.add(leader_id)
    return ShareFetchResponse(
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in _by_topic(rows).items()
        ],
        node_endpoints=[
            NodeEndpoint(**each) for each in parts.brokers.endpoints(leaders, context.listener)
        ],
    )


def _by_topic(rows: Mapping[TopicIdPartition, T]) -> dict[UUID, list[T]]:
    topics: dict[UUID, list[T]] = {}
    for (topic_id, _), row in rows.items():
        topics.setdefault(topic_id, []).append(row)
    return topics


# -- acknowledgements -----------------------------------------------------------------------------


async def share_acknowledge(
    parts: ShareParts, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Acknowledge records; errors are per partition."""
    manager = parts.share_brokers.manager(context.broker.id)
    epoch = request.share_session_epoch
    try:
        group_id, member_id = _require_member(parts, request)
        manager.sessions.update_for_acknowledge((group_id, member_id), epoch)
    except KafkaError as error:
        return ack_messages.ShareAcknowledgeResponse(error_code=error_code_of(error))
    renews = context.version >= RENEW_MIN_VERSION and request.is_renew_ack
    outcomes = _Acknowledgements(parts, manager, context, renews).apply(
        group_id, member_id, _requested(request.topics)
    )
    if epoch == FINAL_EPOCH:
        manager.release_session(group_id, member_id)
    return _acknowledge_response(parts, context, outcomes, group_id)


def _acknowledge_response(
    parts: ShareParts,
    context: RequestContext,
    outcomes: Mapping[TopicIdPartition, Outcome],
    group_id: str,
) -> ShareAcknowledgeResponse:
    rows: dict[TopicIdPartition, ack_messages.PartitionData] = {}
    leaders: set[int] = set()
    for it, (code, message) in outcomes.items():
        row = rows[it] = ack_messages.PartitionData(
            partition_index=it[1], error_code=code, error_message=message
        )
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader_id, leader_epoch = parts.leader_hint(it)
            row.current_leader = ack_messages.LeaderIdAndEpoch(
                leader_id=leader_id, leader_epoch=leader_epoch
            )
            leaders.add(leader_id)
    return ack_messages.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=parts.lock_duration_ms(group_id),
        responses=[
            ack_messages.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in _by_topic(rows).items()
        ],
        node_endpoints=[
            ack_messages.NodeEndpoint(**each)
            for each in parts.brokers.endpoints(leaders, context.listener)
        ],
    )


def _requested(
    topics: Iterable[FetchTopic | ack_messages.AcknowledgeTopic],
) -> dict[TopicIdPartition, list[AcknowledgementBatch]]:
    """Return the acknowledgements of a request by partition."""
    return {
        (topic.topic_id, partition.partition_index): [
            AcknowledgementBatch(it.first_offset, it.last_offset, it.acknowledge_types)
            for it in partition.acknowledgement_batches
        ]
        for topic in topics
        for partition in topic.partitions
    }


@dataclass(frozen=True, slots=True)
class _Acknowledgements:
    """Applies the acknowledgements of one request; `renews` if it may renew locks."""

    parts: ShareParts
    manager: SharePartitionManager
    context: RequestContext
    renews: bool

    def apply(
        self,
        group_id: str,
        member_id: str,
        requested: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
    ) -> dict[TopicIdPartition, Outcome]:
        """Return outcomes by partition; a partition without acknowledgements may be absent."""
        failed: dict[TopicIdPartition, Outcome] = {}
        for it, batches in requested.items():
            if self.parts.topics.by_id(it[0]) is not None and not self._are_valid(batches):
                failed[it] = ErrorCode.INVALID_REQUEST, None
                continue
            try:
                self.parts.partition(self.context, it)
            except KafkaError as error:
                failed[it] = error_code_of(error), None
        interested = {it: batches for it, batches in requested.items() if it not in failed}
        if not any(interested.values()):
            return failed
        for it, batches in interested.items():
            failed[it] = ErrorCode.NONE, None
            if not batches:
                continue
            try:
                self.manager.acknowledge(ShareKey(group_id, *it), member_id, batches)
            except KafkaError as error:
                failed[it] = error_code_of(error), error.message
        return failed

    def _are_valid(self, batches: Sequence[AcknowledgementBatch]) -> bool:
        """Return True if batches ascend, and have one valid type or one per record."""
        highest = AcknowledgeType.REJECT
        if self.context.version >= RENEW_MIN_VERSION:
            highest = AcknowledgeType.RENEW
        end = -1
        for first, last, types in batches:
            if not end <= first <= last or not types:
                return False
            if len(types) > 1 and len(types) != last - first + 1:
                return False
            if not all(0 <= it <= highest for it in types):
                return False
            if AcknowledgeType.RENEW in types and not self.renews:
                return False
            end = last
        return True
