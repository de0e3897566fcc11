"""The brokers of one client, and the lanes to each.

Until metadata has come, and after a rebootstrap, the candidates are the bootstrap servers, under
negative ids; then they are the brokers that metadata names. A broker has one general lane and one
for slow requests, each made when first needed, and those that producers and consumers own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kafka_async.cluster.broker_activity import UNANSWERED_AFTER, BrokerActivity
from kafka_async.cluster.broker_connection import (
    BrokerConnection,
    ConnectionKind,
    close_connections,
    is_permanent,
)
from kafka_async.cluster.connection import (
    Address,
    ConnectionContext,
    ConnectionSetupError,
    WrongBrokerError,
)
from kafka_async.config import split_server
from kafka_async.errors import (
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
)

if TYPE_CHECKING:
    from kafka_async.cluster.handshake import BrokerVersions
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import Node


class BrokerLanes:
    """One broker: the lanes that all share, general and slow, and the lanes with an owner."""

    def __init__(self, general: BrokerConnection, activity: BrokerActivity) -> None:
        self.general = general
        self.slow: BrokerConnection | None = None
        self.activity = activity
        self.owned: set[BrokerConnection] = set()

    @property
    def connected(self) -> bool:
        """Whether there is any connection to the broker."""
        return any(connection.connected for connection in self.all())

    @property
    def in_flight(self) -> int:
        """Requests without a response, on all lanes."""
        return sum(connection.in_flight for connection in self.all())

    def silent_for(self, now: float) -> float | None:
        """Return the seconds without a response while one is due; None if none is overdue."""
        sent = [
            at for connection in self.all() if (at := connection.unanswered_since(now)) is not None
        ]
        if not sent:
            return None
        since = max(min(sent), self.activity.responded_at or 0.0)
        return now - since if now - since >= UNANSWERED_AFTER else None

    def available(self, now: float) -> bool:
        """Whether there is a connection, or one may be made (KIP-899)."""
        return self.connected or self.general.connecting or self.general.retry_at <= now

    def all(self) -> list[BrokerConnection]:
        """Every lane."""
        return [*self.shared(), *self.owned]

    def shared(self) -> list[BrokerConnection]:
        """The lanes that the client owns."""
        return [self.general] if self.slow is None else [self.general, self.slow]


class Brokers:
    """All lanes of one client. It is their `LaneWatcher`.

    `nodes()` gives the brokers that metadata names; none means that only bootstrap servers are
    known.
    """

    def __init__(
        self,
        wiring: ConnectionContext,
        supervisor: Supervisor,
        nodes: Callable[[], Mapping[int, Node]],
        *,
        on_disconnected: Callable[[], None],
        on_wrong_broker: Callable[[str], None],
    ) -> None:
        self.features: Mapping[str, int] = {}
        self.failures: dict[int, KafkaError] = {}
        self.last_error: KafkaError | None = None
        self._refusals: Counter[int] = Counter()
        self._troubled = False
        self._responded_before: float | None = None
        self._features_epoch = -1
        self._wiring = wiring
        self._supervisor = supervisor
        self._nodes = nodes
        self._on_disconnected = on_disconnected
        self._on_wrong_broker = on_wrong_broker
        self._brokers: dict[int, BrokerLanes] = {}
        self._servers: dict[int, Address] = {}
        for index, server in enumerate(wiring.config.bootstrap_servers, start=1):
            self._servers[-index] = Address(-index, *split_server(server))

    # -- lanes ------------------------------------------------------------------------------------

    def general(self, node_id: int) -> BrokerConnection:
        """Return the shared lane to a broker."""
        return self._broker(node_id).general

    def slow(self, node_id: int) -> BrokerConnection:
        """The shared lane to a broker for requests that wait for the cluster."""
        broker = self._broker(node_id)
        if broker.slow is None:
            broker.slow = self._new(node_id, ConnectionKind.SLOW, "shared", broker.activity)
        return broker.slow

    def connection(
        self,
        node_id: int,
        kind: ConnectionKind,
        owner: str,
        max_frame_size: int | None = None,
        fetch_max_wait: float = 0.0,
    ) -> BrokerConnection:
        """A new lane to a broker, which the caller closes; `owner` says in its repr who that is."""
        broker = self._broker(node_id)
        connection = self._new(
            node_id, kind, owner, broker.activity, max_frame_size, fetch_max_wait
        )
        broker.owned.add(connection)
        return connection

    def least_loaded(
        self, now: float, *, besides: BrokerConnection | None = None
    ) -> BrokerConnection | None:
        """The general lane to use for what any broker can answer; None if back-off forbids all.

        A connected one with the fewest requests under way, else the one that can be connected
        and whose last failure is the longest ago. Brokers that let a request time out and have
        not responded since are the last choice, and `besides` is never returned.
        """
        candidates = [self._broker(node_id) for node_id in self._candidates()]
        random.shuffle(candidates)
        for overdue in (False, True):
            connections = [one.general for one in candidates if one.activity.overdue is overdue]
            connections = [connection for connection in connections if connection is not besides]
            connected = [connection for connection in connections if connection.connected]
            if connected:
                return min(connected, key=lambda connection: connection.in_flight)
            free = [
                connection
                for connection in connections
                if connection.connecting or connection.retry_at <= now
            ]
            if free:
                return min(
                    free, key=lambda connection: (connection.connecting, connection.retry_at)
                )
        return None

    def available(self, now: float) -> bool:
        """Whether any broker that is known is available (KIP-899)."""
        return any(self._broker(node_id).available(now) for node_id in self._candidates())

    def available_at(self) -> float:
        """When back-off lets the first of them be connected."""
        return min(self.general(node_id).retry_at for node_id in self._candidates())

    # -- condition --------------------------------------------------------------------------------

    def connected_ids(self) -> tuple[int, ...]:
        """Ids of the brokers with an open connection; bootstrap servers have none."""
        return tuple(
            sorted(key for key, broker in self._brokers.items() if key >= 0 and broker.connected)
        )

    @property
    def in_flight(self) -> int:
        """Requests without a response, of all brokers."""
        return sum(broker.in_flight for broker in self._brokers.values())

    @property
    def responded_at(self) -> float | None:
        """Time of the last response of any broker; None before the first."""
        times = [broker.activity.responded_at for broker in self._brokers.values()]
        known = [time for time in (self._responded_before, *times) if time is not None]
        return max(known, default=None)

    @property
    def degraded(self) -> bool:
        """True if connections failed or requests timed out, and no other broker is connected."""
        brokers = self._brokers.values()
        if any(broker.connected and not broker.activity.overdue for broker in brokers):
            return False
        return self._troubled or any(broker.activity.overdue for broker in brokers)

    def silent(self, now: float) -> KafkaError | None:
        """Return the error of the broker whose response is overdue the longest; None if none is."""
        found = [
            (age, node_id)
            for node_id, broker in self._brokers.items()
            if (age := broker.silent_for(now)) is not None
        ]
        if not found:
            return None
        age, node_id = max(found)
        node = self._nodes().get(node_id)
        address = self._servers.get(node_id) if node is None else Address(node_id, *node[1:3])
        place = address or f"broker {node_id}"
        return KafkaTimeoutError(f"{place} has not responded for {age:.0f} s")

    def all_unreachable(self) -> bool:
        """Return whether no candidate broker can be connected to and responds."""
        for node_id in self._candidates():
            broker = self._broker(node_id)
            if not broker.activity.overdue and (broker.connected or node_id not in self.failures):
                return False
        return True

    # -- changes ----------------------------------------------------------------------------------

    def follow(self, known: Iterable[int]) -> None:
        """Metadata names these brokers: let go of bootstrap servers and of those that are gone."""
        gone = self._brokers.keys() - set(known)
        for node_id in gone:
            connections = self._brokers[node_id]
            shared = connections.shared()
            busy = connections.owned or any(
                connection.in_flight or connection.connecting for connection in shared
            )
            if node_id < 0 or not busy:
                for connection in shared:
                    connection.end(KafkaConnectionError(f"broker {node_id} has left the cluster"))
                self._responded_before = self.responded_at
                self._brokers.pop(node_id, None)

    def disconnect(self, reason: KafkaError) -> None:
        """Drop every connection; lanes stay and connect again when they are used (KIP-1102)."""
        for connection in self._connections():
            connection.disconnect(reason)

    def end(self, reason: KafkaError) -> None:
        """Close all lanes at once; what is under way fails with `reason`."""
        for connection in self._connections():
            connection.end(reason)

    async def close(self, reason: KafkaError, timeout: float) -> None:
        """Close all lanes; abort the connections that are still open after `timeout` seconds."""
        await close_connections(self._connections(), timeout, reason)

    # -- what lanes tell --------------------------------------------------------------------------

    def connected(self, connection: BrokerConnection, versions: BrokerVersions) -> None:
        """A lane has a connection, and with it the newest features that any broker has told."""
        self.failures.pop(connection.node_id, None)
        self._refusals.pop(connection.node_id, None)
        self._troubled = False
        if versions.features_epoch >= self._features_epoch:
            self._features_epoch = versions.features_epoch
            self.features = versions.features

    def failed(self, connection: BrokerConnection, error: KafkaError) -> None:
        """A lane could not connect."""
        self.failures[connection.node_id] = error
        if isinstance(error, ConnectionSetupError) and error.refused:
            self._refusals[connection.node_id] += 1
        else:
            self._refusals.pop(connection.node_id, None)
        self.lost(error)
        if isinstance(error, WrongBrokerError):
            self._on_wrong_broker(error.message)

    def lost(self, error: KafkaError) -> None:
        """A connection ended by an error, or did not come about."""
        self.last_error = error
        self._troubled = True
        if not any(broker.connected for broker in self._brokers.values()):
            self._on_disconnected()

    def closed(self, connection: BrokerConnection) -> None:
        """A lane is gone."""
        broker = self._brokers.get(connection.node_id)
        if broker is not None:
            broker.owned.discard(connection)

    # -- bootstrap servers ------------------------------------------------------------------------

    def server_failures(self) -> list[str]:
        """One line for each bootstrap server: its address and what it failed with."""
        return [
            f"{address}: {self._trouble(node_id)}" for node_id, address in self._servers.items()
        ]

    def all_failed(self) -> bool:
        """Whether every bootstrap server has been tried and could not be connected to."""
        return self.failures.keys() >= self._servers.keys()

    def refusals(self) -> int:
        """Refused attempts in a row, of the bootstrap server that has the fewest."""
        return min(self._refusals[node_id] for node_id in self._servers)

    def hopeless(self) -> bool:
        """Whether no bootstrap server can be used before somebody changes something."""
        failures = [self.failures.get(node_id) for node_id in self._servers]
        return all(failure is not None and is_permanent(failure) for failure in failures)

    def _trouble(self, node_id: int) -> str:
        broker = self._brokers.get(node_id)
        error = self.failures.get(node_id)
        if broker is not None and broker.general.connecting:
            return broker.general.trouble()
        if error is None:
            return "not tried yet when the time ran out"
        return error.message.removeprefix(f"{self._servers[node_id]}: ")

    # -- pieces -----------------------------------------------------------------------------------

    def _candidates(self) -> list[int]:
        return list(self._nodes() or self._servers)

    def _connections(self) -> list[BrokerConnection]:
        return [
            connection for broker in list(self._brokers.values()) for connection in broker.all()
        ]

    def _broker(self, node_id: int) -> BrokerLanes:
        broker = self._brokers.get(node_id)
        if broker is None:
            activity = BrokerActivity()
            general = self._new(node_id, ConnectionKind.GENERAL, "shared", activity)
            broker = self._brokers[node_id] = BrokerLanes(general, activity)
        return broker

    def _new(
        self,
        node_id: int,
        kind: ConnectionKind,
        owner: str,
        activity: BrokerActivity,
        max_frame_size: int | None = None,
        fetch_max_wait: float = 0.0,
    ) -> BrokerConnection:
        if self._wiring.lifetime.ended is not None:
            raise self._wiring.lifetime.ended
        return BrokerConnection(
            self._wiring,
            self._supervisor,
            node_id,
            kind,
            owner=owner,
            activity=activity,
            locate=lambda: self._address(node_id),
            watcher=self,
            max_frame_size=max_frame_size,
            fetch_max_wait=fetch_max_wait,
        )

    def _address(self, node_id: int) -> Address:
        if node_id < 0:
            return self._servers[node_id]
        node = self._nodes().get(node_id)
        if node is None:
            raise self._unknown(node_id)
        allowed = self._wiring.config.allowed_broker_hosts
        if allowed is not None and not _matches(node.host, allowed):
            raise InvalidConfigurationError(
                f"metadata sends this client to {node.host}:{node.port} (broker {node_id}), which "
                f"allowed_broker_hosts={list(allowed)} does not permit: extend it if that is right"
            )
        return Address(node_id, node.host, node.port)

    def _unknown(self, node_id: int) -> KafkaConnectionError:
        """Return the error for a broker that metadata lacks.

        While no broker can be reached, that is a consequence, and the error names a refused
        connection first.
        """
        text = f"broker {node_id} is not in the cluster's metadata"
        failures = [self.failures.get(candidate) for candidate in self._candidates()]
        causes = [error for error in failures if isinstance(error, ConnectionSetupError)]
        if causes and self.all_unreachable():
            text = f"{causes[0].message} ({text})"
        return KafkaConnectionError(text)


def _matches(host: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in patterns)
