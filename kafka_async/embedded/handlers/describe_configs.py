"""DescribeConfigs: the configurations of topics, and those of brokers that are supported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigSource,
    ConfigType,
    Synonym,
    broker_synonyms,
    synonyms,
)
from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.topics import validate_topic_name
from kafka_async.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError
from kafka_async.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.settings import Settings

TOPIC: Final = 2
BROKER: Final = 4


async def handle(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Return the configurations of each resource with their sources."""
    return DescribeConfigsResponse(
        results=[_resource(context, request, requested) for requested in request.resources]
    )


def _resource(
    context: RequestContext, request: DescribeConfigsRequest, requested: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
        error_message=None,
    )
    try:
        described = _described(context, requested)
    except KafkaError as error:
        result.error_code = error_code_of(error)
        unknown = isinstance(error, UnknownTopicOrPartitionError)
        result.error_message = "" if unknown else error.message
        return result
    wanted = set(requested.configuration_keys or ())  # empty requests all configurations
    result.configs = [config for config in described if not wanted or config.name in wanted]
    if not request.include_synonyms:
        for config in result.configs:
            config.synonyms = []
    result.error_message = ""
    return result


def _described(
    context: RequestContext, requested: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    cluster = context.cluster
    if requested.resource_type == TOPIC:
        validate_topic_name(requested.resource_name)
        topic = cluster.topics.get(requested.resource_name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{requested.resource_name}' does not exist.")
        return [_topic_config(cluster.settings, topic.configs, name) for name in TOPIC_CONFIGS]
    if requested.resource_type == BROKER:
        return _broker_configs(context, requested.resource_name)
    raise InvalidRequestError(
        f"resources of type {requested.resource_type} have no configurations here"
    )


def _topic_config(
    settings: Settings, own: Mapping[str, str], name: str
) -> DescribeConfigsResourceResult:
    config, origins = TOPIC_CONFIGS[name], synonyms(settings, name, own)
    value = origins[0].value if origins else config.default
    return _config(name, value, config.type, origins)


def _broker_configs(context: RequestContext, broker_id: str) -> list[DescribeConfigsResourceResult]:
    """Return a broker's configurations; without an id the dynamic defaults of all brokers."""
    settings = context.cluster.settings
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
            described.append(_config(name, value, config.type, origins, config.read_only))
    if broker_id:
        own = [Synonym("node.id", broker_id, ConfigSource.STATIC_BROKER)]
        described.append(_config("node.id", broker_id, ConfigType.INT, own, read_only=True))
    return described


def _config(
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


ROUTE = Route(32, 1, 4, handle)
