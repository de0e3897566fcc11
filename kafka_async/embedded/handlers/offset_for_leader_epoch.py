"""OffsetForLeaderEpoch: the end offset of a leader epoch, to detect truncation (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.handlers.partition_lookup import leader_partition
from kafka_async.errors import KafkaError
from kafka_async.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext


async def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return the end offset of each requested epoch."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _partition(context, topic.topic, requested) for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext, topic: str, requested: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = leader_partition(
            context, topic, requested.partition, requested.current_leader_epoch
        )
    except KafkaError as error:
        return EpochEndOffset(
            partition=requested.partition,
            error_code=error_code_of(error),
        )
    end = partition.log.end_offset_for_epoch(requested.leader_epoch)
    return EpochEndOffset(
        partition=requested.partition, leader_epoch=end.epoch, end_offset=end.offset
    )


ROUTE = Route(23, 2, 4, handle)
