"""DescribeTopicPartitions: paged metadata, for topics with many partitions (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.error_responses import ErrorResponseBuilder
from kafka_async.embedded.handlers.metadata import TOPIC_OPERATIONS
from kafka_async.embedded.partition import NO_LEADER
from kafka_async.embedded.topics import is_internal, validate_topic_name
from kafka_async.errors import InvalidTopicError
from kafka_async.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.partition import Partition

MAX_PARTITIONS_PER_PAGE: Final = 2_000
"""Partitions per page, regardless of the request's limit."""


async def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return the requested topics, or all, from the cursor on, and the next cursor."""
    if any(not topic.name for topic in request.topics):
        return _fail_all(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
    if request.cursor is not None and request.cursor.partition_index < 0:
        return _fail_all(context, request, ErrorCode.INVALID_REQUEST)
    topics = context.cluster.topics
    names = sorted({topic.name for topic in request.topics} or {topic.name for topic in topics})
    start_topic, start_index = "", 0
    if request.cursor is not None:
        start_topic, start_index = request.cursor.topic_name, request.cursor.partition_index
    remaining = min(max(request.response_partition_limit, 1), MAX_PARTITIONS_PER_PAGE)
    response = DescribeTopicPartitionsResponse()
    described: list[DescribeTopicPartitionsResponseTopic] = []
    response.topics = described
    for name in names:
        if name < start_topic:
            continue
        first = start_index if name == start_topic else 0
        if remaining == 0:
            response.next_cursor = _cursor(name, first)
            break
        topic = _describe(context, name, first, remaining)
        described.append(topic)
        remaining -= len(topic.partitions)
        known = topics.get(name)
        if known is not None and first + len(topic.partitions) < len(known.partitions):
            response.next_cursor = _cursor(name, first + len(topic.partitions))
            break
    return response


def _fail_all(
    context: RequestContext, request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return ErrorResponseBuilder(context, code).build(request) or DescribeTopicPartitionsResponse()


def _cursor(name: str, index: int) -> DescribeTopicPartitionsResponseCursor:
    return DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=index)


def _describe(
    context: RequestContext, name: str, first: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    topic = context.cluster.topics.get(name)
    if topic is None:
        try:
            validate_topic_name(name)
        except InvalidTopicError:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeTopicPartitionsResponseTopic(
            error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
        )
    alive = set(context.cluster.alive_broker_ids())
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(entry, alive) for entry in topic.partitions[first : first + limit]],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(partition: Partition, alive: set[int]) -> DescribeTopicPartitionsResponsePartition:
    led = partition.leader != NO_LEADER
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )


ROUTE = Route(75, 0, 0, handle)
