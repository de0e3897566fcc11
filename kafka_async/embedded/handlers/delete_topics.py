"""DeleteTopics: by name, from version 6 on also by id."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.handlers.partition_lookup import topic_name
from kafka_async.errors import InvalidRequestError, KafkaError
from kafka_async.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic; errors are per topic."""
    requested = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    counts = Counter((topic.name, topic.topic_id) for topic in requested)
    unique = {(topic.name, topic.topic_id): topic for topic in requested}
    return DeleteTopicsResponse(
        responses=[
            _topic(context, topic, duplicate=counts[key] > 1) for key, topic in unique.items()
        ]
    )


def _topic(
    context: RequestContext, requested: DeleteTopicState, *, duplicate: bool
) -> DeletableTopicResult:
    by_id = requested.topic_id != ZERO_UUID
    try:
        if duplicate:
            raise InvalidRequestError("Duplicate topic name or id.")
        if by_id == (requested.name is not None):
            raise InvalidRequestError("Specify a topic's name or its id, not both.")
        name = topic_name(context, requested.name or "", requested.topic_id, by_id=by_id)
        topic = context.cluster.topics.delete(name)
    except KafkaError as error:
        return DeletableTopicResult(
            name=requested.name if requested.name is not None or context.version >= 6 else "",
            topic_id=requested.topic_id,
            error_code=error_code_of(error),
            error_message=error.message,
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


ROUTE = Route(20, 1, 6, handle)
