"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.request_validation import ISOLATION_LEVELS
from kafka_async.embedded.state.acls import Operation
from kafka_async.embedded.state.topics import is_internal, validate_topic_name
from kafka_async.errors import (
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    UnknownServerError,
    UnsupportedVersionError,
)
from kafka_async.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafka_async.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafka_async.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kafka_async.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.state.log import PartitionLog
    from kafka_async.embedded.state.topics import TopicTable

NO_OFFSET_FOUND: Final = OffsetAndTimestamp(-1, -1, -1)
READ_COMMITTED: Final = 1
NO_TRANSACTION_OFFSET: Final = -1


def _latest(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(log.max_readable_offset(committed=committed), -1, log.leader_epoch)


def _earliest(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(log.start_offset, -1, log.epoch_for_offset(log.start_offset))


def _max_timestamp(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return log.offset_of_max_timestamp() or NO_OFFSET_FOUND


def _no_tiered_offset(log: PartitionLog, committed: bool) -> OffsetAndTimestamp:
    return NO_OFFSET_FOUND


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


async def list_offsets(
    topics: TopicTable,
    authorization: Authorization,
    context: RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse:
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
                    _list_offset(
                        context,
                        request,
                        TopicPartition(topic.name, index),
                        requested,
                        topics,
                        authorization,
                        duplicate=counts[topic.name, index] > 1,
                    )
                    for index, requested in {
                        it.partition_index: it for it in topic.partitions
                    }.items()
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offset(
    context: RequestContext,
    request: ListOffsetsRequest,
    tp: TopicPartition,
    requested: ListOffsetsPartition,
    topics: TopicTable,
    authorization: Authorization,
    *,
    duplicate: bool,
) -> ListOffsetsPartitionResponse:
    committed = request.isolation_level == READ_COMMITTED
    try:
        if request.isolation_level not in ISOLATION_LEVELS:
            raise UnknownServerError(f"there is no isolation level {request.isolation_level}")
        authorization.require_topic(context, Operation.DESCRIBE, tp.topic)
        if duplicate:
            raise InvalidRequestError("a partition is listed twice")
        partition = topics.leader_partition(context.broker.id, tp, requested.current_leader_epoch)
        found = _find_offset(context.version, partition.log, requested.timestamp, committed)
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


def _find_offset(
    version: int, log: PartitionLog, timestamp: int, committed: bool
) -> OffsetAndTimestamp:
    if timestamp >= 0:
        return log.fetch_offset_by_timestamp(timestamp, committed=committed) or NO_OFFSET_FOUND
    min_version, find = SPECIAL_TIMESTAMPS.get(timestamp, (version + 1, _latest))
    if version < min_version:
        raise UnsupportedVersionError(f"version {version} has no timestamp {timestamp}")
    return find(log, committed)


async def offset_for_leader_epoch(
    topics: TopicTable,
    authorization: Authorization,
    context: RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse:
    """Return the end offset of each requested epoch."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _epoch_end_offset(context, topic.topic, requested, topics, authorization)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _epoch_end_offset(
    context: RequestContext,
    topic: str,
    requested: OffsetForLeaderPartition,
    topics: TopicTable,
    authorization: Authorization,
) -> EpochEndOffset:
    try:
        if not authorization.allows_cluster(context, Operation.CLUSTER_ACTION):
            authorization.require_topic(context, Operation.DESCRIBE, topic)
        partition = topics.leader_partition(
            context.broker.id,
            TopicPartition(topic, requested.partition),
            requested.current_leader_epoch,
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


async def delete_records(
    topics: TopicTable,
    authorization: Authorization,
    context: RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse:
    """Return the log start offset of each partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete_records_of(context, topic.name, requested, topics, authorization)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete_records_of(
    context: RequestContext,
    topic: str,
    requested: DeleteRecordsPartition,
    topics: TopicTable,
    authorization: Authorization,
) -> DeleteRecordsPartitionResult:
    try:
        authorization.require_topic(context, Operation.DELETE, topic)
        if is_internal(topic):
            raise InvalidTopicError(f"Cannot delete records of internal topic {topic}")
        tp = TopicPartition(topic, requested.partition_index)
        partition = topics.leader_partition(context.broker.id, tp)
        if not partition.log.allows_record_deletion:
            raise PolicyViolationError("the topic's cleanup.policy does not delete")
        low_watermark = partition.log.delete_records_before(requested.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=requested.partition_index,
            low_watermark=-1,
            error_code=error_code_of(error),
        )
    return DeleteRecordsPartitionResult(
        partition_index=requested.partition_index, low_watermark=low_watermark
    )


async def describe_producers(
    topics: TopicTable,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse:
    """Describe the producers of each partition; errors are per partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe_producers_of(
                        context, TopicPartition(topic.name, index), topics, authorization
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_producers_of(
    context: RequestContext, tp: TopicPartition, topics: TopicTable, authorization: Authorization
) -> PartitionResponse:
    try:
        validate_topic_name(tp.topic)
        authorization.require_topic(context, Operation.READ, tp.topic)
        partition = topics.replica_partition(context.broker.id, tp)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=tp.partition,
            error_code=error_code_of(error),
            # As in Kafka, no message if the topic exists.
            error_message=None if topics.get(tp.topic) else error.message,
        )
    manager = partition.log.producer_state_manager
    return PartitionResponse(
        partition_index=tp.partition,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=NO_TRANSACTION_OFFSET if start is None else start,
            )
            for producer_id, state in manager.producers.items()
            for start in [manager.current_txn_start_offset(producer_id)]
        ],
    )
