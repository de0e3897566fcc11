"""ApiVersions: supported versions and finalized features (KIP-35, KIP-584, KIP-1242)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.request_validation import (
    has_valid_software_name,
    names_only_cluster_or_node,
)
from kafka_async.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext

SUPPORTED_FEATURES: Final = {"group.version": (0, 1), "transaction.version": (0, 2)}
"""Supported features with their lowest and highest levels."""


async def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the version ranges, or an error if the client expects another cluster or broker."""
    cluster = context.cluster
    if context.version >= 3 and not has_valid_software_name(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    expected = (request.cluster_id, request.node_id)
    if expected not in ((None, -1), (cluster.settings.cluster_id, context.broker.id)):
        partial = names_only_cluster_or_node(*expected)
        return ApiVersionsResponse(
            error_code=ErrorCode.INVALID_REQUEST if partial else ErrorCode.REBOOTSTRAP_REQUIRED
        )
    levels = {
        "group.version": cluster.settings.group_version,
        "transaction.version": cluster.settings.transaction_version,
    }
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=route.lowest_advertised, max_version=route.highest)
            for key, route in sorted(cluster.routes.items())
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


ROUTE = Route(18, 0, 5, handle)
