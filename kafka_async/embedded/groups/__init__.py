"""The group coordinator: the classic group protocol and committed offsets."""

from __future__ import annotations

from kafka_async.embedded.groups.group_coordinator import GroupCoordinator

__all__ = ["GroupCoordinator"]
