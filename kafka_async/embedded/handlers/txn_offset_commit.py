"""TxnOffsetCommit: offsets that are committed with their transaction (KIP-98, KIP-447, KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.offset_commit import OffsetCommit
from kafka_async.embedded.transactions.transaction_coordinator import offsets_topic_partition
from kafka_async.embedded.transactions.transaction_metadata import ProducerIdAndEpoch
from kafka_async.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

TRANSACTION_ABORTABLE_MIN_VERSION: Final = 4
IMPLICIT_ADD_MIN_VERSION: Final = 5
TOPIC_ID_MIN_VERSION: Final = 6


async def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Store pending offsets; from version 5 on this adds the group to the transaction."""
    code = _check(context, request)
    commit = OffsetCommit(
        context.cluster, code, uses_topic_ids=context.version >= TOPIC_ID_MIN_VERSION
    )
    response = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=commit.add(topic, partition),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    groups = context.cluster.groups
    groups.offsets.commit_transactional(request.group_id, request.producer_id, commit.offsets)
    return response


def _check(context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    groups = context.cluster.groups
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is ErrorCode.NONE and not request.transactional_id:
        code = ErrorCode.INVALID_REQUEST
    if code is ErrorCode.NONE:
        code = context.cluster.transactions.add_or_verify_partition(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            offsets_topic_partition(request.group_id),
            implicit_add=context.version >= IMPLICIT_ADD_MIN_VERSION,
            supports_abortable=context.version >= TRANSACTION_ABORTABLE_MIN_VERSION,
        )
    if code is not ErrorCode.NONE:
        return code
    return groups.validate_offset_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        transactional=True,
        unknown_group=ErrorCode.ILLEGAL_GENERATION,
    )


ROUTE = Route(28, 0, 6, handle)
