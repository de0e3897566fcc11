"""A broker of the embedded cluster."""

from __future__ import annotations

from typing import Protocol

from kafka_async.embedded.fetch_sessions import FetchSessionCache


class OpenConnection(Protocol):
    """Defines the methods by which a broker's open connections are closed."""

    def abort(self) -> None:
        """Reset the connection; the request that is being handled continues."""
        ...

    async def close(self) -> None:
        """Reset the connection, cancel its task and wait until both have ended."""
        ...


class Broker:
    """Holds a broker's address, connections and fetch sessions.

    Attributes:
        alive: True while the broker listens.
        epoch: The broker epoch, incremented by each start.
    """

    def __init__(self, node_id: int, host: str, port: int, rack: str | None = None) -> None:
        self.id = node_id
        self.host = host
        self.port = port
        self.rack = rack
        self.alive = False
        self.epoch = 0
        self.connections: set[OpenConnection] = set()
        self.fetch_sessions = FetchSessionCache()

    def on_started(self) -> None:
        """Mark the broker as alive, in a new epoch and without fetch sessions."""
        self.alive = True
        self.epoch += 1
        self.fetch_sessions = FetchSessionCache()

    def __repr__(self) -> str:
        state = "alive" if self.alive else "stopped"
        return f"<Broker {self.id} at {self.host}:{self.port}, {state}>"
