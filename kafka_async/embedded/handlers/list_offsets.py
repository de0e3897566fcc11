"""ListOffsets: the first and the next offset, or one by time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import code_of
from kafka_async.embedded.context import Route
from kafka_async.embedded.handlers.leadership import led_partition
from kafka_async.embedded.request_validation import ISOLATION_LEVELS
from kafka_async.errors import (
    InvalidRequestError,
    KafkaError,
    UnknownServerError,
    UnsupportedVersionError,
)
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafka_async.types import OffsetAndTimestamp

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.log import PartitionLog

NONE: Final = OffsetAndTimestamp(-1, -1, -1)
READ_COMMITTED: Final = 1


def _latest(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(log.upper(committed=committed), -1, log.leader_epoch)


def _earliest(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(log.start_offset, -1, log.epoch_of(log.start_offset))


def _max_timestamp(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return log.latest_time() or NONE


def _nothing_tiered(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return NONE


SPECIAL: Final[dict[int, tuple[int, Callable[[PartitionLog, bool], OffsetAndTimestamp]]]] = {
    -1: (0, _latest),
    -2: (0, _earliest),
    -3: (7, _max_timestamp),
    -4: (8, _earliest),  # of what is on local disks: everything
    -5: (9, _nothing_tiered),
    -6: (11, _nothing_tiered),
}
"""Timestamps that mean something else, with the version that knows them first."""


async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return one offset per partition; a partition that is listed twice is refused once."""
    times = Counter(
        (topic.name, asked.partition_index)
        for topic in request.topics
        for asked in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(context, request, topic.name, asked, times[topic.name, index])
                    for index, asked in {it.partition_index: it for it in topic.partitions}.items()
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    times: int,
) -> ListOffsetsPartitionResponse:
    committed = request.isolation_level == READ_COMMITTED
    try:
        if times > 1:
            raise InvalidRequestError("a partition is listed twice")
        if request.isolation_level not in ISOLATION_LEVELS:
            raise UnknownServerError(f"there is no isolation level {request.isolation_level}")
        partition = led_partition(context, topic, asked.partition_index, asked.current_leader_epoch)
        found = _find(context, partition.log, asked.timestamp, committed)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=code_of(error),
        )
    answer = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=found.timestamp, offset=found.offset
    )
    if context.version >= 4 and found.leader_epoch is not None:
        answer.leader_epoch = found.leader_epoch
    return answer


def _find(
    context: RequestContext, log: PartitionLog, timestamp: int, committed: bool
) -> OffsetAndTimestamp:
    if timestamp >= 0:
        return log.offset_for_time(timestamp, committed=committed) or NONE
    since, find = SPECIAL.get(timestamp, (context.version + 1, _latest))
    if context.version < since:
        raise UnsupportedVersionError(f"version {context.version} has no timestamp {timestamp}")
    return find(log, committed)


ROUTE = Route(2, 1, 11, handle)
