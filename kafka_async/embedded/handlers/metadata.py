"""ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster and FindCoordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.request_validation import (
    has_unsupported_topic_id,
    has_valid_software_name,
    lacks_name_and_id,
    names_only_cluster_or_node,
)
from kafka_async.embedded.requests.error_responses import error_response
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.embedded.state.partition import NO_LEADER
from kafka_async.embedded.state.topics import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    is_internal,
    validate_topic_name,
)
from kafka_async.errors import InvalidReplicationFactorError, InvalidTopicError
from kafka_async.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kafka_async.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kafka_async.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kafka_async.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.partition import Partition, Topic
    from kafka_async.embedded.state.topics import TopicTable

SUPPORTED_FEATURES: Final = {
    "group.version": (0, 1),
    "share.version": (0, 2),
    "transaction.version": (0, 2),
}
"""Supported features with their lowest and highest levels."""
_POSITIONS: Final[dict[int, int]] = {ErrorCode.UNKNOWN_TOPIC_ID: 0, ErrorCode.NONE: 1}
MAX_PARTITIONS_PER_PAGE: Final = 2_000
"""Partitions per page, regardless of the request's limit."""
BROKERS, CONTROLLERS = 1, 2
GROUP, TRANSACTION, SHARE_GROUP = 0, 1, 2
TOPICS: Final = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""Internal topics, created by the first FindCoordinator of a type, as in Kafka."""
COORDINATED: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
"""Resource types that a client must be allowed to describe to find their coordinator."""
FIND_COORDINATOR_BATCHED_MIN_VERSION: Final = 4


async def api_versions(
    settings: Settings,
    supported: Mapping[int, tuple[int, int]],
    context: RequestContext,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse:
    """Return the version ranges, or an error if the client expects another cluster or broker."""
    if context.version >= 3 and not has_valid_software_name(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    expected = (request.cluster_id, request.node_id)
    if expected not in ((None, -1), (settings.cluster_id, context.broker.id)):
        partial = names_only_cluster_or_node(*expected)
        return ApiVersionsResponse(
            error_code=ErrorCode.INVALID_REQUEST if partial else ErrorCode.REBOOTSTRAP_REQUIRED
        )
    if context.authenticator is not None:
        context.authenticator.on_versions_sent()
    levels = {
        "group.version": settings.group_version,
        "transaction.version": settings.transaction_version,
        "share.version": settings.share_version,
    }
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(supported.items())
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low or context.version >= 4  # clients of version 3 reject ranges from 0 (KIP-1022)
        ],
        finalized_features_epoch=1,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in levels.items()
            if level
        ],
    )


def partition_fields(partition: Partition, alive: Collection[int]) -> dict[str, Any]:
    """Return leader, replicas and in-sync replicas; `alive` are the ids of the alive brokers.

    As in Kafka, a leader that has just stopped is left out even before the next election.
    """
    led = partition.leader in alive
    return {
        "error_code": ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": partition.index,
        "leader_id": partition.leader if led else NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "offline_replicas": [replica for replica in partition.replicas if replica not in alive],
    }


async def metadata(
    brokers: Brokers,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: MetadataRequest,
) -> MetadataResponse:
    """Return the alive brokers and the requested topics, or all that the client may describe."""
    if (code := _validate(context, request)) is not ErrorCode.NONE:
        response = error_response(context, code, request) or MetadataResponse()
        for topic in response.topics:
            topic.name = topic.name or ""
        return response
    alive = set(brokers.alive_ids())
    response = MetadataResponse(
        cluster_id=settings.cluster_id,
        controller_id=brokers.controller_id,
        topics=[
            _describe_topic(context, found, request, alive, authorization)
            if not isinstance(found, MetadataResponseTopic)
            else found
            for found in _find_topics(context, request, topics, settings, authorization)
        ],
        brokers=[
            MetadataResponseBroker(**each) for each in brokers.endpoints(alive, context.listener)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorization.cluster_operations(context)
    return response


def _validate(context: RequestContext, request: MetadataRequest) -> ErrorCode:
    """Return the error code of a malformed request, else NONE."""
    for topic in request.topics or ():
        if lacks_name_and_id(topic):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if has_unsupported_topic_id(topic, context.version):
            return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _find_topics(
    context: RequestContext,
    request: MetadataRequest,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
) -> list[Topic | MetadataResponseTopic]:
    """Return the requested topics, or the errors of those that do not exist."""
    requested = request.topics
    if requested is None or (context.version == 0 and not requested):
        return [
            topic
            for topic in topics
            if authorization.allows_topic(context, Operation.DESCRIBE, topic.name)
        ]
    found: list[Topic | MetadataResponseTopic] = []
    for name, topic_id in dict.fromkeys((topic.name or "", topic.topic_id) for topic in requested):
        topic = topics.by_id(topic_id) if topic_id != ZERO_UUID else topics.get(name)
        if topic is not None or topic_id == ZERO_UUID:
            known = name if topic is None else topic.name
            code = authorization.code(context, Operation.DESCRIBE, ResourceType.TOPIC, known)
            if code is not ErrorCode.NONE:
                found.append(_denied_topic(context, code, name, topic_id))
                continue
        found.append(
            topic
            or _missing_topic(context, request, name, topic_id, topics, settings, authorization)
        )
    return sorted(found, key=_position)


def _denied_topic(
    context: RequestContext, code: ErrorCode, name: str, topic_id: UUID
) -> MetadataResponseTopic:
    """Return the error of a topic that the client may not describe, whether it exists or not."""
    by_id = topic_id != ZERO_UUID
    return MetadataResponseTopic(
        error_code=code, name=None if by_id and context.version >= 12 else name, topic_id=topic_id
    )


def _position(topic: Topic | MetadataResponseTopic) -> int:
    """Return a topic's sort key: unknown ids first, unknown and invalid names last."""
    code = topic.error_code if isinstance(topic, MetadataResponseTopic) else ErrorCode.NONE
    return _POSITIONS.get(code, len(_POSITIONS))


def _missing_topic(
    context: RequestContext,
    request: MetadataRequest,
    name: str,
    topic_id: UUID,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
) -> MetadataResponseTopic:
    if topic_id != ZERO_UUID:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            name=None if context.version >= 12 else "",
            topic_id=topic_id,
        )
    creates = settings.auto_create_topics and request.allow_auto_topic_creation
    code = ErrorCode.NONE
    if creates and not authorization.allows_cluster(context, Operation.CREATE):
        code = authorization.code(context, Operation.CREATE, ResourceType.TOPIC, name)
    return MetadataResponseTopic(
        error_code=code or _create_missing(name, topics, creates=creates),
        name=name,
        is_internal=is_internal(name),
    )


def _create_missing(name: str, topics: TopicTable, *, creates: bool) -> ErrorCode:
    """Create a missing topic if allowed and possible; return its error code in this response."""
    try:
        if not creates:
            topics.plan_assignment(name)
        elif is_internal(name):
            topics.create_internal_topic(name)
        else:
            topics.create(name)
    except InvalidTopicError:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    except InvalidReplicationFactorError:
        return ErrorCode.INVALID_REPLICATION_FACTOR
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _describe_topic(
    context: RequestContext,
    topic: Topic,
    request: MetadataRequest,
    alive: set[int],
    authorization: Authorization,
) -> MetadataResponseTopic:
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(**partition_fields(partition, alive))
            for partition in topic.partitions
        ],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = authorization.operations(
            context, ResourceType.TOPIC, topic.name
        )
    return described


async def describe_topic_partitions(
    topics: TopicTable,
    brokers: Brokers,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse:
    """Return the requested topics, or all, from the cursor on, and the next cursor."""
    if any(not topic.name for topic in request.topics):
        return _fail_all(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
    if request.cursor is not None and request.cursor.partition_index < 0:
        return _fail_all(context, request, ErrorCode.INVALID_REQUEST)
    names = sorted({topic.name for topic in request.topics} or {topic.name for topic in topics})
    start_topic, start_index = "", 0
    if request.cursor is not None:
        start_topic, start_index = request.cursor.topic_name, request.cursor.partition_index
    remaining = min(max(request.response_partition_limit, 1), MAX_PARTITIONS_PER_PAGE)
    response = DescribeTopicPartitionsResponse()
    described: list[DescribeTopicPartitionsResponseTopic] = []
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if name < start_topic:
            continue
        if code := authorization.code(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if request.topics:
                # Without a list of topics, denied ones are left out.
                denied.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
            continue
        first = start_index if name == start_topic else 0
        # The page ends before a topic, or within it.
        if remaining == 0:
            response.next_cursor = _cursor(name, first)
            break
        topic = _describe_partitions(name, first, remaining, topics, brokers)
        topic.topic_authorized_operations = authorization.operations(
            context, ResourceType.TOPIC, name
        )
        described.append(topic)
        remaining -= len(topic.partitions)
        known = topics.get(name)
        if known is not None and first + len(topic.partitions) < len(known.partitions):
            response.next_cursor = _cursor(name, first + len(topic.partitions))
            break
    response.topics = [*described, *denied]
    return response


def _fail_all(
    context: RequestContext, request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return error_response(context, code, request) or DescribeTopicPartitionsResponse()


def _cursor(name: str, index: int) -> DescribeTopicPartitionsResponseCursor:
    return DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=index)


def _describe_partitions(
    name: str, first: int, limit: int, topics: TopicTable, brokers: Brokers
) -> DescribeTopicPartitionsResponseTopic:
    topic = topics.get(name)
    if topic is None:
        try:
            validate_topic_name(name)
        except InvalidTopicError:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)
    alive = set(brokers.alive_ids())
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                **partition_fields(partition, alive), eligible_leader_replicas=[], last_known_elr=[]
            )
            for partition in topic.partitions[first : first + limit]
        ],
    )


async def describe_cluster(
    brokers: Brokers,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse:
    """Return the alive brokers, and on request the stopped ones as fenced brokers."""
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the brokers.",
        )
    response = DescribeClusterResponse(
        cluster_id=settings.cluster_id,
        controller_id=brokers.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id, is_fenced=not broker.alive, **broker.address(context.listener)
            )
            for broker in brokers.values()
            if broker.alive or request.include_fenced_brokers
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorization.cluster_operations(context)
    return response


async def find_coordinator(
    brokers: Brokers,
    topics: TopicTable,
    authorization: Authorization,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse:
    """Return the coordinators; share groups are not supported."""
    if context.version >= FIND_COORDINATOR_BATCHED_MIN_VERSION:
        found = [
            _find_coordinator(context, request.key_type, key, brokers, topics, authorization)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)
    one = _find_coordinator(context, request.key_type, request.key, brokers, topics, authorization)
    # As in Kafka, these versions have an error message without an error.
    message = one.error_message if one.error_code else "NONE"
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find_coordinator(
    context: RequestContext,
    key_type: int,
    key: str,
    brokers: Brokers,
    topics: TopicTable,
    authorization: Authorization,
) -> Coordinator:
    if key_type == SHARE_GROUP:
        return _missing_coordinator(key, ErrorCode.INVALID_REQUEST, "")
    if key_type not in (GROUP, TRANSACTION):
        return _missing_coordinator(
            key, ErrorCode.INVALID_REQUEST, f"there is no coordinator for {key!r}"
        )
    if code := authorization.code(context, Operation.DESCRIBE, COORDINATED[key_type], key):
        return _missing_coordinator(key, code, "")
    broker_id = brokers.coordinator_for(key)
    if broker_id is None:
        return _missing_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is alive")
    topics.create_internal_topic(TOPICS[key_type])
    broker = brokers[broker_id]
    port = broker.ports[context.listener]
    return Coordinator(key=key, node_id=broker.id, host=broker.host, port=port)


def _missing_coordinator(key: str, code: ErrorCode, reason: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason)
