"""DescribeCluster: the brokers and the controller (KIP-700)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.handlers.metadata import CLUSTER_OPERATIONS
from kafka_async.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext

BROKERS, CONTROLLERS = 1, 2


async def handle(
    context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Return the alive brokers, and on request the stopped ones as fenced brokers."""
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the brokers.",
        )
    cluster = context.cluster
    response = DescribeClusterResponse(
        cluster_id=cluster.settings.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=not broker.alive,
            )
            for broker in cluster.brokers.values()
            if broker.alive or request.include_fenced_brokers
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


ROUTE = Route(60, 0, 2, handle)
