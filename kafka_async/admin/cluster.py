"""Describe the cluster; describe and alter the configuration of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafka_async.admin.call import Results, item_error, raise_first
from kafka_async.admin.values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka_async.client.metadata.request_router import AnyBroker, Broker
from kafka_async.errors import (
    AuthorizationError,
    InvalidRequestError,
    KafkaError,
    UnknownTopicOrPartitionError,
    raise_for,
)
from kafka_async.foundation.arguments import instance_of, iterable, mapping, text, whole_number
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kafka_async.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafka_async.types import Node

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.admin.call import Call

_NOT_READABLE = (AuthorizationError, InvalidRequestError)
"""Errors for a hidden configuration, or a type that older brokers do not support."""
_SET, _DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""


async def describe_cluster(call: Call) -> ClusterDescription:
    """Describe the cluster; see `Admin.describe_cluster`."""
    request = DescribeClusterRequest()
    response = await call.services.request(request, to=AnyBroker(), timeout=call.left)
    raise_for(response.error_code, response.error_message)
    brokers = [Node(row.broker_id, row.host, row.port, row.rack) for row in response.brokers]
    controller_id = None if response.controller_id < 0 else response.controller_id
    return ClusterDescription(response.cluster_id, controller_id, tuple(sorted(brokers)))


async def describe_configs(
    call: Call, resources: Iterable[ConfigResource]
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Describe configurations; see `Admin.describe_configs`."""
    attempt = _description(call)
    return await call.run(map(_checked, iterable(resources, "resources")), attempt)


async def readable_configs(
    call: Call, resources: Iterable[ConfigResource]
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Describe the configurations that the principal may describe and the brokers have."""
    found, errors = await call.collect(resources, _description(call))
    raise_first([error for error in errors if not isinstance(error, _NOT_READABLE)])
    return found


def _description(
    call: Call,
) -> Callable[[list[ConfigResource]], Awaitable[Results[ConfigResource, dict[str, ConfigEntry]]]]:
    """Return a function that describes the configurations of pending resources."""

    async def query(
        to: AnyBroker | Broker, resources: list[ConfigResource]
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=row.type, resource_name=row.name, configuration_keys=None
                )
                for row in resources
            ]
        )
        response = await call.services.request(request, to=to, timeout=call.left)
        results: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
        named = _by_name(resources)
        for row in response.results:
            resource = named.get((row.resource_type, row.resource_name))
            if resource is None:
                continue
            error = _error(resource, row.error_code, row.error_message, "DESCRIBE_CONFIGS")
            results[resource] = error or {entry.name: _entry(entry) for entry in row.configs}
        return results

    return lambda pending: call.query_brokers(_destinations(pending), query)


async def alter_configs(
    call: Call,
    changes: Mapping[ConfigResource, Mapping[str, str | None]],
    *,
    validate_only: bool,
) -> None:
    """Change options of resources; see `Admin.alter_configs`."""
    wanted = {
        _checked(resource): [
            AlterableConfig(
                name=text(name, "the name of an option"),
                config_operation=_SET if value is not None else _DELETE,
                value=None if value is None else instance_of(value, str, f"the value of {name}"),
            )
            for name, value in mapping(options, "each of changes").items()
        ]
        for resource, options in mapping(changes, "changes").items()
    }

    async def query(
        to: AnyBroker | Broker, resources: list[ConfigResource]
    ) -> Results[ConfigResource, None]:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=row.type, resource_name=row.name, configs=wanted[row]
                )
                for row in resources
            ],
            validate_only=validate_only,
        )
        response = await call.services.request(request, to=to, timeout=call.left)
        results: dict[ConfigResource, KafkaError | None] = {}
        named = _by_name(resources)
        for row in response.responses:
            resource = named.get((row.resource_type, row.resource_name))
            if resource is None:
                continue
            results[resource] = _error(resource, row.error_code, row.error_message, "ALTER_CONFIGS")
        return results

    async def attempt(pending: list[ConfigResource]) -> Results[ConfigResource, None]:
        return await call.query_brokers(_destinations(pending), query)

    # With KRaft, brokers forward the request to the controller, whose metadata is current.
    await call.run(wanted, attempt, final=(UnknownTopicOrPartitionError,))


def _error(
    resource: ConfigResource, code: int, message: str | None, needs: str
) -> KafkaError | None:
    kind = resource.type.name.lower().replace("_", " ")
    return item_error(kind, resource.name, code, message, needs=needs)


def _checked(value: object) -> ConfigResource:
    """Return the resource; raise for a wrong type or a broker whose name is not its id."""
    resource = instance_of(value, ConfigResource, "each of resources")
    kind = ResourceType(whole_number(resource.type, "the type of a ConfigResource", low=0))
    name = instance_of(resource.name, str, "the name of a ConfigResource")
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name and not name.isdecimal():
        raise ValueError(f"a broker's ConfigResource is named by its id, as '1', not {name!r:.60}")
    return resource


def _destinations(
    resources: Iterable[ConfigResource],
) -> dict[ConfigResource, AnyBroker | Broker]:
    """Return each resource's destination: the broker for a broker's options, else any broker."""
    return {
        resource: Broker(int(resource.name))
        if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        else AnyBroker()
        for resource in resources
    }


def _by_name(resources: Iterable[ConfigResource]) -> dict[tuple[int, str], ConfigResource]:
    """Return resources by the raw fields of a response: a newer type is no `ResourceType`."""
    return {(resource.type, resource.name): resource for resource in resources}


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(row.value, ConfigSource(row.config_source), row.read_only, row.is_sensitive)
