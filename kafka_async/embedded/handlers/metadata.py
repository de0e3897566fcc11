"""Metadata: brokers, topics and leaders; creates missing topics if both sides allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.error_responses import ErrorResponseBuilder
from kafka_async.embedded.partition import NO_LEADER
from kafka_async.embedded.request_validation import has_unsupported_topic_id, lacks_name_and_id
from kafka_async.embedded.topics import is_internal
from kafka_async.errors import InvalidReplicationFactorError, InvalidTopicError
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.partition import Partition, Topic

TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""All operations on a topic as bits (KIP-430): there is no authorization."""

_POSITIONS: Final[dict[int, int]] = {ErrorCode.UNKNOWN_TOPIC_ID: 0, ErrorCode.NONE: 1}
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""All operations on a cluster as bits (KIP-430)."""


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Return the alive brokers and the requested topics, or all."""
    cluster = context.cluster
    if (code := _validate(context, request)) is not ErrorCode.NONE:
        response = ErrorResponseBuilder(context, code).build(request) or MetadataResponse()
        for topic in response.topics:
            topic.name = topic.name or ""
        return response
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in cluster.brokers.values()
            if broker.alive
        ],
        cluster_id=cluster.settings.cluster_id,
        controller_id=cluster.controller_id,
        topics=_topics(context, request),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _validate(context: RequestContext, request: MetadataRequest) -> ErrorCode:
    """Return the error code of a malformed request, else NONE."""
    for topic in request.topics or ():
        if lacks_name_and_id(topic):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if has_unsupported_topic_id(topic, context.version):
            return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _topics(context: RequestContext, request: MetadataRequest) -> list[MetadataResponseTopic]:
    requested = request.topics
    if requested is None or (context.version == 0 and not requested):
        return [_describe(context, request, topic) for topic in context.cluster.topics]
    unique = dict.fromkeys((topic.name or "", topic.topic_id) for topic in requested)
    described = [_topic(context, request, name, topic_id) for name, topic_id in unique]
    return sorted(described, key=_position)


def _position(topic: MetadataResponseTopic) -> int:
    """Return a topic's position: unknown ids are first, unknown and invalid names last."""
    return _POSITIONS.get(topic.error_code, len(_POSITIONS))


def _topic(
    context: RequestContext, request: MetadataRequest, name: str, topic_id: UUID
) -> MetadataResponseTopic:
    topics = context.cluster.topics
    if topic_id != ZERO_UUID:
        topic = topics.by_id(topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                name=None if context.version >= 12 else "",
                topic_id=topic_id,
            )
        return _describe(context, request, topic)
    topic = topics.get(name)
    if topic is not None:
        return _describe(context, request, topic)
    return MetadataResponseTopic(
        error_code=_create_missing(context, request, name), name=name, is_internal=is_internal(name)
    )


def _create_missing(context: RequestContext, request: MetadataRequest, name: str) -> ErrorCode:
    """Create a missing topic if possible; return its error code in this response."""
    cluster = context.cluster
    try:
        if cluster.settings.auto_create_topics and request.allow_auto_topic_creation:
            create = (
                cluster.topics.create_internal_topic if is_internal(name) else cluster.topics.create
            )
            create(name)
        else:
            cluster.topics.plan_assignment(name)
    except InvalidTopicError:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    except InvalidReplicationFactorError:
        return ErrorCode.INVALID_REPLICATION_FACTOR
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _describe(
    context: RequestContext, request: MetadataRequest, topic: Topic
) -> MetadataResponseTopic:
    alive = set(context.cluster.alive_broker_ids())
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(partition, alive) for partition in topic.partitions],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = TOPIC_OPERATIONS
    return described


def _partition(partition: Partition, alive: set[int]) -> MetadataResponsePartition:
    led = partition.leader != NO_LEADER
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )


ROUTE = Route(3, 0, 13, handle)
