"""TxnOffsetCommit: offsets that count once their transaction commits (KIP-98, KIP-447, KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.groups.commits import Commit
from kafka_async.embedded.transactions.coordinator import offsets_of
from kafka_async.embedded.transactions.entry import ProducerIdAndEpoch
from kafka_async.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

KNOWS_ABORTABLE: Final = 4
ADDS_OFFSETS: Final = 5
BY_TOPIC_ID: Final = 6


async def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """From version 5 on this adds the group to the transaction; before, it must be there."""
    code = _check(context, request)
    commit = Commit(context.cluster, code, by_id=context.version >= BY_TOPIC_ID)
    response = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=commit.take(topic, partition),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    groups = context.cluster.groups
    groups.offsets.stage(request.group_id, request.producer_id, commit.offsets)
    return response


def _check(context: RequestContext, request: TxnOffsetCommitRequest) -> Code:
    groups = context.cluster.groups
    code = groups.route(context.broker.id, request.group_id)
    if code is Code.NONE and not request.transactional_id:
        code = Code.INVALID_REQUEST
    if code is Code.NONE:
        code = context.cluster.transactions.admit(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            offsets_of(request.group_id),
            adds=context.version >= ADDS_OFFSETS,
            abortable=context.version >= KNOWS_ABORTABLE,
        )
    if code is not Code.NONE:
        return code
    return groups.check_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        transactional=True,
        unknown_group=Code.ILLEGAL_GENERATION,
    )


ROUTE = Route(28, 0, 6, handle)
