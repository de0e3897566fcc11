"""DescribeConfigs: the settings of topics, and those of brokers that the embedded cluster has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.configs import broker_configs, config_type
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
    from kafka_async.embedded.context import RequestContext

TOPIC: Final = 2
BROKER: Final = 4
DYNAMIC_TOPIC: Final = 1
STATIC_BROKER: Final = 4
DEFAULT: Final = 5


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
        values, source, own = _values(context, asked)
    except KafkaError as error:
        result.error_code = Code.UNKNOWN_SERVER_ERROR if error.code is None else error.code
        result.error_message = error.message
        return result
    wanted = values if asked.configuration_keys is None else asked.configuration_keys
    result.configs = [
        _config(name, values[name], source if name in own else DEFAULT, request, asked)
        for name in sorted(set(wanted) & set(values))
    ]
    return result


def _values(
    context: RequestContext, asked: DescribeConfigsResource
) -> tuple[dict[str, str], int, set[str]]:
    """All values, the source of those that are set, and which those are."""
    cluster = context.cluster
    if asked.resource_type == TOPIC:
        check_name(asked.resource_name)
        topic = cluster.topics.get(asked.resource_name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{asked.resource_name}' does not exist.")
        return cluster.topics.configs(topic), DYNAMIC_TOPIC, set(topic.configs)
    if asked.resource_type == BROKER:
        if asked.resource_name not in ("", *map(str, cluster.brokers)):
            raise InvalidRequestError(f"there is no broker {asked.resource_name!r}")
        values = broker_configs(cluster.settings, asked.resource_name)
        return values, STATIC_BROKER, set(values)
    raise InvalidRequestError(f"resources of type {asked.resource_type} have no settings here")


def _config(
    name: str,
    value: str,
    source: int,
    request: DescribeConfigsRequest,
    asked: DescribeConfigsResource,
) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(name=name, value=value, source=source)]
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=asked.resource_type == BROKER,
        config_source=source,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=config_type(name),
        documentation=None,
    )


ROUTE = Route(32, 1, 4, handle)
