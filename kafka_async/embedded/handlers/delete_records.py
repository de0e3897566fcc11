"""DeleteRecords: deletes the records below an offset, all with -1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.handlers.partition_lookup import leader_partition
from kafka_async.embedded.topics import is_internal
from kafka_async.errors import InvalidTopicError, KafkaError, PolicyViolationError
from kafka_async.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Return the log start offset of each partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _partition(context, topic.name, requested) for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext, topic: str, requested: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        if is_internal(topic):
            raise InvalidTopicError(f"Cannot delete records of internal topic {topic}")
        partition = leader_partition(context, topic, requested.partition_index)
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


ROUTE = Route(21, 0, 2, handle)
