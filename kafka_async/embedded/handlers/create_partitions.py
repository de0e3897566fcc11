"""CreatePartitions: more partitions for a topic."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka_async.embedded.codes import Code, code_of
from kafka_async.embedded.context import Route
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
    """Each topic, grown or refused by itself."""
    times = Counter(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=name, error_code=Code.INVALID_REQUEST, error_message="Duplicate topic name."
            )
            if times[name] > 1
            else _topic(context, topic, dry_run=request.validate_only)
            for name, topic in {topic.name: topic for topic in request.topics}.items()
        ]
    )


def _topic(
    context: RequestContext, asked: CreatePartitionsTopic, *, dry_run: bool
) -> CreatePartitionsTopicResult:
    assignments = (
        None if asked.assignments is None else [entry.broker_ids for entry in asked.assignments]
    )
    try:
        context.cluster.topics.grow(asked.name, asked.count, assignments, dry_run=dry_run)
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=asked.name,
            error_code=code_of(error),
            error_message=None
            if isinstance(error, UnknownTopicOrPartitionError)
            else error.message,
        )
    return CreatePartitionsTopicResult(name=asked.name)


ROUTE = Route(37, 0, 3, handle)
