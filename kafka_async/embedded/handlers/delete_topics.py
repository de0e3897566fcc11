"""DeleteTopics: by name, or by id from version 6 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.handlers.leadership import topic_name
from kafka_async.errors import KafkaError
from kafka_async.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Each topic, dropped or refused by itself."""
    asked = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    return DeleteTopicsResponse(responses=[_topic(context, topic) for topic in asked])


def _topic(context: RequestContext, asked: DeleteTopicState) -> DeletableTopicResult:
    try:
        name = topic_name(context, asked.name or "", asked.topic_id)
        topic = context.cluster.topics.delete(name)
    except KafkaError as error:
        return DeletableTopicResult(
            name=asked.name if asked.name is not None or context.version >= 6 else "",
            topic_id=asked.topic_id,
            error_code=Code.UNKNOWN_SERVER_ERROR if error.code is None else error.code,
            error_message=error.message,
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


ROUTE = Route(20, 1, 6, handle)
