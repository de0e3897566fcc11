"""DeleteTopics: by name, or by id from version 6 on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka_async.embedded.codes import code_of
from kafka_async.embedded.context import Route
from kafka_async.embedded.handlers.leadership import topic_name
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
    """Each topic, dropped or refused by itself."""
    asked = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    once = {(topic.name, topic.topic_id): topic for topic in asked}
    return DeleteTopicsResponse(
        responses=[_topic(context, topic, repeated=times[key] > 1) for key, topic in once.items()]
    )


def _topic(
    context: RequestContext, asked: DeleteTopicState, *, repeated: bool
) -> DeletableTopicResult:
    by_id = asked.topic_id != ZERO_UUID
    try:
        if repeated:
            raise InvalidRequestError("Duplicate topic name or id.")
        if by_id == (asked.name is not None):
            raise InvalidRequestError("A topic is deleted by its name or by its id.")
        name = topic_name(context, asked.name or "", asked.topic_id, by_id=by_id)
        topic = context.cluster.topics.delete(name)
    except KafkaError as error:
        return DeletableTopicResult(
            name=asked.name if asked.name is not None or context.version >= 6 else "",
            topic_id=asked.topic_id,
            error_code=code_of(error),
            error_message=error.message,
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


ROUTE = Route(20, 1, 6, handle)
