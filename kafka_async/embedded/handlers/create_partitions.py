"""CreatePartitions: adds partitions to topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.errors import KafkaError, UnknownTopicOrPartitionError
from kafka_async.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext


async def handle(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each topic; errors are per topic."""
    counts = Counter(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="Duplicate topic name.",
            )
            if counts[name] > 1
            else _topic(context, topic, dry_run=request.validate_only)
            for name, topic in {topic.name: topic for topic in request.topics}.items()
        ]
    )


def _topic(
    context: RequestContext, topic: CreatePartitionsTopic, *, dry_run: bool
) -> CreatePartitionsTopicResult:
    assignments = (
        None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    )
    try:
        context.cluster.topics.add_partitions(topic.name, topic.count, assignments, dry_run=dry_run)
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=topic.name,
            error_code=error_code_of(error),
            error_message=None
            if isinstance(error, UnknownTopicOrPartitionError)
            else error.message,
        )
    return CreatePartitionsTopicResult(name=topic.name)


ROUTE = Route(37, 0, 3, handle)
