"""Fetch: reads batches and waits for `min_bytes`; fetch sessions, topic ids, isolation levels."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.error_responses import ErrorResponseBuilder
from kafka_async.embedded.handlers.partition_lookup import leader_partition, topic_name
from kafka_async.embedded.request_validation import ISOLATION_LEVELS
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
    from collections.abc import Iterable
    from uuid import UUID

    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.fetch_sessions import CachedPartition, FetchSession
    from kafka_async.embedded.partition import Partition

NO_EPOCH: Final = -1
READ_COMMITTED: Final = 1
FETCH_SESSION_MIN_VERSION: Final = 7
TOPIC_ID_MIN_VERSION: Final = 13
LEADER_HINTS_MIN_VERSION: Final = 16
ERRORS_WITH_LEADER_HINT: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
"""Errors whose response has the current leader (KIP-951)."""


class FetchResult(NamedTuple):
    """Holds the responses of all partitions and their size in bytes.

    `must_respond` is True if a response must not wait for more data.
    """

    partitions: list[tuple[CachedPartition, PartitionData]]
    size: int
    must_respond: bool


async def handle(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Respond with at least `min_bytes`, after `max_wait_ms`, or at once with an error."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return _fail_all(context, request)
    try:
        session = context.broker.fetch_sessions.session_for(request, context.version)
    except KafkaError as error:
        return FetchResponse(error_code=error_code_of(error))
    result = await _wait_for_data(context, request, session)
    response = FetchResponse(responses=_by_topic(session, result))
    if context.version >= FETCH_SESSION_MIN_VERSION:
        response.session_id = session.id
    if context.version >= LEADER_HINTS_MIN_VERSION:
        response.node_endpoints = _endpoints(context, result)
    return response


def _fail_all(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Return the response to a request that Kafka cannot parse."""
    response = (
        ErrorResponseBuilder(context, ErrorCode.UNKNOWN_SERVER_ERROR).build(request)
        or FetchResponse()
    )
    response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    return response


async def _wait_for_data(
    context: RequestContext, request: FetchRequest, session: FetchSession
) -> FetchResult:
    deadline = context.received + request.max_wait_ms / 1000
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    watched = [
        partition
        for entry in session.entries.values()
        if (partition := _partition_of(context, entry))
    ]
    for partition in watched:
        partition.add_listener(changed.set)
    try:
        while True:
            result = _read_all(context, request, session.entries.values())
            complete = (
                result.size >= request.min_bytes or result.must_respond or not session.entries
            )
            if complete or loop.time() >= deadline:
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


def _read_all(
    context: RequestContext, request: FetchRequest, entries: Iterable[CachedPartition]
) -> FetchResult:
    partitions: list[tuple[CachedPartition, PartitionData]] = []
    size, must_respond = 0, False
    for entry in entries:
        try:
            response = _read(context, request, entry, size)
        except KafkaError as error:
            response = _error_response(context, entry, error)
        size += len(response.records or b"")
        must_respond = (
            must_respond or bool(response.error_code) or response.diverging_epoch.epoch >= 0
        )
        partitions.append((entry, response))
    return FetchResult(partitions, size, must_respond)


def _read(
    context: RequestContext, request: FetchRequest, entry: CachedPartition, size: int
) -> PartitionData:
    """Read one partition; `size` is the number of bytes already in the response."""
    requested = entry.requested
    name = topic_name(
        context, entry.topic, entry.topic_id, by_id=context.version >= TOPIC_ID_MIN_VERSION
    )
    log = leader_partition(
        context, name, requested.partition, max(requested.current_leader_epoch, NO_EPOCH)
    ).log
    response = PartitionData(
        partition_index=requested.partition,
        high_watermark=log.end_offset,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=None,
        records=b"",
    )
    if requested.partition_max_bytes < 0:
        raise UnknownServerError("partition_max_bytes is negative")
    if requested.last_fetched_epoch >= 0:
        end = log.end_offset_for_epoch(requested.last_fetched_epoch)
        if end.epoch < 0:
            raise OffsetOutOfRangeError(f"leader epoch {requested.last_fetched_epoch} is unknown")
        if end.epoch < requested.last_fetched_epoch or end.offset < requested.fetch_offset:
            response.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.offset)
            return response
    log.check_offset(requested.fetch_offset)
    committed = request.isolation_level == READ_COMMITTED
    data = log.read(
        requested.fetch_offset,
        max(min(requested.partition_max_bytes, request.max_bytes - size), 0),
        committed=committed,
        at_least_one=size == 0,
    )
    response.records = data.records
    if data.aborted is not None:
        response.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in data.aborted
        ]
    return response


def _error_response(
    context: RequestContext, entry: CachedPartition, error: KafkaError
) -> PartitionData:
    code = error_code_of(error)
    response = PartitionData(
        partition_index=entry.requested.partition, error_code=code, high_watermark=-1, records=b""
    )
    partition = _partition_of(context, entry)
    if partition is None:
        return response
    response.aborted_transactions = None
    if context.version >= LEADER_HINTS_MIN_VERSION and code in ERRORS_WITH_LEADER_HINT:
        response.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
    return response


def _partition_of(context: RequestContext, entry: CachedPartition) -> Partition | None:
    try:
        name = topic_name(
            context, entry.topic, entry.topic_id, by_id=context.version >= TOPIC_ID_MIN_VERSION
        )
    except KafkaError:
        return None
    return context.cluster.topics.partition(TopicPartition(name, entry.requested.partition))


def _by_topic(session: FetchSession, result: FetchResult) -> list[FetchableTopicResponse]:
    topics: dict[tuple[str, UUID], list[PartitionData]] = {}
    for entry, response in result.partitions:
        if session.should_send(entry, response):
            topics.setdefault((entry.topic, entry.topic_id), []).append(response)
    return [
        FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in topics.items()
    ]


def _endpoints(context: RequestContext, result: FetchResult) -> list[NodeEndpoint]:
    leaders = {response.current_leader.leader_id for _, response in result.partitions}
    return [
        NodeEndpoint(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in context.cluster.brokers.values()
        if broker.id in leaders and broker.alive
    ]


ROUTE = Route(1, 4, 18, handle)
