"""Describe the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.admin.values import ClusterDescription
from kafka_async.cluster.request_destinations import AnyBroker
from kafka_async.errors import raise_for
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.types import Node

if TYPE_CHECKING:
    from kafka_async.admin.call import Call


async def describe(call: Call) -> ClusterDescription:
    """Describe the cluster; see `Admin.describe_cluster`."""
    request = DescribeClusterRequest()
    response = await call.client.request(request, to=AnyBroker(), timeout=call.left)
    raise_for(response.error_code, response.error_message)
    brokers = [Node(row.broker_id, row.host, row.port, row.rack) for row in response.brokers]
    controller_id = None if response.controller_id < 0 else response.controller_id
    return ClusterDescription(response.cluster_id, controller_id, tuple(sorted(brokers)))
