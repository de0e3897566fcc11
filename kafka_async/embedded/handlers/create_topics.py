"""CreateTopics: any broker handles it, as in KRaft, where brokers forward it to the controller."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka_async.embedded.configs import TOPIC_CONFIGS, ConfigSource, synonyms
from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import error_code_of
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
    """Create each topic; errors are per topic."""
    counts = Counter(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            _topic(context, request, topic, duplicate=counts[topic.name] > 1)
            for topic in {topic.name: topic for topic in request.topics}.values()
        ]
    )


def _topic(
    context: RequestContext, request: CreateTopicsRequest, topic: CreatableTopic, *, duplicate: bool
) -> CreatableTopicResult:
    try:
        if duplicate:
            raise InvalidRequestError("Duplicate topic name.")
        return _create(context, request, topic)
    except KafkaError as error:
        return CreatableTopicResult(
            name=topic.name,
            error_code=error_code_of(error),
            error_message=error.message,
        )


def _create(
    context: RequestContext, request: CreateTopicsRequest, topic_request: CreatableTopic
) -> CreatableTopicResult:
    topics = context.cluster.topics
    if len({entry.partition_index for entry in topic_request.assignments}) < len(
        topic_request.assignments
    ):
        raise InvalidReplicaAssignmentError("A partition is assigned twice.")
    assignments = {entry.partition_index: entry.broker_ids for entry in topic_request.assignments}
    if assignments and (
        topic_request.num_partitions != -1 or topic_request.replication_factor != -1
    ):
        raise InvalidRequestError(
            "A manual assignment excludes a number of partitions or replicas."
        )
    configs: dict[str, str] = {}
    for entry in topic_request.configs:
        if entry.value is None:
            raise InvalidConfigError(f"Null value not supported for topic configs: {entry.name}")
        configs[entry.name] = entry.value
    count = None if topic_request.num_partitions == -1 else topic_request.num_partitions
    assignment = topics.plan_assignment(
        topic_request.name, count, topic_request.replication_factor, assignments or None, configs
    )
    result = CreatableTopicResult(
        name=topic_request.name,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0]),
        configs=[_config(context.cluster.settings, configs, name) for name in TOPIC_CONFIGS],
        error_message=None,
    )
    if request.validate_only:
        result.topic_id = topics.new_id()
    else:
        topic = topics.create(
            topic_request.name, assignments=dict(enumerate(assignment)), configs=configs
        )
        result.topic_id = topic.id
    return result


def _config(settings: Settings, own: Mapping[str, str], name: str) -> CreatableTopicConfigs:
    """Return a new topic's configuration; values of the request are returned unchanged."""
    origins = synonyms(settings, name, own)
    value = origins[0].value if origins else TOPIC_CONFIGS[name].default
    return CreatableTopicConfigs(
        name=name,
        value=own.get(name, value),
        config_source=origins[0].source if origins else ConfigSource.DEFAULT,
    )


ROUTE = Route(19, 2, 7, handle)
