"""Metadata: brokers, topics and leaders; creates missing topics if both sides allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.partition import NO_LEADER
from kafka_async.embedded.refusal import Refusal
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
"""Everything one may do to a topic, as KIP-430's bits: nobody is refused anything here."""

_PLACES: Final[dict[int, int]] = {Code.UNKNOWN_TOPIC_ID: 0, Code.NONE: 1}
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""Everything one may do to a cluster."""


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """The brokers that are alive, and the topics that were asked for (or all)."""
    cluster = context.cluster
    if (code := _malformed(context, request)) is not Code.NONE:
        response = Refusal(context, code).whole(request) or MetadataResponse()
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


def _malformed(context: RequestContext, request: MetadataRequest) -> Code:
    """Return why a request cannot be read."""
    for topic in request.topics or ():
        if lacks_name_and_id(topic):
            return Code.UNKNOWN_SERVER_ERROR
        if has_unsupported_topic_id(topic, context.version):
            return Code.INVALID_REQUEST
    return Code.NONE


def _topics(context: RequestContext, request: MetadataRequest) -> list[MetadataResponseTopic]:
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        return [_describe(context, request, topic) for topic in context.cluster.topics]
    wanted = dict.fromkeys((topic.name or "", topic.topic_id) for topic in asked)
    described = [_topic(context, request, name, topic_id) for name, topic_id in wanted]
    return sorted(described, key=_place)


def _place(topic: MetadataResponseTopic) -> int:
    """Return where a topic stands: unknown ids come first, unknown and invalid names last."""
    return _PLACES.get(topic.error_code, len(_PLACES))


def _topic(
    context: RequestContext, request: MetadataRequest, name: str, topic_id: UUID
) -> MetadataResponseTopic:
    topics = context.cluster.topics
    if topic_id != ZERO_UUID:
        topic = topics.by_id(topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=Code.UNKNOWN_TOPIC_ID,
                name=None if context.version >= 12 else "",
                topic_id=topic_id,
            )
        return _describe(context, request, topic)
    topic = topics.get(name)
    if topic is not None:
        return _describe(context, request, topic)
    return MetadataResponseTopic(
        error_code=_missing(context, request, name), name=name, is_internal=is_internal(name)
    )


def _missing(context: RequestContext, request: MetadataRequest, name: str) -> Code:
    """Why a topic is not there. One that is created now is there for the next request."""
    cluster = context.cluster
    try:
        if cluster.settings.auto_create_topics and request.allow_auto_topic_creation:
            create = cluster.topics.create_internal if is_internal(name) else cluster.topics.create
            create(name)
        else:
            cluster.topics.plan(name)
    except InvalidTopicError:
        return Code.INVALID_TOPIC_EXCEPTION
    except InvalidReplicationFactorError:
        return Code.INVALID_REPLICATION_FACTOR
    return Code.UNKNOWN_TOPIC_OR_PARTITION


def _describe(
    context: RequestContext, request: MetadataRequest, topic: Topic
) -> MetadataResponseTopic:
    alive = set(context.cluster.alive())
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
        error_code=Code.NONE if led else Code.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )


ROUTE = Route(3, 0, 13, handle)
