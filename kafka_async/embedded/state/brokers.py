"""The brokers of the embedded cluster, and the choice of controller and coordinators."""

from __future__ import annotations

import itertools
import zlib
from typing import TYPE_CHECKING, Protocol, TypedDict

from kafka_async.embedded.state.fetch_sessions import FetchSessionCache

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class OpenConnection(Protocol):
    """The methods that close a broker's open connection."""

    def abort(self) -> None:
        """Reset the connection; a request in progress continues."""
        ...

    async def close(self) -> None:
        """Reset the connection, cancel its task, and wait until both have ended."""
        ...


class Address(TypedDict):
    """Fields of a broker in responses, without its id."""

    host: str
    port: int
    rack: str | None


class Endpoint(Address):
    """Fields of a broker in responses whose id field is `node_id`."""

    node_id: int


class Broker:
    """Holds a broker's addresses, connections and fetch sessions; it is `alive` while it listens.

    `ports` are by listener; `bootstrap_servers` uses the first listener.
    """

    def __init__(
        self, node_id: int, host: str, ports: Mapping[str, int], rack: str | None = None
    ) -> None:
        self.id = node_id
        self.host = host
        self.ports = dict(ports)
        self.rack = rack
        self.alive = False
        self.epoch = 0
        self.connections: set[OpenConnection] = set()
        self.fetch_sessions = FetchSessionCache()

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.ports.values()))

    def address(self, listener: str) -> Address:
        """Return the broker's address in responses to clients of a listener."""
        return {"host": self.host, "port": self.ports[listener], "rack": self.rack}

    def on_started(self) -> None:
        """Mark the broker as alive, in a new epoch and without fetch sessions."""
        self.alive = True
        self.epoch += 1
        self.fetch_sessions = FetchSessionCache()

    def __repr__(self) -> str:
        state = "alive" if self.alive else "stopped"
        return f"<Broker {self.id} at {self.host}:{self.port}, {state}>"


class Brokers(dict[int, Broker]):
    """Maps ids to brokers, in ascending order."""

    def alive(self) -> list[Broker]:
        """Return the brokers that are alive."""
        return [broker for broker in self.values() if broker.alive]

    def alive_ids(self) -> list[int]:
        """Return the ids of the brokers that are alive."""
        return [broker.id for broker in self.alive()]

    def alive_ids_across_racks(self) -> list[int]:
        """Return the ids of the alive brokers, with neighbours in different racks if possible.

        As in Kafka, consecutive replicas are in different racks while those have brokers left.
        """
        racks: dict[str | None, list[int]] = {}
        for broker in self.alive():
            racks.setdefault(broker.rack, []).append(broker.id)
        rounds = itertools.zip_longest(*racks.values())
        return [id_ for one in rounds for id_ in one if id_ is not None]

    def endpoints(self, ids: Collection[int], listener: str) -> list[Endpoint]:
        """Return the endpoints of the brokers in `ids` that are alive, at a listener."""
        return [{"node_id": it.id, **it.address(listener)} for it in self.alive() if it.id in ids]

    @property
    def controller_id(self) -> int:
        """The controller's broker id in responses: the lowest alive id, or -1."""
        return next(iter(self.alive_ids()), -1)

    def coordinator_for(self, key: str) -> int | None:
        """Return the coordinator of a group or transactional id, or None if all brokers are down.

        Only the keys of a stopped broker move to the next broker, until it returns.
        """
        ids = list(self)
        start = zlib.crc32(key.encode()) % len(ids)
        return next((id_ for id_ in ids[start:] + ids[:start] if self[id_].alive), None)
