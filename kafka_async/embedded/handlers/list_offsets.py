"""ListOffsets: the earliest, the latest, or the offset for a timestamp."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.handlers.partition_lookup import leader_partition
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

NO_OFFSET: Final = OffsetAndTimestamp(-1, -1, -1)
READ_COMMITTED: Final = 1


def _latest(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(log.max_readable_offset(committed=committed), -1, log.leader_epoch)


def _earliest(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(log.start_offset, -1, log.epoch_for_offset(log.start_offset))


def _max_timestamp(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return log.offset_of_max_timestamp() or NO_OFFSET


def _no_tiered_offset(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return NO_OFFSET


SPECIAL_TIMESTAMPS: Final[
    dict[int, tuple[int, Callable[[PartitionLog, bool], OffsetAndTimestamp]]]
] = {
    -1: (0, _latest),
    -2: (0, _earliest),
    -3: (7, _max_timestamp),
    -4: (8, _earliest),  # earliest local offset: all data is local
    -5: (9, _no_tiered_offset),
    -6: (11, _no_tiered_offset),
}
"""Special timestamps with their first version and their lookup."""


async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return one offset per partition; a duplicate partition gets one error."""
    counts = Counter(
        (topic.name, requested.partition_index)
        for topic in request.topics
        for requested in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(context, request, topic.name, requested, counts[topic.name, index])
                    for index, requested in {
                        it.partition_index: it for it in topic.partitions
                    }.items()
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    requested: ListOffsetsPartition,
    count: int,
) -> ListOffsetsPartitionResponse:
    committed = request.isolation_level == READ_COMMITTED
    try:
        if count > 1:
            raise InvalidRequestError("a partition is listed twice")
        if request.isolation_level not in ISOLATION_LEVELS:
            raise UnknownServerError(f"there is no isolation level {request.isolation_level}")
        partition = leader_partition(
            context, topic, requested.partition_index, requested.current_leader_epoch
        )
        found = _find(context, partition.log, requested.timestamp, committed)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            error_code=error_code_of(error),
        )
    response = ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, timestamp=found.timestamp, offset=found.offset
    )
    if context.version >= 4 and found.leader_epoch is not None:
        response.leader_epoch = found.leader_epoch
    return response


def _find(
    context: RequestContext, log: PartitionLog, timestamp: int, committed: bool
) -> OffsetAndTimestamp:
    if timestamp >= 0:
        return log.fetch_offset_by_timestamp(timestamp, committed=committed) or NO_OFFSET
    min_version, find = SPECIAL_TIMESTAMPS.get(timestamp, (context.version + 1, _latest))
    if context.version < min_version:
        raise UnsupportedVersionError(f"version {context.version} has no timestamp {timestamp}")
    return find(log, committed)


ROUTE = Route(2, 1, 11, handle)
