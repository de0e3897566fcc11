"""The embedded cluster: brokers, topics, coordinators, clocks and control methods.

Control methods are coroutines that run in the cluster's event loop, and may be awaited in any event
loop of any thread. `BlockingCluster` has the same methods for threads without an event loop.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kafka_async.embedded.failures import Failure, FailureList
from kafka_async.embedded.faults import FaultRules, Faults
from kafka_async.embedded.groups.group_configs import GroupConfigs
from kafka_async.embedded.groups.group_coordinator import GroupCoordinator
from kafka_async.embedded.groups.share_partition_manager import ShareBrokers
from kafka_async.embedded.groups.share_states import ShareStates
from kafka_async.embedded.handlers.routes import ROUTES, Parts, routes_by_api_key
from kafka_async.embedded.kafka_apis import KafkaApis
from kafka_async.embedded.network import ClientConnection, listen
from kafka_async.embedded.profiles import profile_settings
from kafka_async.embedded.quotas.client_quotas import ClientQuotas
from kafka_async.embedded.quotas.quota_manager import QuotaManager, QuotaOptions
from kafka_async.embedded.requests.authorization import Authorization
from kafka_async.embedded.requests.session import ClientSession
from kafka_async.embedded.scheduler import Scheduler
from kafka_async.embedded.security.credentials import Credentials
from kafka_async.embedded.security.delegation_tokens import DelegationTokens
from kafka_async.embedded.security.listeners import exchanges_of, listeners_by_name
from kafka_async.embedded.security.sasl_server_authenticator import SaslServerAuthenticator
from kafka_async.embedded.settings import SettingOptions, Settings
from kafka_async.embedded.state.acls import AclAuthorizer
from kafka_async.embedded.state.brokers import Broker, Brokers
from kafka_async.embedded.state.offset_metadata_manager import OffsetMetadataManager
from kafka_async.embedded.state.throttle_log import ThrottleLog
from kafka_async.embedded.state.topics import TopicTable
from kafka_async.embedded.tls import TlsConnection
from kafka_async.embedded.transactions.transaction_coordinator import TransactionCoordinator
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    UnknownTopicOrPartitionError,
)
from kafka_async.foundation.arguments import (
    MAX_INT32,
    MAX_OFFSET,
    iterable,
    mapping,
    topic_partition,
    whole_number,
)
from kafka_async.foundation.start_guard import StartGuard
from kafka_async.foundation.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Literal, Self, Unpack

    from kafka_async.embedded.network import OpenPort
    from kafka_async.embedded.quotas.quota_manager import QuotaCallback
    from kafka_async.embedded.security.listeners import Listener, Listeners
    from kafka_async.embedded.security.principal_mapping import PrincipalMapping
    from kafka_async.embedded.state.partition import Topic
    from kafka_async.foundation.clock import Clock
    from kafka_async.foundation.memory_network import MemoryNetwork
    from kafka_async.secrets import Secret
    from kafka_async.types import TopicPartition

R = TypeVar("R")

HOST = "127.0.0.1"
MAX_BROKERS: Final = 1_000
MAX_PARTITIONS: Final = 100_000
"""Maximum brokers, and partitions of a topic: a larger number is a mistake, and would fill the
memory.
"""


class EmbeddedCluster:
    """Runs a Kafka cluster inside this process, for development and tests.

    Use it with `async with`, or with `start` and `stop`, which may be called from different tasks.
    All data is lost when the cluster stops, and it cannot be started again.

    Args:
        brokers: Number of brokers; their ids are 1, 2, ...
        ports: Ports of the brokers' first listener in the order of their ids, 0 for a free port.
            Default: free ports. Other listeners have free ports.
        clock: Clock for timestamps such as LogAppendTime. Default: the event loop's.
        network: Listen in this in-memory network instead of on 127.0.0.1, for virtual time.
        authorizer: Authorizes clients' operations by ACLs; True is an `AclAuthorizer` without super
            users. Default: every operation is allowed.
        listeners: The listeners of each broker by name, the one of `bootstrap_servers` first; or
            one security protocol, which is also the listener's name. Default: "PLAINTEXT".
        users: Passwords by user name, for PLAIN and SCRAM. Default: no users.
        quota_callback: Chooses clients' quotas, as Kafka's ClientQuotaCallback. Default: the quotas
            set by AlterClientQuotas and `quotas`.
        profile: Name in `PROFILES` of the brokers to imitate in versions and features, such as
            "kafka-2.8", "event-hubs" or "redpanda"; `settings` override it. Default: Kafka 4.4.
        settings: Broker settings; see `Settings`.

    Attributes:
        failures: Internal errors of the cluster; empty unless the cluster has a bug.
        faults: Rules that inject faults.
        quotas: Client quotas, their measurements, and a switch for each client and the cluster.
        throttle_log: Throttle windows, and the requests that clients sent within them.

    Raises:
        InvalidConfigurationError: There are no brokers, `ports` has another length, a listener is
            not valid, the profile does not exist, a setting is out of range, or a broker with a
            rack does not exist.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        ports: Sequence[int] | None = None,
        clock: Clock | None = None,
        network: MemoryNetwork | None = None,
        authorizer: AclAuthorizer | Literal[True] | None = None,
        listeners: Listeners | None = None,
        users: Mapping[str, str | Secret] | None = None,
        quota_callback: QuotaCallback | None = None,
        profile: str | None = None,
        **settings: Unpack[SettingOptions],
    ) -> None:
        self._supervisor = Supervisor("EmbeddedCluster")
        self._start_guard = StartGuard("EmbeddedCluster")
        brokers = whole_number(brokers, "brokers", low=-MAX_INT32, high=MAX_INT32)
        if not 1 <= brokers <= MAX_BROKERS:
            raise InvalidConfigurationError(f"brokers must be 1 to {MAX_BROKERS}, not {brokers}")
        if ports is not None:
            given_ports = iterable(ports, "ports")
            ports = [whole_number(p, "each of ports", low=0, high=65_535) for p in given_ports]
            if len(ports) != brokers:
                raise InvalidConfigurationError(
                    f"ports must have one port for each of {brokers} brokers, not {ports}"
                )
        known = SettingOptions.__annotations__
        for name in settings.keys() - known.keys():
            raise TypeError(f"EmbeddedCluster got an unexpected keyword argument {name!r}")
        self.settings = Settings(**_with_profile(profile, settings))
        for name in ("racks", "advertised_hosts"):
            given: object = getattr(self.settings, name)
            if not isinstance(given, Mapping) or any(
                not isinstance(text, str) for text in cast("Mapping[int, object]", given).values()
            ):
                raise InvalidConfigurationError(
                    f'{name} must be a dict of str by broker id, as {{1: "a"}}, not {given!r:.100}'
                )
        hosts = self.settings.advertised_hosts
        self._listeners = listeners_by_name(listeners)
        first = next(iter(self._listeners))
        self.brokers = Brokers(
            (
                id_,
                Broker(
                    id_,
                    hosts.get(id_, HOST),
                    {**dict.fromkeys(self._listeners, 0), first: ports[id_ - 1] if ports else 0},
                    self.settings.racks.get(id_),
                ),
            )
            for id_ in range(1, brokers + 1)
        )
        if unknown := self.settings.racks.keys() - self.brokers.keys():
            raise InvalidConfigurationError(f"racks of brokers that do not exist: {unknown}")
        self._credentials = Credentials(users or {})
        self._tokens = DelegationTokens(self.settings)
        offsets = OffsetMetadataManager(self.settings.offsets_topic_num_partitions)
        # State that outlives brokers, as if on disk; the coordinators below work on it.
        share_states, group_configs = ShareStates(), GroupConfigs(self.settings)

        def forget_topic(topic: Topic) -> None:
            offsets.delete_topic(topic.name)
            share_states.delete_topic(topic.id)

        self.topics = TopicTable(self.settings, self.brokers, forget_topic)
        # `rules` and `failures` are the writable sides of the public `faults` and `failures`.
        rules, failures = FaultRules(self.topics), FailureList()
        self.faults = Faults(rules)
        self.failures: list[Failure] = failures
        self.scheduler = Scheduler(clock, failures)
        self.groups = GroupCoordinator(
            self.settings,
            self.brokers,
            self.scheduler,
            offsets,
            self.topics,
            share_states,
            group_configs,
        )
        self._share_brokers = ShareBrokers(
            self.settings,
            self.brokers,
            self.scheduler,
            self.topics,
            share_states,
            group_configs,
        )
        self.transactions = TransactionCoordinator(
            self.settings, self.brokers, self.scheduler, self.topics, offsets
        )
        self.quotas = QuotaManager(
            ClientQuotas(),
            QuotaOptions(
                self.settings.quota_window_num,
                self.settings.quota_window_size_seconds,
                self.settings.controller_quota_window_num,
                self.settings.controller_quota_window_size_seconds,
                self.settings.quota_formula,
            ),
            quota_callback,
        )
        routes = routes_by_api_key(self.settings.version_limits())
        parts = Parts(
            self.settings,
            self.brokers,
            self.topics,
            self.groups,
            self.transactions,
            Authorization(AclAuthorizer() if authorizer is True else authorizer),
            self._credentials,
            self._tokens,
            group_configs,
            share_states,
            self._share_brokers,
            self.quotas,
            self.scheduler.now_ms,
            {key: (route.lowest_advertised, route.highest) for key, route in routes.items()},
        )
        self._apis = KafkaApis(routes, parts, rules, failures)
        self.throttle_log = ThrottleLog()
        self._network = network
        # By broker id; a stopped broker has none.
        self._open_ports: dict[int, list[OpenPort]] = {}

    # -- start and stop ---------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __del__(self) -> None:
        if self._supervisor.running:
            warnings.warn("an EmbeddedCluster was never stopped", ResourceWarning, stacklevel=1)

    async def start(self) -> None:
        """Start all brokers; return when they listen.

        Raises:
            OSError: A port cannot be opened.
            IllegalStateError: The cluster was started before.
            ClientClosedError: The cluster was stopped while it started.
        """
        async with self._start_guard.starting():
            await self._start()

    async def _start(self) -> None:
        await self._supervisor.start()
        self.scheduler.start()
        try:
            for broker_id, broker in self.brokers.items():
                await self._open(broker_id, broker.ports)
        except BaseException:
            await self._stop()
            raise
        self._schedule_retention()
        self._schedule_token_removal()

    async def stop(self) -> None:
        """Close every connection and cancel every timer and task; safe to call again.

        A start in progress is cancelled, and raises ClientClosedError.

        Raises:
            IllegalStateError: The cluster was started in another event loop or process.
        """
        if not await self._start_guard.end():
            return
        await self._stop()

    async def _stop(self) -> None:
        if not self._supervisor.running:
            await self._supervisor.stop()
            return
        self._supervisor.check_event_loop()
        self.groups.close()
        self.transactions.close()
        self.quotas.shutdown()
        for broker_id in self.brokers.alive_ids():
            await self._close(broker_id)
        self.scheduler.close()
        await self._supervisor.stop()

    # -- control ----------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, including stopped ones, as `host:port,host:port`.

        These are the addresses of the first listener.
        """
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers.values())

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return the addresses of all brokers, including stopped ones, at a listener.

        Args:
            listener: Name of the listener.

        Raises:
            InvalidConfigurationError: The listener does not exist.
        """
        if listener not in self._listeners:
            names = ", ".join(self._listeners)
            raise InvalidConfigurationError(f"no listener {listener!r}: there are {names}")
        return ",".join(f"{HOST}:{broker.ports[listener]}" for broker in self.brokers.values())

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic.

        Args:
            name: Name of the topic.
            partitions: Number of partitions. Default: `Settings.default_partitions`.
            replication_factor: Replicas of each partition. Default:
                `Settings.default_replication_factor`.
            assignments: Broker ids of the replicas by partition, instead of the two numbers.
            configs: Topic configurations that differ from the defaults.

        Returns:
            The topic.

        Raises:
            TopicExistsError: A topic of this name exists.
            InvalidTopicError: The name is not valid.
            InvalidConfigError: A configuration is unknown or its value is not valid.
            InvalidPartitionsError: The number of partitions is not positive.
            InvalidReplicationFactorError: There are too few brokers.
            InvalidReplicaAssignmentError: The assignment is not valid.
        """
        if partitions is not None:
            partitions = whole_number(partitions, "partitions", low=-1, high=MAX_PARTITIONS)
        if replication_factor is not None:
            replication_factor = whole_number(
                replication_factor, "replication_factor", low=-1, high=MAX_BROKERS
            )
        if assignments is not None:
            for index, replicas in mapping(assignments, "assignments").items():
                whole_number(index, "each key of assignments", low=0, high=MAX_PARTITIONS)
                for broker in iterable(replicas, f"assignments[{index}]"):
                    whole_number(broker, f"each of assignments[{index}]", low=0, high=MAX_INT32)
        return await self._call(
            lambda: self.topics.create(
                name, partitions, replication_factor, assignments=assignments, configs=configs
            )
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; pending fetches of it get a response.

        Args:
            name: Name of the topic.

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
        """
        await self._call(lambda: self.topics.delete(name))

    async def add_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic.

        Args:
            name: Name of the topic.
            total: The new number of partitions.

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
            InvalidPartitionsError: `total` is not larger than the current number.
        """
        total = whole_number(total, "total", low=0, high=MAX_PARTITIONS)
        await self._call(lambda: self.topics.add_partitions(name, total))

    async def move_leader(self, tp: TopicPartition, broker_id: int | None = None) -> int:
        """Elect a leader for a partition.

        Args:
            tp: The partition.
            broker_id: The new leader, which becomes a replica if needed. Default: another in-sync
                replica, or the current leader if there is no other.

        Returns:
            The leader's broker id.

        Raises:
            UnknownTopicOrPartitionError: The partition does not exist.
            IllegalStateError: The broker is stopped.
            ValueError: The broker does not exist.
            TypeError: `tp` is not a partition.
        """
        tp = topic_partition(tp, "tp")

        def move() -> int:
            partition = self.topics.partition(tp)
            if partition is None:
                raise UnknownTopicOrPartitionError(f"there is no {tp}")
            chosen = broker_id
            if chosen is None:
                others = [id_ for id_ in partition.isr if id_ != partition.leader]
                chosen = others[0] if others else partition.leader
            if not self._broker(chosen).alive:
                raise IllegalStateError(f"broker {chosen} is stopped")
            partition.move_leader(chosen)
            return chosen

        return await self._call(move)

    async def set_password(self, user: str, password: str | Secret | None) -> None:
        """Replace a user's password, for PLAIN and SCRAM; open connections remain.

        Args:
            user: Name of the user; a new user is created.
            password: The new password; None removes the user.
        """
        await self._call(lambda: self._credentials.set_password(user, password))

    async def stop_broker(self, broker_id: int) -> None:
        """Stop a broker as in a crash: reset its connections, move leaders and coordinators.

        Args:
            broker_id: The broker's id; a stopped broker stays stopped.

        Raises:
            ValueError: The broker does not exist.
        """
        await self._run_in_cluster_loop(self._stop_broker(broker_id))

    async def start_broker(self, broker_id: int, *, port: int | None = None) -> None:
        """Start a stopped broker with its data.

        Args:
            broker_id: The broker's id; a running broker keeps running.
            port: Port of the first listener. Default: the previous port.

        Raises:
            ValueError: The broker does not exist, or the port is invalid.
        """
        if port is not None:
            port = whole_number(port, "port", low=0, high=65_535)
        await self._run_in_cluster_loop(self._start_broker(broker_id, port))

    async def disconnect(self, broker_id: int | None = None) -> int:
        """Reset the connections of a broker that keeps running.

        Args:
            broker_id: The broker's id. Default: all brokers.

        Returns:
            The number of connections that were reset.
        """

        if broker_id is not None:
            broker_id = self._broker(broker_id).id

        def reset() -> int:
            chosen = [
                connection
                for broker in self.brokers.values()
                if broker_id in (None, broker.id)
                for connection in broker.connections
            ]
            for connection in chosen:
                connection.abort()
            return len(chosen)

        return await self._call(reset)

    def _broker(self, broker_id: int) -> Broker:
        broker = self.brokers.get(whole_number(broker_id, "broker_id", low=-MAX_OFFSET))
        if broker is None:
            ids = ", ".join(map(str, self.brokers))
            raise ValueError(f"broker_id must be the id of a broker ({ids}), not {broker_id!r:.60}")
        return broker

    async def _stop_broker(self, broker_id: int) -> None:
        if self._broker(broker_id).alive:
            await self._close(broker_id)
            self._on_brokers_changed()

    async def _start_broker(self, broker_id: int, port: int | None) -> None:
        broker = self._broker(broker_id)
        if not broker.alive:
            first = next(iter(broker.ports))
            await self._open(broker_id, broker.ports | ({} if port is None else {first: port}))
            self._on_brokers_changed()

    def _schedule_retention(self) -> None:
        interval = self.settings.log_retention_check_interval_ms / 1000

        def delete_old_segments() -> None:
            self.topics.delete_old_segments(self.scheduler.now_ms())
            self._schedule_retention()

        self.scheduler.call_later(interval, delete_old_segments)

    def _schedule_token_removal(self) -> None:
        interval = self.settings.delegation_token_expiry_check_interval_ms / 1000

        def remove_expired() -> None:
            self._tokens.remove_expired(self.scheduler.now_ms())
            self._schedule_token_removal()

        self.scheduler.call_later(interval, remove_expired)

    def _on_brokers_changed(self) -> None:
        self.topics.update_leaders()
        self.groups.on_brokers_changed()
        self.transactions.on_brokers_changed()

    async def _open(self, broker_id: int, ports: Mapping[str, int]) -> None:
        """Open all listeners of a broker, at `ports` by listener name; if one fails, open none."""
        broker = self.brokers[broker_id]
        opened: dict[str, OpenPort] = {}
        try:
            for name, listener in self._listeners.items():
                mapping = listener.principal_mapping()
                accept = partial(self._accept, broker, name, listener, mapping)
                opened[name] = await listen(accept, HOST, ports[name], self._network)
        except BaseException:
            for port in opened.values():
                await port.close()
            raise
        self._open_ports[broker_id] = list(opened.values())
        broker.ports.update({name: port.port for name, port in opened.items()})
        broker.on_started()

    def _accept(
        self, broker: Broker, name: str, listener: Listener, mapping: PrincipalMapping | None
    ) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection at a listener."""
        session = ClientSession(
            broker=broker,
            listener=name,
            security_protocol=listener.security_protocol,
            principal_mapping=mapping,
        )
        if listener.uses_sasl:
            starts = exchanges_of(listener, self._credentials, self._tokens, self.scheduler.now_ms)
            max_reauth_ms = listener.connections_max_reauth_ms
            if max_reauth_ms is None:
                max_reauth_ms = self.settings.connections_max_reauth_ms
            session.authenticator = SaslServerAuthenticator(starts, max_reauth_ms)
        connection = ClientConnection(
            session,
            self._apis,
            self._supervisor,
            self.settings,
            self.throttle_log,
            self.quotas,
        )
        if listener.ssl_context is None:
            return connection
        return TlsConnection(listener.ssl_context, listener.verify_mode, broker, connection)

    async def _close(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        broker.alive = False
        self._share_brokers.on_broker_stopped(broker_id)
        connections = tuple(broker.connections)
        for connection in connections:
            connection.abort()
        for port in self._open_ports.pop(broker_id):
            await port.close()
        for connection in connections:
            await connection.close()

    async def _call(self, function: Callable[[], R]) -> R:
        """Call a function in the cluster's event loop, from any event loop."""

        async def call() -> R:
            return function()

        return await self._run_in_cluster_loop(call())

    async def _run_in_cluster_loop(self, body: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the cluster's event loop, from any event loop."""
        if not self._supervisor.running:
            body.close()
            raise ClientClosedError("the EmbeddedCluster is not running")
        loop = self._supervisor.loop
        if asyncio.get_running_loop() is loop:
            return await body
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(body, loop))


def _with_profile(profile: str | None, settings: SettingOptions) -> SettingOptions:
    """Return the settings, with a profile's values as defaults."""
    if profile is None:
        return settings
    given = profile_settings(profile, {route.api_key for route in ROUTES})
    versions = {**given["api_versions"], **settings.get("api_versions", {})}
    return {**given, **settings, "api_versions": versions}
