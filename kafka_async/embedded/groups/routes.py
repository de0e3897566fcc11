"""The group APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import Route

ROUTES: Final[tuple[Route, ...]] = (
    find_coordinator.ROUTE,
    join_group.ROUTE,
    sync_group.ROUTE,
    heartbeat.ROUTE,
    leave_group.ROUTE,
    offset_commit.ROUTE,
    offset_fetch.ROUTE,
    offset_delete.ROUTE,
    list_groups.ROUTE,
    describe_groups.ROUTE,
    delete_groups.ROUTE,
)
