"""OffsetCommit: note how far a group has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.groups.commits import Commit
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.offset_commit import OffsetCommitRequest

KNOWS_MISSING_GROUPS: Final = 9
BY_TOPIC_ID: Final = 10


async def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """All partitions fail alike if the member is wrong; else each has its own answer."""
    groups = context.cluster.groups
    code = groups.route(context.broker.id, request.group_id, unnamed=True)
    if code is Code.NONE:
        knows_missing = context.version >= KNOWS_MISSING_GROUPS
        code = groups.check_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            unknown_group=Code.GROUP_ID_NOT_FOUND if knows_missing else Code.ILLEGAL_GENERATION,
        )
    commit = Commit(context.cluster, code, by_id=context.version >= BY_TOPIC_ID)
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=commit.take(topic, partition),
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
