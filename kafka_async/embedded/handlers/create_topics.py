"""CreateTopics: any broker takes it, as in KRaft, where it goes on to the controller."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka_async.embedded.codes import code_of
from kafka_async.embedded.configs import TOPIC_CONFIGS, ConfigSource, synonyms
from kafka_async.embedded.context import Route
from kafka_async.errors import (
    InvalidConfigError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    KafkaError,
)
from kafka_async.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.settings import Settings


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Each topic, made or refused by itself."""
    times = Counter(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            _topic(context, request, topic, repeated=times[topic.name] > 1)
            for topic in {topic.name: topic for topic in request.topics}.values()
        ]
    )


def _topic(
    context: RequestContext, request: CreateTopicsRequest, topic: CreatableTopic, *, repeated: bool
) -> CreatableTopicResult:
    try:
        if repeated:
            raise InvalidRequestError("Duplicate topic name.")
        return _create(context, request, topic)
    except KafkaError as error:
        return CreatableTopicResult(
            name=topic.name,
            error_code=code_of(error),
            error_message=error.message,
        )


def _create(
    context: RequestContext, request: CreateTopicsRequest, asked: CreatableTopic
) -> CreatableTopicResult:
    topics = context.cluster.topics
    if len({entry.partition_index for entry in asked.assignments}) < len(asked.assignments):
        raise InvalidReplicaAssignmentError("A partition is assigned twice.")
    assignments = {entry.partition_index: entry.broker_ids for entry in asked.assignments}
    if assignments and (asked.num_partitions != -1 or asked.replication_factor != -1):
        raise InvalidRequestError(
            "A manual assignment excludes a number of partitions or replicas."
        )
    configs: dict[str, str] = {}
    for entry in asked.configs:
        if entry.value is None:
            raise InvalidConfigError(f"Null value not supported for topic configs: {entry.name}")
        configs[entry.name] = entry.value
    count = None if asked.num_partitions == -1 else asked.num_partitions
    placement = topics.plan(
        asked.name, count, asked.replication_factor, assignments or None, configs
    )
    result = CreatableTopicResult(
        name=asked.name,
        num_partitions=len(placement),
        replication_factor=len(placement[0]),
        configs=[_config(context.cluster.settings, configs, name) for name in TOPIC_CONFIGS],
        error_message=None,
    )
    if request.validate_only:
        result.topic_id = topics.new_id()
    else:
        topic = topics.create(asked.name, assignments=dict(enumerate(placement)), configs=configs)
        result.topic_id = topic.id
    return result


def _config(settings: Settings, own: Mapping[str, str], name: str) -> CreatableTopicConfigs:
    """Return a new topic's configuration; what was asked for is repeated as it was written."""
    origins = synonyms(settings, name, own)
    value = origins[0].value if origins else TOPIC_CONFIGS[name].default
    return CreatableTopicConfigs(
        name=name,
        value=own.get(name, value),
        config_source=origins[0].source if origins else ConfigSource.DEFAULT,
    )


ROUTE = Route(19, 2, 7, handle)
