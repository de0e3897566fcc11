"""Fetch: reads batches and waits for `min_bytes`; fetch sessions, isolation levels, replicas."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.request_validation import ISOLATION_LEVELS
from kafka_async.embedded.requests.error_responses import error_response
from kafka_async.embedded.state.acls import Operation
from kafka_async.embedded.state.replica_selector import preferred_read_replica
from kafka_async.errors import KafkaError, OffsetOutOfRangeError, UnknownServerError
from kafka_async.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.fetch_sessions import CachedPartition, FetchSession
    from kafka_async.embedded.state.partition import Partition
    from kafka_async.embedded.state.topics import TopicTable

NO_EPOCH: Final = -1
READ_COMMITTED: Final = 1
FETCH_SESSION_MIN_VERSION: Final = 7
RACK_ID_MIN_VERSION: Final = 11
"""First version in which consumers may fetch from followers (KIP-392)."""
TOPIC_ID_MIN_VERSION: Final = 13
REPLICA_STATE_MIN_VERSION: Final = 15
LEADER_HINTS_MIN_VERSION: Final = 16
ERRORS_WITH_LEADER_HINT: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
"""Errors whose response includes the current leader (KIP-951)."""


class FetchResult(NamedTuple):
    """Holds the responses of all partitions and their size in bytes.

    `must_respond` is True if the response must not wait for more data.
    """

    partitions: list[tuple[CachedPartition, PartitionData]]
    size: int
    must_respond: bool


async def handle(
    topics: TopicTable,
    brokers: Brokers,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: FetchRequest,
) -> FetchResponse:
    """Respond with at least `min_bytes`, after `max_wait_ms`, or at once with an error."""
    if request.isolation_level not in ISOLATION_LEVELS:  # Kafka cannot parse the request
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        response = error_response(context, code, request) or FetchResponse()
        response.error_code = code
        return response
    try:
        session = context.broker.fetch_sessions.session_for(request, context.version)
    except KafkaError as error:
        return FetchResponse(error_code=error_code_of(error))
    read = _Read(context, request, session, topics, brokers, settings, authorization)
    result = await read.wait_for_data()
    response = FetchResponse(responses=_by_topic(session, result))
    if context.version >= FETCH_SESSION_MIN_VERSION:
        response.session_id = session.id
    if context.version >= LEADER_HINTS_MIN_VERSION:
        leaders = {partition.current_leader.leader_id for _, partition in result.partitions}
        endpoints = brokers.endpoints(leaders, context.listener)
        response.node_endpoints = [NodeEndpoint(**each) for each in endpoints]
    return response


@dataclass(frozen=True, slots=True)
class _Read:
    """Reads the partitions of one request."""

    context: RequestContext
    request: FetchRequest
    session: FetchSession
    topics: TopicTable
    brokers: Brokers
    settings: Settings
    authorization: Authorization

    async def wait_for_data(self) -> FetchResult:
        """Read until there is enough data or an error, or `max_wait_ms` has passed."""
        deadline = self.context.received + self.request.max_wait_ms / 1000
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        watched = [
            partition
            for entry in self.session.entries.values()
            if (partition := self._find(entry)) is not None
        ]
        for partition in watched:
            partition.add_listener(changed.set)
        try:
            while True:
                result = self._read_all()
                # Respond at once with enough data, an error, or no partitions; otherwise wait for a
                # change of a log until the deadline, and read all partitions again.
                complete = result.size >= self.request.min_bytes or result.must_respond
                if complete or not self.session.entries or loop.time() >= deadline:
                    return result
                changed.clear()
                try:
                    async with asyncio.timeout_at(deadline):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            for partition in watched:
                partition.remove_listener(changed.set)

    def _read_all(self) -> FetchResult:
        partitions: list[tuple[CachedPartition, PartitionData]] = []
        size, must_respond = 0, False
        for entry in self.session.entries.values():
            try:
                response = self._read(entry, size)
            except KafkaError as error:
                response = self._error_response(entry, error)
            size += len(response.records or b"")
            must_respond = (
                must_respond
                or bool(response.error_code)
                or response.diverging_epoch.epoch >= 0
                or response.preferred_read_replica >= 0
            )
            partitions.append((entry, response))
        return FetchResult(partitions, size, must_respond)

    def _read(self, entry: CachedPartition, size: int) -> PartitionData:
        """Read one partition; `size` is the number of bytes already in the response."""
        requested = entry.requested
        partition = self._replica(entry)
        log = partition.log
        response = PartitionData(
            partition_index=requested.partition,
            high_watermark=log.end_offset,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=None,
            records=b"",
        )
        preferred = self._preferred_read_replica(partition, requested.fetch_offset)
        if preferred is not None:
            response.preferred_read_replica = preferred
            return response
        if requested.partition_max_bytes < 0:
            raise UnknownServerError("partition_max_bytes is negative")
        if requested.last_fetched_epoch >= 0:
            end = log.end_offset_for_epoch(requested.last_fetched_epoch)
            if end.epoch < 0:
                raise OffsetOutOfRangeError(
                    f"leader epoch {requested.last_fetched_epoch} is unknown"
                )
            if end.epoch < requested.last_fetched_epoch or end.offset < requested.fetch_offset:
                response.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.offset)
                return response
        log.check_offset(requested.fetch_offset)
        data = log.read(
            requested.fetch_offset,
            max(min(requested.partition_max_bytes, self.request.max_bytes - size), 0),
            committed=self.request.isolation_level == READ_COMMITTED,
            at_least_one=size == 0,
        )
        response.records = data.records
        if data.aborted is not None:
            response.aborted_transactions = [
                AbortedTransaction(
                    producer_id=aborted.producer_id, first_offset=aborted.first_offset
                )
                for aborted in data.aborted
            ]
        return response

    def _replica(self, entry: CachedPartition) -> Partition:
        """Return the partition; only consumers with a rack may read from a follower."""
        from_follower = self._is_consumer and self.context.version >= RACK_ID_MIN_VERSION
        find = self.topics.replica_partition if from_follower else self.topics.leader_partition
        epoch = max(entry.requested.current_leader_epoch, NO_EPOCH)
        return find(self.context.broker.id, self._topic_partition(entry), epoch)

    @property
    def _is_consumer(self) -> bool:
        """True unless the request comes from a replica, that is, has a broker id."""
        by_state = self.context.version >= REPLICA_STATE_MIN_VERSION
        request = self.request
        return (request.replica_state.replica_id if by_state else request.replica_id) < 0

    def _preferred_read_replica(self, partition: Partition, fetch_offset: int) -> int | None:
        """Return the follower to which the leader redirects a consumer, or None."""
        if (
            self.settings.replica_selector_class is None
            or self.context.version < RACK_ID_MIN_VERSION
            or not self._is_consumer
            or partition.leader != self.context.broker.id
        ):
            return None
        return preferred_read_replica(self.brokers, partition, self.request.rack_id, fetch_offset)

    def _error_response(self, entry: CachedPartition, error: KafkaError) -> PartitionData:
        code = error_code_of(error)
        response = PartitionData(
            partition_index=entry.requested.partition,
            error_code=code,
            high_watermark=-1,
            records=b"",
        )
        partition = self._find(entry)
        if partition is None:
            return response
        response.aborted_transactions = None
        if self.context.version >= LEADER_HINTS_MIN_VERSION and code in ERRORS_WITH_LEADER_HINT:
            response.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
        return response

    def _find(self, entry: CachedPartition) -> Partition | None:
        try:
            return self.topics.partition(self._topic_partition(entry))
        except KafkaError:
            return None

    def _topic_partition(self, entry: CachedPartition) -> TopicPartition:
        by_id = self.context.version >= TOPIC_ID_MIN_VERSION
        name = self.topics.resolve_name(entry.topic, entry.topic_id, by_id=by_id)
        self.authorization.require_topic(self.context, Operation.READ, name)
        return TopicPartition(name, entry.requested.partition)


def _by_topic(session: FetchSession, result: FetchResult) -> list[FetchableTopicResponse]:
    topics: dict[tuple[str, UUID], list[PartitionData]] = {}
    for entry, response in result.partitions:
        if session.should_send(entry, response):
            topics.setdefault((entry.topic, entry.topic_id), []).append(response)
    return [
        FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in topics.items()
    ]
