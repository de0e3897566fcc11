"""Describe the cluster, and the configuration of its topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafka_async.admin.call import Results, item_error
from kafka_async.admin.values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka_async.arguments import instance_of, iterable, whole_number
from kafka_async.cluster.request_router import AnyBroker, Broker
from kafka_async.errors import KafkaError, raise_for
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kafka_async.types import Node

if TYPE_CHECKING:
    from kafka_async.admin.call import Call


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

    async def attempt(
        pending: list[ConfigResource],
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        results: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
        for to, rows in _by_broker(pending).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=row.type, resource_name=row.name, configuration_keys=None
                    )
                    for row in rows
                ]
            )
            response = await call.services.request(request, to=to, timeout=call.left)
            for row in response.results:
                resource = ConfigResource(ResourceType(row.resource_type), row.resource_name)
                kind = resource.type.name.lower().replace("_", " ")
                error = item_error(
                    kind,
                    resource.name,
                    row.error_code,
                    row.error_message,
                    needs="DESCRIBE_CONFIGS",
                )
                results[resource] = error or {entry.name: _entry(entry) for entry in row.configs}
        return results

    return await call.run(map(_checked, iterable(resources, "resources")), attempt)


def _checked(value: object) -> ConfigResource:
    """Return the resource; raise for a wrong type or a broker that is not named by its id."""
    resource = instance_of(value, ConfigResource, "each of resources")
    kind = ResourceType(whole_number(resource.type, "the type of a ConfigResource", low=0))
    name = instance_of(resource.name, str, "the name of a ConfigResource")
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name and not name.isdecimal():
        raise ValueError(f"a broker's ConfigResource is named by its id, as '1', not {name!r:.60}")
    return resource


def _by_broker(
    resources: Iterable[ConfigResource],
) -> dict[AnyBroker | Broker, list[ConfigResource]]:
    """Group resources by destination: that broker for a broker's options, any broker otherwise."""
    rows: dict[AnyBroker | Broker, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        to = Broker(int(resource.name)) if own else AnyBroker()
        rows.setdefault(to, []).append(resource)
    return rows


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(row.value, ConfigSource(row.config_source), row.read_only, row.is_sensitive)
