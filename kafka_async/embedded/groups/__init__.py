"""Consumer groups of the embedded cluster: the classic protocol and committed offsets."""

from __future__ import annotations

from kafka_async.embedded.groups.coordinator import GroupCoordinator

__all__ = ["GroupCoordinator"]
