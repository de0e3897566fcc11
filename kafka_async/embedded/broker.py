"""One broker of the embedded cluster: an address, a listener, its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.fetch_sessions import FetchSessions

if TYPE_CHECKING:
    from kafka_async.embedded.network import Connection


class Broker:
    """A node: it is `alive` while it listens."""

    def __init__(self, node_id: int, host: str, port: int, rack: str | None = None) -> None:
        self.id = node_id
        self.host = host
        self.port = port
        self.rack = rack
        self.alive = False
        self.epoch = 0
        self.connections: set[Connection] = set()
        self.fetch_sessions = FetchSessions()

    def begin(self) -> None:
        """It listens (again): what it kept in memory for its clients is gone."""
        self.alive = True
        self.epoch += 1
        self.fetch_sessions = FetchSessions()

    def __repr__(self) -> str:
        state = "alive" if self.alive else "stopped"
        return f"<Broker {self.id} at {self.host}:{self.port}, {state}>"
