"""CreateTopics, CreatePartitions and DeleteTopics: any broker handles them, as in KRaft."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.embedded.state.configs import TOPIC_CONFIGS, ConfigSource, synonyms
from kafka_async.errors import (
    InvalidConfigError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    KafkaError,
    PolicyViolationError,
    ThrottlingQuotaExceededError,
    UnknownTopicOrPartitionError,
)
from kafka_async.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kafka_async.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafka_async.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.quotas.quota_manager import QuotaManager
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.topics import TopicTable


CREATE_TOPICS_STRICT_FROM: Final = 6
CREATE_PARTITIONS_STRICT_FROM: Final = 3
DELETE_TOPICS_STRICT_FROM: Final = 5
"""First versions whose clients handle THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Maximum partitions that one request can create, as in Kafka's controller."""


class MutationQuota:
    """Counts the partitions that a request creates or deletes, against its client's quota.

    Requests of versions before KIP-599 always succeed. In later versions, each topic after the
    quota was exceeded gets an error.
    """

    def __init__(self, quotas: QuotaManager, context: RequestContext, strict_from: int) -> None:
        self.throttle_time_ms = 0
        self._quotas = quotas
        self._context = context
        self._strict = context.version >= strict_from

    def record(self, partitions: int) -> None:
        """Count partitions; raise ThrottlingQuotaExceededError if the quota is already exceeded."""
        client, now = self._context.quota_client, asyncio.get_running_loop().time()
        if self._strict and (debt := self._quotas.mutation_debt(client, now)):
            self.throttle_time_ms = round(debt * 1000)
            raise ThrottlingQuotaExceededError
        throttle = self._quotas.record_mutations(client, partitions, now)
        if not self._strict:
            self.throttle_time_ms = round(throttle * 1000)


def _message(error: KafkaError) -> str | None:
    """Return the message of a response: none with THROTTLING_QUOTA_EXCEEDED, as in Kafka."""
    return None if isinstance(error, ThrottlingQuotaExceededError) else error.message


async def create_topics(
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    quotas: QuotaManager,
    context: RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse:
    """Create each topic; errors are per topic."""
    counts = Counter(topic.name for topic in request.topics)
    partitions = sum(len(row.assignments) or max(row.num_partitions, 0) for row in request.topics)
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(
                    name=name,
                    error_code=ErrorCode.POLICY_VIOLATION,
                    error_message="Excessively large number of partitions per request.",
                )
                for name in counts
            ]
        )
    mutations = MutationQuota(quotas, context, CREATE_TOPICS_STRICT_FROM)
    response = CreateTopicsResponse(
        topics=[
            _create_topic(
                context,
                request,
                topic,
                topics,
                settings,
                authorization,
                mutations,
                duplicate=counts[topic.name] > 1,
            )
            for topic in {topic.name: topic for topic in request.topics}.values()
        ]
    )
    response.throttle_time_ms = mutations.throttle_time_ms
    return response


def _create_topic(
    context: RequestContext,
    request: CreateTopicsRequest,
    topic: CreatableTopic,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    mutations: MutationQuota,
    *,
    duplicate: bool,
) -> CreatableTopicResult:
    try:
        if duplicate:
            raise InvalidRequestError("Duplicate topic name.")
        if not authorization.allows_cluster(context, Operation.CREATE):
            authorization.require_topic(context, Operation.CREATE, topic.name)
        created = _create(request, topic, topics, settings, mutations)
    except KafkaError as error:
        return CreatableTopicResult(
            name=topic.name,
            error_code=error_code_of(error),
            error_message=_message(error),
        )
    resource = (ResourceType.TOPIC, topic.name)
    if code := authorization.code(context, Operation.DESCRIBE_CONFIGS, *resource):
        return CreatableTopicResult(
            name=created.name,
            topic_id=created.topic_id,
            error_message=None,
            topic_config_error_code=code,
        )
    return created


def _create(
    request: CreateTopicsRequest,
    topic_request: CreatableTopic,
    topics: TopicTable,
    settings: Settings,
    mutations: MutationQuota,
) -> CreatableTopicResult:
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
        configs=[_created_config(settings, configs, name) for name in TOPIC_CONFIGS],
        error_message=None,
    )
    mutations.record(len(assignment))
    if request.validate_only:
        result.topic_id = topics.new_id()
    else:
        topic = topics.create(
            topic_request.name, assignments=dict(enumerate(assignment)), configs=configs
        )
        result.topic_id = topic.id
    return result


def _created_config(settings: Settings, own: Mapping[str, str], name: str) -> CreatableTopicConfigs:
    """Return a new topic's configuration; values of the request are returned unchanged."""
    origins = synonyms(settings, name, own)
    value = origins[0].value if origins else TOPIC_CONFIGS[name].default
    return CreatableTopicConfigs(
        name=name,
        value=own.get(name, value),
        config_source=origins[0].source if origins else ConfigSource.DEFAULT,
    )


async def create_partitions(
    topics: TopicTable,
    authorization: Authorization,
    quotas: QuotaManager,
    context: RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse:
    """Add partitions to each topic; errors are per topic."""
    counts = Counter(topic.name for topic in request.topics)
    mutations = MutationQuota(quotas, context, CREATE_PARTITIONS_STRICT_FROM)
    response = CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="Duplicate topic name.",
            )
            if counts[name] > 1
            else _create_partitions_of(
                context, topic, topics, authorization, mutations, dry_run=request.validate_only
            )
            for name, topic in {topic.name: topic for topic in request.topics}.items()
        ]
    )
    response.throttle_time_ms = mutations.throttle_time_ms
    return response


def _create_partitions_of(
    context: RequestContext,
    topic: CreatePartitionsTopic,
    topics: TopicTable,
    authorization: Authorization,
    mutations: MutationQuota,
    *,
    dry_run: bool,
) -> CreatePartitionsTopicResult:
    assignments = (
        None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    )
    try:
        authorization.require_topic(context, Operation.ALTER, topic.name)
        existing = topics.get(topic.name)
        more = topic.count - (0 if existing is None else len(existing.partitions))
        if existing is not None and more > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError("Unable to perform excessively large batch operation.")
        topics.add_partitions(topic.name, topic.count, assignments, dry_run=True)
        mutations.record(more)
        if not dry_run:
            topics.add_partitions(topic.name, topic.count, assignments)
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=topic.name,
            error_code=error_code_of(error),
            error_message=None
            if isinstance(error, UnknownTopicOrPartitionError)
            else _message(error),
        )
    return CreatePartitionsTopicResult(name=topic.name)


async def delete_topics(
    topics: TopicTable,
    authorization: Authorization,
    quotas: QuotaManager,
    context: RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse:
    """Delete each topic; errors are per topic."""
    requested = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    counts = Counter((topic.name, topic.topic_id) for topic in requested)
    unique = {(topic.name, topic.topic_id): topic for topic in requested}
    mutations = MutationQuota(quotas, context, DELETE_TOPICS_STRICT_FROM)
    response = DeleteTopicsResponse(
        responses=[
            _delete_topic(
                context, topic, topics, authorization, mutations, duplicate=counts[key] > 1
            )
            for key, topic in unique.items()
        ]
    )
    response.throttle_time_ms = mutations.throttle_time_ms
    return response


def _delete_topic(
    context: RequestContext,
    requested: DeleteTopicState,
    topics: TopicTable,
    authorization: Authorization,
    mutations: MutationQuota,
    *,
    duplicate: bool,
) -> DeletableTopicResult:
    by_id = requested.topic_id != ZERO_UUID
    shown, shown_id = requested.name, requested.topic_id
    try:
        if duplicate:
            raise InvalidRequestError("Duplicate topic name or id.")
        if by_id == (requested.name is not None):
            raise InvalidRequestError("Specify a topic's name or its id, not both.")
        name = topics.resolve_name(requested.name or "", requested.topic_id, by_id=by_id)
        if not authorization.allows_cluster(context, Operation.DELETE):
            if authorization.allows_topic(context, Operation.DESCRIBE, name):
                shown = name
                if not by_id and topics.get(name) is None:
                    raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
            authorization.require_topic(context, Operation.DELETE, name)
        if (existing := topics.get(name)) is not None:
            shown, shown_id = name, existing.id
            mutations.record(len(existing.partitions))
        topic = topics.delete(name)
    except KafkaError as error:
        return DeletableTopicResult(
            name=shown if shown is not None or context.version >= 6 else "",
            topic_id=shown_id,
            error_code=error_code_of(error),
            error_message=_message(error),
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)
