"""OffsetDelete: deletes committed offsets, unless members subscribe to the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestTopic,
    )


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete offsets of topics without subscribers; groups of non-consumers must be empty."""
    groups = context.cluster.groups
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is ErrorCode.NONE:
        code = groups.validate_offset_delete(request.group_id)
    if code is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=code)
    topics = context.cluster.topics
    unknown_first = sorted(request.topics, key=lambda topic: topics.get(topic.name) is not None)
    return OffsetDeleteResponse(
        topics=[_topic(context, request.group_id, topic) for topic in unknown_first]
    )


def _topic(
    context: RequestContext, group_id: str, topic: OffsetDeleteRequestTopic
) -> OffsetDeleteResponseTopic:
    groups = context.cluster.groups
    in_use = groups.is_subscribed(group_id, topic.name)
    partitions: list[OffsetDeleteResponsePartition] = []
    for partition in topic.partitions:
        tp = TopicPartition(topic.name, partition.partition_index)
        code = ErrorCode.NONE
        if in_use:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif context.cluster.topics.partition(tp) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            groups.offsets.delete(group_id, tp)
        partitions.append(
            OffsetDeleteResponsePartition(partition_index=tp.partition, error_code=code)
        )
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


ROUTE = Route(47, 0, 0, handle)
