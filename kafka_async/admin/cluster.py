"""The cluster itself."""

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
    """The cluster; see `Admin.describe_cluster`."""
    answer = await call.client.request(DescribeClusterRequest(), to=AnyBroker(), timeout=call.left)
    raise_for(answer.error_code, answer.error_message)
    brokers = [Node(row.broker_id, row.host, row.port, row.rack) for row in answer.brokers]
    controller_id = None if answer.controller_id < 0 else answer.controller_id
    return ClusterDescription(answer.cluster_id, controller_id, tuple(sorted(brokers)))
