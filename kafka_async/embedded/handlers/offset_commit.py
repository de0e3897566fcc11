"""OffsetCommit: commits offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.offset_commit import OffsetCommit
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.offset_commit import OffsetCommitRequest

GROUP_ID_NOT_FOUND_MIN_VERSION: Final = 9
TOPIC_ID_MIN_VERSION: Final = 10


async def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit the valid offsets; errors are per partition, or the same for all."""
    groups = context.cluster.groups
    code = groups.check_coordinator(context.broker.id, request.group_id, allow_empty_group_id=True)
    if code is ErrorCode.NONE:
        knows_missing = context.version >= GROUP_ID_NOT_FOUND_MIN_VERSION
        code = groups.validate_offset_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            unknown_group=ErrorCode.GROUP_ID_NOT_FOUND
            if knows_missing
            else ErrorCode.ILLEGAL_GENERATION,
        )
    commit = OffsetCommit(
        context.cluster, code, uses_topic_ids=context.version >= TOPIC_ID_MIN_VERSION
    )
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=commit.add(topic, partition),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    groups.offsets.commit(request.group_id, commit.offsets)
    return response


ROUTE = Route(8, 2, 10, handle)
