"""OffsetForLeaderEpoch: where a leader's epoch ended; truncation is noticed by it (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.codes import code_of
from kafka_async.embedded.context import Route
from kafka_async.embedded.handlers.leadership import led_partition
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
    """The end of each epoch that was asked for."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_partition(context, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = led_partition(context, topic, asked.partition, asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(
            partition=asked.partition,
            error_code=code_of(error),
        )
    end = partition.log.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset
    )


ROUTE = Route(23, 2, 4, handle)
