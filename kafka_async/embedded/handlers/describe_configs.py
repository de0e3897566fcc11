"""DescribeConfigs: the settings of topics, and those of brokers that the embedded cluster has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import code_of
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
from kafka_async.embedded.topics import check_name
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
    """Each resource's settings with where they come from."""
    return DescribeConfigsResponse(
        results=[_resource(context, request, asked) for asked in request.resources]
    )


def _resource(
    context: RequestContext, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
    )
    try:
        described = _described(context, asked)
    except KafkaError as error:
        result.error_code = code_of(error)
        unknown = isinstance(error, UnknownTopicOrPartitionError)
        result.error_message = "" if unknown else error.message
        return result
    wanted = set(asked.configuration_keys or ())  # none at all asks for every configuration
    result.configs = [config for config in described if not wanted or config.name in wanted]
    if not request.include_synonyms:
        for config in result.configs:
            config.synonyms = []
    result.error_message = ""
    return result


def _described(
    context: RequestContext, asked: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    cluster = context.cluster
    if asked.resource_type == TOPIC:
        check_name(asked.resource_name)
        topic = cluster.topics.get(asked.resource_name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{asked.resource_name}' does not exist.")
        return [_topic_config(cluster.settings, topic.configs, name) for name in TOPIC_CONFIGS]
    if asked.resource_type == BROKER:
        return _broker_configs(context, asked.resource_name)
    raise InvalidRequestError(f"resources of type {asked.resource_type} have no settings here")


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
