"""The address of a broker or of a bootstrap server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a broker; `node_id` is negative for a bootstrap server."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        place = f"{self.host}:{self.port}"
        return place if self.node_id < 0 else f"{place} (broker {self.node_id})"
