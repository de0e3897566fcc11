"""The table of all APIs of the embedded cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.groups.routes import ROUTES as GROUP_ROUTES
from kafka_async.embedded.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from kafka_async.embedded.transactions.routes import ROUTES as TRANSACTION_ROUTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.context import Route

TOPIC_ROUTES: Final[tuple[Route, ...]] = (
    produce.ROUTE,
    fetch.ROUTE,
    list_offsets.ROUTE,
    metadata.ROUTE,
    api_versions.ROUTE,
    create_topics.ROUTE,
    delete_topics.ROUTE,
    delete_records.ROUTE,
    offset_for_leader_epoch.ROUTE,
    describe_configs.ROUTE,
    create_partitions.ROUTE,
    incremental_alter_configs.ROUTE,
    describe_cluster.ROUTE,
    describe_producers.ROUTE,
    describe_topic_partitions.ROUTE,
)


def routes_by_api_key(limits: Mapping[int, tuple[int, int]]) -> dict[int, Route]:
    """Return the routes by API key.

    `limits` narrows the versions; an API without a version left is not supported.
    """
    routes: dict[int, Route] = {}
    for route in (*TOPIC_ROUTES, *GROUP_ROUTES, *TRANSACTION_ROUTES):
        low, high = limits.get(route.api_key, (route.lowest_advertised, route.highest))
        if (narrowed := route.narrowed(low, high)) is not None:
            routes[route.api_key] = narrowed
    return routes
