"""The brokers of one client and the connections to each.

Until metadata has arrived, and after a rebootstrap, the candidates are the bootstrap servers, under
negative node ids; then they are the brokers in the metadata. A broker has one general connection
and one for slow requests, each created when first needed and shared by all users of the client.
Producers, consumers and group members have further connections.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kafka_async.client.connection.address import Address
from kafka_async.client.connection.broker_connection import (
    CLOSE_TIMEOUT,
    BrokerConnection,
    ConnectionKind,
    close_connections,
    is_permanent,
)
from kafka_async.client.connection.connection import (
    UNANSWERED_AFTER,
    BrokerActivity,
    ConnectionSetupError,
    WrongBrokerError,
)
from kafka_async.client.wire.handshake import BrokerVersions
from kafka_async.config import split_server
from kafka_async.config.spelling import spell_given
from kafka_async.errors import (
    AuthenticationError,
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationError,
    SslAuthenticationError,
)

if TYPE_CHECKING:
    from kafka_async.client.connection.connection_context import ConnectionContext
    from kafka_async.types import Node


class KnownBroker:
    """One broker: its shared connections (general and slow) and those with an owner."""

    def __init__(self, general: BrokerConnection, activity: BrokerActivity) -> None:
        self.general = general
        self.slow: BrokerConnection | None = None
        self.activity = activity
        self.owned: set[BrokerConnection] = set()

    @property
    def connected(self) -> bool:
        """True if any connection to the broker is open."""
        return any(connection.connected for connection in self.all())

    @property
    def in_flight(self) -> int:
        """Number of requests without a response, on all connections."""
        return sum(connection.in_flight for connection in self.all())

    def unresponsive_for(self, now: float) -> float | None:
        """Return the seconds without a response while one is due, or None if none is overdue."""
        connections = self.all()
        sent = [at for each in connections if (at := each.unanswered_since(now)) is not None]
        if not sent:
            return None
        # A response on any connection shows that the broker is alive.
        since = max(min(sent), self.activity.responded_at or 0.0)
        return now - since if now - since >= UNANSWERED_AFTER else None

    def available(self, now: float) -> bool:
        """Return True if a connection is open or may be opened now (KIP-899)."""
        return self.connected or self.general.connecting or self.general.retry_at <= now

    def all(self) -> list[BrokerConnection]:
        """Return all connections."""
        return [*self.shared(), *self.owned]

    def shared(self) -> list[BrokerConnection]:
        """Return the connections that the client owns."""
        return [self.general] if self.slow is None else [self.general, self.slow]


class Brokers:
    """Manages all connections of one client. It is their `ConnectionObserver`.

    Args:
        nodes: Returns the brokers in the metadata; empty if only bootstrap servers are known.
        on_disconnected: Called when the last connection was lost or could not be opened.
        on_overdue: Called when a broker takes longer than usual and there are others to turn to.
        on_wrong_broker: Called with the reason when another broker or cluster responds (KIP-1242).

    Attributes:
        failures: Error of the last attempt to connect, by node id.
    """

    def __init__(
        self,
        context: ConnectionContext,
        nodes: Callable[[], Mapping[int, Node]],
        *,
        on_disconnected: Callable[[], None],
        on_overdue: Callable[[], None],
        on_wrong_broker: Callable[[str], None],
    ) -> None:
        # Features of the cluster: the newest that any broker reported, and those of the last
        # connection.
        self._features = self._newest_versions = BrokerVersions()
        # Failures, by node id and overall; a success clears those of its broker.
        self.failures: dict[int, KafkaError] = {}
        self.last_error: KafkaError | None = None
        self._failed_at: dict[int, float] = {}
        self._refusals: Counter[int] = Counter()
        self._failing = False
        # Responses of brokers that were dropped since.
        self._responded_before: float | None = None
        # What the client passes in.
        self._context = context
        self._nodes = nodes
        self._on_disconnected = on_disconnected
        self._on_overdue = on_overdue
        self._on_wrong_broker = on_wrong_broker
        # Brokers that were used, and bootstrap servers under the ids -1, -2 and so on.
        self._brokers: dict[int, KnownBroker] = {}
        self._servers: dict[int, Address] = {}
        for index, server in enumerate(context.config.bootstrap_servers, start=1):
            self._servers[-index] = Address(-index, *split_server(server))

    # -- connections ------------------------------------------------------------------------------

    def general(self, node_id: int) -> BrokerConnection:
        """Return the shared connection to a broker for requests that it handles at once."""
        return self._broker(node_id).general

    def slow(self, node_id: int) -> BrokerConnection:
        """Return the shared connection to a broker for requests that the broker holds back."""
        broker = self._broker(node_id)
        if broker.slow is None:
            broker.slow = self._new(node_id, ConnectionKind.SLOW, "shared", broker.activity)
        return broker.slow

    def connection(
        self,
        node_id: int,
        kind: ConnectionKind,
        owner: object,
        *,
        max_frame_size: int | None = None,
        fetch_max_wait: float = 0.0,
    ) -> BrokerConnection:
        """Return a new connection to a broker, which is opened on first use; the caller closes it.

        The connection's `repr` contains the class of `owner`. `max_frame_size` limits a response,
        in bytes, below the limit of its kind; the broker may hold a fetch back for `fetch_max_wait`
        seconds.
        """
        broker, name = self._broker(node_id), type(owner).__name__
        connection = self._new(node_id, kind, name, broker.activity, max_frame_size, fetch_max_wait)
        broker.owned.add(connection)
        return connection

    def least_loaded(
        self, now: float, *, exclude: BrokerConnection | None = None
    ) -> BrokerConnection | None:
        """Return the general connection for a request to any broker; None during all backoffs.

        An open connection with the fewest requests in flight is preferred, then the one whose last
        failure is the longest ago. Slow brokers come after the others, and brokers with an overdue
        response last. Among equal brokers, throttled connections are avoided.
        """
        candidates = [self._broker(node_id) for node_id in self._candidates()]
        # Clients that start together must not all use the first broker.
        random.shuffle(candidates)
        for rank in range(3):
            connections = [one.general for one in candidates if one.activity.rank == rank]
            connections = [each for each in connections if each is not exclude]
            connected = [each for each in connections if each.connected]
            # An open connection of a worse rank comes after a closed one of a better rank.
            if connected:
                connected = [each for each in connected if each.muted_until <= now] or connected
                return min(connected, key=lambda each: each.in_flight)
            usable = [each for each in connections if each.connecting or each.retry_at <= now]
            # An attempt in progress comes after a broker that is idle.
            if usable:
                return min(usable, key=lambda each: (each.connecting, each.retry_at))
        return None

    def available(self, now: float) -> bool:
        """Return True if any candidate broker is available.

        KIP-899 calls a broker unavailable while it is disconnected and its back-off forbids another
        attempt. That is seldom true of all brokers at once if they accept connections and do not
        respond. So a broker is also unavailable if it is disconnected and its last attempt has
        failed since any broker has responded.
        """
        responded_at = self.responded_at or 0.0
        for node_id in self._candidates():
            # A failure that is older than the last response counts as over.
            broker, failed_at = self._broker(node_id), self._failed_at.get(node_id, -1.0)
            if broker.connected or (broker.available(now) and failed_at < responded_at):
                return True
        return False

    def available_at(self) -> float:
        """Return the earliest time at which backoff allows connecting to a candidate broker."""
        return min(self.general(node_id).retry_at for node_id in self._candidates())

    def finalized_feature(self, name: str) -> int:
        """Return the level of a feature such as "transaction.version"; 0 if there is none."""
        return self._features.features.get(name, 0)

    # -- health -----------------------------------------------------------------------------------

    def connected_ids(self) -> tuple[int, ...]:
        """Return the ids of the brokers with an open connection, bootstrap servers excluded."""
        return tuple(
            sorted(key for key, broker in self._brokers.items() if key >= 0 and broker.connected)
        )

    @property
    def in_flight(self) -> int:
        """Number of requests without a response, of all brokers."""
        return sum(broker.in_flight for broker in self._brokers.values())

    @property
    def responded_at(self) -> float | None:
        """Time of the last response of any broker; None before the first."""
        times = [broker.activity.responded_at for broker in self._brokers.values()]
        known = [time for time in (self._responded_before, *times) if time is not None]
        return max(known, default=None)

    @property
    def degraded(self) -> bool:
        """True after a failure or timeout, while no broker is connected and responds in time."""
        brokers = self._brokers.values()
        if any(broker.connected and not broker.activity.overdue for broker in brokers):
            return False
        return self._failing or any(broker.activity.overdue for broker in brokers)

    def outage_error(self) -> KafkaError | None:
        """Return the error for which no broker can be reached, or None while one responds."""
        if not self.degraded:
            return None
        failures = [self.failures.get(node_id) for node_id in self._candidates()]
        error = next((each for each in failures if each is not None), self.last_error)
        return None if self._context.is_outdated(error) else error

    def unresponsive_error(self, now: float) -> KafkaError | None:
        """Return the error of the broker whose response is overdue the longest, or None."""
        found = [
            (age, node_id)
            for node_id, broker in self._brokers.items()
            if (age := broker.unresponsive_for(now)) is not None
        ]
        if not found:
            return None
        age, node_id = max(found)
        node = self._nodes().get(node_id)
        address = self._servers.get(node_id) if node is None else Address(node_id, *node[1:3])
        place = address or f"broker {node_id}"
        return KafkaTimeoutError(f"{place} has not responded for {age:.0f} s")

    def all_unreachable(self) -> bool:
        """Return True if no candidate broker can be connected to and responds."""
        for node_id in self._candidates():
            broker = self._broker(node_id)
            if not broker.activity.overdue and (broker.connected or node_id not in self.failures):
                return False
        return True

    # -- changes ----------------------------------------------------------------------------------

    def retain(self, known: Iterable[int]) -> None:
        """Drop bootstrap servers, and brokers that are no longer in the metadata.

        A broker with requests in flight, or with a connection that has an owner, is kept.
        """
        gone = self._brokers.keys() - set(known)
        for node_id in gone:
            broker = self._brokers[node_id]
            shared = broker.shared()
            busy = broker.owned or any(each.in_flight or each.connecting for each in shared)
            if node_id < 0 or not busy:
                for connection in shared:
                    connection.end(KafkaConnectionError(f"broker {node_id} has left the cluster"))
                # `responded_at` must not go back when its broker is dropped.
                self._responded_before = self.responded_at
                self._brokers.pop(node_id, None)

    def disconnect(self, reason: KafkaError) -> None:
        """Close every connection; each is reopened when it is used again (KIP-1102)."""
        for connection in self._connections():
            connection.disconnect(reason)

    def end(self, reason: KafkaError) -> None:
        """Close all connections at once; requests in flight fail with `reason`."""
        for connection in self._connections():
            connection.end(reason)

    async def close(self, reason: KafkaError, timeout: float) -> None:
        """Close all connections; abort those that are still open after `timeout` seconds."""
        await close_connections(self._connections(), timeout, reason)
        await self._context.streams.wait_ended(min(timeout, CLOSE_TIMEOUT))

    def on_credentials_replaced(self) -> None:
        """Forget the rejections of the former credentials, and the backoff after them."""
        for node_id, error in list(self.failures.items()):
            if isinstance(error, SaslAuthenticationError):
                del self.failures[node_id]
                broker = self._brokers.get(node_id)
                for connection in [] if broker is None else broker.all():
                    connection.end_backoff()

    # -- connection observer ----------------------------------------------------------------------

    def connecting(self, connection: BrokerConnection) -> None:
        """Postpone the other connections to a broker that has rejected the credentials.

        Otherwise each connection would count as a failed login of the user at the broker.
        """
        if isinstance(self.failures.get(connection.node_id), AuthenticationError):
            for other in self._broker(connection.node_id).all():
                if other is not connection:
                    other.postpone()

    def connected(self, connection: BrokerConnection, versions: BrokerVersions) -> None:
        """Clear the broker's failures and keep the newest features that any broker reported."""
        self.failures.pop(connection.node_id, None)
        self._failed_at.pop(connection.node_id, None)
        self._refusals.pop(connection.node_id, None)
        self._failing = False
        self._newest_versions = versions
        # KIP-584: a broker that was restarted may still report an older epoch.
        if versions.features_epoch >= self._features.features_epoch:
            self._features = versions

    def on_cluster_changed(self) -> None:
        """Forget the features of the former cluster, whose epochs may be higher.

        The broker that was connected last belongs to the cluster that the client follows now.
        """
        self._features = self._newest_versions

    def failed(self, connection: BrokerConnection, error: KafkaError) -> None:
        """Record a failed attempt to connect."""
        self.failures[connection.node_id] = error
        self._failed_at[connection.node_id] = self._context.supervisor.loop.time()
        if isinstance(error, ConnectionSetupError) and error.refused:
            self._refusals[connection.node_id] += 1
        else:
            self._refusals.pop(connection.node_id, None)
        self.lost(error)
        if isinstance(error, WrongBrokerError):
            self._on_wrong_broker(error.message)

    def lost(self, error: KafkaError) -> None:
        """Record that a connection was lost or could not be opened."""
        self.last_error = error
        self._failing = True
        # Other brokers may still give metadata.
        if not any(broker.connected for broker in self._brokers.values()):
            self._on_disconnected()

    def overdue(self, connection: BrokerConnection) -> None:
        """Prefer other brokers, and request the leaders from them: this broker may be frozen."""
        if len(self._candidates()) > 1:
            self._broker(connection.node_id).activity.suspect()
            self._on_overdue()

    def closed(self, connection: BrokerConnection) -> None:
        """Drop a connection that was closed for good."""
        broker = self._brokers.get(connection.node_id)
        if broker is not None:
            broker.owned.discard(connection)

    # -- bootstrap servers ------------------------------------------------------------------------

    def server_failures(self) -> list[str]:
        """Return one line for each bootstrap server: its address and its error."""
        return [
            f"{address}: {self._server_problem(node_id)}"
            for node_id, address in self._servers.items()
        ]

    def all_failed(self) -> bool:
        """Return True if every bootstrap server was tried and could not be connected to."""
        return self.failures.keys() >= self._servers.keys()

    def refusals(self) -> int:
        """Return the number of refused attempts in a row of the server that has the fewest."""
        return min(self._refusals[node_id] for node_id in self._servers)

    def rejection(self) -> AuthenticationError | None:
        """Return the error of a bootstrap server after which no further login is tried.

        A rejected certificate concerns one server, so others are tried first. A rejected password
        concerns the cluster: more attempts would count against the user.
        """
        failures = [self.failures.get(node_id) for node_id in self._servers]
        rejections = [each for each in failures if isinstance(each, AuthenticationError)]
        # A server that was not tried yet may accept the certificate.
        if None in failures:
            rejections = [e for e in rejections if not isinstance(e, SslAuthenticationError)]
        return rejections[0] if rejections else None

    def all_failures_permanent(self) -> bool:
        """Return True if no bootstrap server can be used until something is changed."""
        failures = [self.failures.get(node_id) for node_id in self._servers]
        return all(failure is not None and is_permanent(failure) for failure in failures)

    def _server_problem(self, node_id: int) -> str:
        broker = self._brokers.get(node_id)
        error = self.failures.get(node_id)
        if broker is not None and broker.general.connecting:
            return broker.general.connect_problem()
        if error is None:
            return "not tried yet when the time ran out"
        return error.message.removeprefix(f"{self._servers[node_id]}: ")

    # -- helpers ----------------------------------------------------------------------------------

    def _candidates(self) -> list[int]:
        return list(self._nodes() or self._servers)

    def _connections(self) -> list[BrokerConnection]:
        return [each for broker in list(self._brokers.values()) for each in broker.all()]

    def _broker(self, node_id: int) -> KnownBroker:
        broker = self._brokers.get(node_id)
        if broker is None:
            activity = BrokerActivity()
            general = self._new(node_id, ConnectionKind.GENERAL, "shared", activity)
            broker = self._brokers[node_id] = KnownBroker(general, activity)
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
        # A stopped client must not open connections.
        if self._context.lifetime.ended is not None:
            raise self._context.lifetime.ended
        return BrokerConnection(
            self._context,
            node_id,
            kind,
            owner=owner,
            activity=activity,
            address=lambda: self._address(node_id),
            observer=self,
            max_frame_size=max_frame_size,
            fetch_max_wait=fetch_max_wait,
        )

    def _address(self, node_id: int) -> Address:
        if node_id < 0:
            return self._servers[node_id]
        node = self._nodes().get(node_id)
        if node is None:
            raise self._unknown_broker(node_id)
        # A broker's metadata could otherwise send credentials to any host.
        allowed = self._context.config.allowed_broker_hosts
        if allowed is not None and not _matches(node.host, allowed):
            permitted = spell_given("allowed_broker_hosts", str(list(allowed)))
            raise InvalidConfigurationError(
                f"metadata sends this client to {node.host}:{node.port} (broker {node_id}), which "
                f"{permitted} does not permit: extend it if that is right",
                option="allowed_broker_hosts",
            )
        return Address(node_id, node.host, node.port)

    def _unknown_broker(self, node_id: int) -> KafkaConnectionError:
        """Return the error for a broker that metadata lacks.

        While no broker can be reached, that is a consequence, and the error mentions a refused
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
