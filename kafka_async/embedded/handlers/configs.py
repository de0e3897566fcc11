"""DescribeConfigs and IncrementalAlterConfigs (KIP-339)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.groups.group_configs import GROUP_CONFIGS
from kafka_async.embedded.state.acls import CLUSTER_NAME, Operation, ResourceType
from kafka_async.embedded.state.configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigSource,
    ConfigType,
    Synonym,
    broker_synonyms,
    check_configs,
    is_list,
    synonyms,
)
from kafka_async.embedded.state.topics import validate_topic_name
from kafka_async.errors import (
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from kafka_async.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafka_async.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.groups.group_configs import GroupConfigs
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.topics import TopicTable

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
PROTECTED_RESOURCES: Final = {
    TOPIC: ResourceType.TOPIC,
    BROKER: ResourceType.CLUSTER,
    BROKER_LOGGER: ResourceType.CLUSTER,
    CLIENT_METRICS: ResourceType.CLUSTER,
    GROUP: ResourceType.GROUP,
}
"""ACL resource types that protect configurations, by resource type in requests."""
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


async def describe_configs(
    topics: TopicTable,
    settings: Settings,
    groups: GroupConfigs,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse:
    """Return the configurations of each resource with their sources."""
    return DescribeConfigsResponse(
        results=[
            _describe_resource(context, request, requested, topics, settings, groups, authorization)
            for requested in request.resources
        ]
    )


def _describe_resource(
    context: RequestContext,
    request: DescribeConfigsRequest,
    requested: DescribeConfigsResource,
    topics: TopicTable,
    settings: Settings,
    groups: GroupConfigs,
    authorization: Authorization,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
        error_message=None,
    )
    try:
        _require(authorization, context, Operation.DESCRIBE_CONFIGS, requested)
        described = _described(context, requested, topics, settings, groups)
    except KafkaError as error:
        result.error_code = error_code_of(error)
        unknown = isinstance(error, UnknownTopicOrPartitionError)
        result.error_message = "" if unknown else error.message
        return result
    wanted = set(requested.configuration_keys or ())  # an empty list requests all configurations
    result.configs = [config for config in described if not wanted or config.name in wanted]
    if not request.include_synonyms:
        for config in result.configs:
            config.synonyms = []
    result.error_message = ""
    return result


def _described(
    context: RequestContext,
    requested: DescribeConfigsResource,
    topics: TopicTable,
    settings: Settings,
    groups: GroupConfigs,
) -> list[DescribeConfigsResourceResult]:
    if requested.resource_type == TOPIC:
        validate_topic_name(requested.resource_name)
        topic = topics.get(requested.resource_name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{requested.resource_name}' does not exist.")
        return [_topic_config(settings, topic.configs, name) for name in TOPIC_CONFIGS]
    if requested.resource_type == BROKER:
        return _broker_configs(context, requested.resource_name, settings)
    if requested.resource_type == GROUP:
        return _group_configs(requested.resource_name, groups)
    raise InvalidRequestError(
        f"resources of type {requested.resource_type} have no configurations here"
    )


def _topic_config(
    settings: Settings, own: Mapping[str, str], name: str
) -> DescribeConfigsResourceResult:
    config, origins = TOPIC_CONFIGS[name], synonyms(settings, name, own)
    value = origins[0].value if origins else config.default
    return _describe_config(name, value, config.type, origins)


def _broker_configs(
    context: RequestContext, broker_id: str, settings: Settings
) -> list[DescribeConfigsResourceResult]:
    """Return a broker's configurations, or without an id the dynamic defaults of all brokers."""
    if broker_id and broker_id != str(context.broker.id):
        raise InvalidRequestError(
            f"Unexpected broker id, expected {context.broker.id} or empty string, but received "
            f"{broker_id}"
        )
    described: list[DescribeConfigsResourceResult] = []
    for name, config in BROKER_CONFIGS.items():
        origins = broker_synonyms(settings, name)
        if not broker_id:
            origins = [one for one in origins if one.source is ConfigSource.DYNAMIC_DEFAULT_BROKER]
        if origins:
            value = origins[0].value
            described.append(_describe_config(name, value, config.type, origins, config.read_only))
    if broker_id:
        own = [Synonym("node.id", broker_id, ConfigSource.STATIC_BROKER)]
        described.append(
            _describe_config("node.id", broker_id, ConfigType.INT, own, read_only=True)
        )
    return described


def _group_configs(group_id: str, groups: GroupConfigs) -> list[DescribeConfigsResourceResult]:
    """Return the configurations of a group, which does not have to exist."""
    if not group_id:
        raise InvalidRequestError("Group name must not be empty.")
    described: list[DescribeConfigsResourceResult] = []
    for name, config in GROUP_CONFIGS.items():
        origins = groups.synonyms(group_id, name)
        if not config.internal or origins[0].source is ConfigSource.GROUP:
            described.append(_describe_config(name, origins[0].value, config.type, origins))
    return described


def _describe_config(
    name: str, value: str, kind: ConfigType, origins: list[Synonym], read_only: bool = False
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        config_source=origins[0].source if origins else ConfigSource.DEFAULT,
        synonyms=[
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in origins
        ],
        config_type=kind,
        documentation=None,
    )


def _require(
    authorization: Authorization,
    context: RequestContext,
    operation: Operation,
    resource: DescribeConfigsResource | AlterConfigsResource,
) -> None:
    kind = PROTECTED_RESOURCES.get(resource.resource_type)
    if kind is not None:
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
        authorization.require(context, operation, kind, name)


async def incremental_alter_configs(
    topics: TopicTable,
    groups: GroupConfigs,
    authorization: Authorization,
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse:
    """Change all or no configurations of each resource; errors are per resource."""
    counts = Counter((it.resource_type, it.resource_name) for it in request.resources)
    return IncrementalAlterConfigsResponse(
        responses=[
            _alter_resource(
                context,
                resource,
                topics,
                groups,
                authorization,
                dry_run=request.validate_only,
                duplicate=counts[resource.resource_type, resource.resource_name] > 1,
            )
            for resource in request.resources
        ]
    )


def _alter_resource(
    context: RequestContext,
    resource: AlterConfigsResource,
    topics: TopicTable,
    groups: GroupConfigs,
    authorization: Authorization,
    *,
    dry_run: bool,
    duplicate: bool,
) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_message=None,
    )
    try:
        if duplicate:
            raise InvalidRequestError("Each resource must appear at most once.")
        _check_changes(resource)
        _require(authorization, context, Operation.ALTER_CONFIGS, resource)
        if resource.resource_type == GROUP:
            _alter_group_configs(resource, groups, dry_run=dry_run)
        else:
            _alter_configs(resource, topics, dry_run=dry_run)
    except KafkaError as error:
        response.error_code = error_code_of(error)
        failed = isinstance(error, UnknownServerError)
        response.error_message = None if failed else error.message
    return response


def _check_changes(resource: AlterConfigsResource) -> None:
    """Raise for changes that a broker rejects before authorization."""
    if len({change.name for change in resource.configs}) < len(resource.configs):
        raise InvalidRequestError("Error due to duplicate config keys")
    for change in resource.configs:
        if change.value is None and change.config_operation != DELETE:
            raise InvalidRequestError(f"Null value not supported for : {change.name}")


def _alter_configs(resource: AlterConfigsResource, topics: TopicTable, *, dry_run: bool) -> None:
    if resource.resource_type != TOPIC:
        raise InvalidRequestError("only configurations of topics and groups can be changed here")
    validate_topic_name(resource.resource_name)
    topic = topics.get(resource.resource_name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"Topic '{resource.resource_name}' does not exist.")
    configs = _changed(resource, topic.configs, topics.configs(topic))
    check_configs(configs)
    if not dry_run:
        topics.configure(topic, configs)


def _alter_group_configs(
    resource: AlterConfigsResource, groups: GroupConfigs, *, dry_run: bool
) -> None:
    if not resource.resource_name:
        raise InvalidRequestError("Group name must not be empty.")
    configs = _changed(resource, groups.of(resource.resource_name), {})
    groups.check(configs)
    if not dry_run:
        groups.configure(resource.resource_name, configs)


def _changed(
    resource: AlterConfigsResource, own: Mapping[str, str], effective: Mapping[str, str]
) -> dict[str, str]:
    """Return the configurations of a resource after a request, from its `own` ones before."""
    configs = dict(own)
    for change in resource.configs:
        value = _new_value(change, effective.get(change.name, ""))
        if value is None:
            configs.pop(change.name, None)
        else:
            configs[change.name] = value
    return configs


def _new_value(change: AlterableConfig, current: str) -> str | None:
    """Return a configuration's new value, or None for the default."""
    operation, value = change.config_operation, change.value
    if operation == DELETE or value is None:
        return None
    if operation == SET:
        return value
    if operation not in (APPEND, SUBTRACT):
        raise UnknownServerError(f"there is no operation {operation}")
    if not is_list(change.name):
        operation_name = "APPEND" if operation == APPEND else "SUBTRACT"
        raise InvalidConfigError(
            f"Can't {operation_name} to key {change.name} because its type is not LIST."
        )
    items = [item for item in current.split(",") if item]
    if operation == APPEND:
        return ",".join(dict.fromkeys([*items, *value.split(",")]))
    return ",".join(item for item in items if item not in value.split(","))
