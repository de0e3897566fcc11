"""The embedded cluster: brokers, topics, coordinators, clocks and control methods.

Control methods are coroutines and may be awaited in any event loop of any thread: they run in the
cluster's event loop. `BlockingCluster` has the same methods for threads without an event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
import warnings
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from kafka_async.arguments import instance_of
from kafka_async.clock import Clock, LoopClock, MemoryNetwork
from kafka_async.embedded.broker import Broker
from kafka_async.embedded.faults import Faults
from kafka_async.embedded.groups import GroupCoordinator
from kafka_async.embedded.kafka_apis import KafkaApis
from kafka_async.embedded.network import ClientConnection, listen
from kafka_async.embedded.routes import routes_by_api_key
from kafka_async.embedded.settings import SettingOptions, Settings
from kafka_async.embedded.topics import TopicTable
from kafka_async.embedded.transactions import TransactionCoordinator
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    UnknownTopicOrPartitionError,
)
from kafka_async.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Self, Unpack

    from kafka_async.embedded.log import ControlRecordType
    from kafka_async.embedded.network import Listener
    from kafka_async.embedded.partition import Topic
    from kafka_async.types import TopicPartition

R = TypeVar("R")
Args = TypeVarTuple("Args")
logger = logging.getLogger("kafka_async.embedded")

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Failure:
    """Describes an internal error of the cluster; invalid requests are not failures."""

    where: str
    error: BaseException


class EmbeddedCluster:
    """Runs a Kafka cluster inside this process, for development and tests.

    Use it with `async with`, or with `start` and `stop`, which may be called from different tasks.
    All data is lost when it stops, and it cannot be started again.

    Args:
        brokers: Number of brokers; their ids are 1, 2, ...
        ports: Ports of the brokers in the order of their ids, 0 for a free port. Default: free
            ports.
        clock: Clock for timestamps such as LogAppendTime. Default: the event loop's.
        network: Listen in this in-memory network instead of on 127.0.0.1, for virtual time.
        settings: Broker settings; see `Settings`.

    Attributes:
        failures: Internal errors of the cluster; empty unless the cluster has a bug.
        faults: Rules that inject faults.

    Raises:
        InvalidConfigurationError: There are no brokers, `ports` has another length, or a setting
            is out of range.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        ports: Sequence[int] | None = None,
        clock: Clock | None = None,
        network: MemoryNetwork | None = None,
        **settings: Unpack[SettingOptions],
    ) -> None:
        self._supervisor = Supervisor("EmbeddedCluster")
        instance_of(brokers, int, "brokers")
        if brokers < 1 or (ports is not None and len(ports) != brokers):
            raise InvalidConfigurationError(f"{brokers} brokers with ports {ports}")
        self.settings = Settings(**settings)
        self.brokers = {
            index: Broker(
                index,
                self.settings.advertised_hosts.get(index, HOST),
                ports[index - 1] if ports else 0,
            )
            for index in range(1, brokers + 1)
        }
        self.topics = TopicTable(
            self.settings,
            self.alive_broker_ids,
            self._new_topic_id,
            lambda name: self.groups.on_topic_deleted(name),
        )
        self.faults = Faults()
        self.failures: list[Failure] = []
        self.routes = routes_by_api_key(self.settings.version_limits())
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self._clock = clock
        self._network = network
        self._apis = KafkaApis(self)
        self._listeners: dict[int, Listener] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._topic_ids = itertools.count(1)
        self._producer_ids = itertools.count(1000)

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
        """Start all brokers and return when they listen.

        Raises:
            OSError: A port cannot be opened.
            IllegalStateError: The cluster was started before.
        """
        await self._supervisor.start()
        if self._clock is None:
            self._clock = LoopClock(self.loop)
        try:
            for broker_id in self.brokers:
                await self._open(broker_id)
        except BaseException:
            await self.stop()
            raise
        self._schedule_retention()

    async def stop(self) -> None:
        """Close every connection and cancel every timer and task; safe to call again."""
        if not self._supervisor.running:
            await self._supervisor.stop()
            return
        self.groups.close()
        self.transactions.close()
        for broker_id in self.alive_broker_ids():
            await self._close(broker_id)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        await self._supervisor.stop()

    # -- for handlers and coordinators ------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the cluster.

        Raises:
            ClientClosedError: The cluster has not been started.
        """
        return self._supervisor.loop

    @property
    def running(self) -> bool:
        """True between `start` and `stop`."""
        return self._supervisor.running

    @property
    def clock(self) -> Clock:
        """The cluster's clock: `wall()` for timestamps, `monotonic()` for the event loop's time.

        Raises:
            ClientClosedError: The cluster has not been started.
        """
        if self._clock is None:
            raise ClientClosedError("the EmbeddedCluster was not started")
        return self._clock

    def now_ms(self) -> int:
        """Return the wall clock's time in milliseconds since the epoch."""
        return int(self.clock.wall() * 1000)

    def alive_broker_ids(self) -> list[int]:
        """Return the ids of the brokers that are alive, in ascending order."""
        return [broker.id for broker in self.brokers.values() if broker.alive]

    @property
    def controller_id(self) -> int:
        """The controller's broker id in responses: the lowest alive one, -1 without brokers."""
        return next(iter(self.alive_broker_ids()), -1)

    def coordinator_for(self, key: str) -> int | None:
        """Return the coordinator of a group or transactional id; None while all brokers are down.

        Only the keys of a stopped broker move to the next one, until the broker returns.
        """
        ids = list(self.brokers)
        start = zlib.crc32(key.encode()) % len(ids)
        return next((id_ for id_ in ids[start:] + ids[:start] if self.brokers[id_].alive), None)

    def next_producer_id(self) -> int:
        """Allocate a producer id."""
        return next(self._producer_ids)

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args
    ) -> asyncio.TimerHandle:
        """Schedule a callback in the cluster's event loop after `delay` seconds.

        The cluster cancels it when it stops. An exception is added to `failures`.
        """

        def run() -> None:
            self._timers.discard(timer)
            try:
                callback(*args)
            except Exception as error:  # noqa: BLE001  # a bug must not stop the cluster
                self.record_failure(f"timer {callback!r}", error)

        timer = self.loop.call_later(delay, run)
        self._timers = {handle for handle in self._timers if not handle.cancelled()}
        self._timers.add(timer)
        return timer

    def write_txn_marker(
        self,
        tp: TopicPartition,
        kind: ControlRecordType,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = 0,
    ) -> int | None:
        """Append a transaction marker to a partition; return its offset.

        Returns None if the partition does not exist.
        """
        partition = self.topics.partition(tp)
        if partition is None:
            return None
        offset = partition.log.append_end_txn_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            now=self.now_ms(),
        )
        partition.notify_listeners()
        return offset

    def record_failure(self, where: str, error: BaseException) -> None:
        """Log an internal error of the cluster and add it to `failures`."""
        logger.error("%s failed", where, exc_info=error)
        self.failures.append(Failure(where, error))

    # -- control ----------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers as `host:port,host:port`, stopped brokers included."""
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers.values())

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
            assignments: Broker ids of the replicas by partition, in place of the two numbers.
            configs: Topic configurations that differ from the defaults.

        Returns:
            The topic.

        Raises:
            TopicExistsError: There is a topic of this name.
            InvalidTopicError: The name is not valid.
            InvalidConfigError: A configuration is unknown or its value is not valid.
            InvalidPartitionsError: The number of partitions is not positive.
            InvalidReplicationFactorError: There are too few brokers.
            InvalidReplicaAssignmentError: The assignment is not valid.
        """

        async def create() -> Topic:
            return self.topics.create(
                name, partitions, replication_factor, assignments=assignments, configs=configs
            )

        return await self._run_in_cluster_loop(create())

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; pending fetches of it get a response.

        Args:
            name: Name of the topic.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """

        async def delete() -> None:
            self.topics.delete(name)

        await self._run_in_cluster_loop(delete())

    async def add_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic.

        Args:
            name: Name of the topic.
            total: The new number of partitions.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidPartitionsError: `total` is not larger than the present number.
        """

        async def add() -> None:
            self.topics.add_partitions(name, total)

        await self._run_in_cluster_loop(add())

    async def move_leader(self, tp: TopicPartition, broker_id: int | None = None) -> int:
        """Elect a leader for a partition.

        Args:
            tp: The partition.
            broker_id: The new leader, which becomes a replica if needed. Default: another in-sync
                replica; the present leader if there is none.

        Returns:
            The leader's broker id.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
            IllegalStateError: The broker is stopped.
        """

        async def move() -> int:
            partition = self.topics.partition(tp)
            if partition is None:
                raise UnknownTopicOrPartitionError(f"there is no {tp}")
            chosen = broker_id
            if chosen is None:
                others = [id_ for id_ in partition.isr if id_ != partition.leader]
                chosen = others[0] if others else partition.leader
            if not self.brokers[chosen].alive:
                raise IllegalStateError(f"broker {chosen} is stopped")
            partition.move_leader(chosen)
            return chosen

        return await self._run_in_cluster_loop(move())

    async def stop_broker(self, broker_id: int) -> None:
        """Stop a broker as a crash does: reset its connections, move leaders and coordinators.

        Args:
            broker_id: The broker's id; a stopped broker stays stopped.
        """
        await self._run_in_cluster_loop(self._stop_broker(broker_id))

    async def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker on its previous port.

        Args:
            broker_id: The broker's id; a running broker is left alone.
        """
        await self._run_in_cluster_loop(self._start_broker(broker_id))

    async def disconnect(self, broker_id: int | None = None) -> int:
        """Reset the connections of a broker that keeps running.

        Args:
            broker_id: The broker's id. Default: all brokers.

        Returns:
            The number of connections that were reset.
        """

        async def reset() -> int:
            chosen = [
                connection
                for broker in self.brokers.values()
                if broker_id in (None, broker.id)
                for connection in broker.connections
            ]
            for connection in chosen:
                connection.abort()
            return len(chosen)

        return await self._run_in_cluster_loop(reset())

    async def _stop_broker(self, broker_id: int) -> None:
        if self.brokers[broker_id].alive:
            await self._close(broker_id)
            self._on_brokers_changed()

    async def _start_broker(self, broker_id: int) -> None:
        if not self.brokers[broker_id].alive:
            await self._open(broker_id)
            self._on_brokers_changed()

    def _schedule_retention(self) -> None:
        interval = self.settings.log_retention_check_interval_ms / 1000

        def delete_old_segments() -> None:
            self.topics.delete_old_segments(self.now_ms())
            self._schedule_retention()

        self.call_later(interval, delete_old_segments)

    def _on_brokers_changed(self) -> None:
        self.topics.update_leaders()
        self.groups.on_brokers_changed()
        self.transactions.on_brokers_changed()

    async def _open(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]

        def accept() -> ClientConnection:
            return ClientConnection(
                broker, self._apis, self._supervisor, self.settings.socket_request_max_bytes
            )

        listener = await listen(accept, HOST, broker.port, self._network)
        self._listeners[broker_id] = listener
        broker.port = listener.port
        broker.on_started()

    async def _close(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        broker.alive = False
        await self._listeners.pop(broker_id).close()
        connections = tuple(broker.connections)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.close()

    async def _run_in_cluster_loop(self, body: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the cluster's event loop, from any event loop."""
        if not self.running:
            body.close()
            raise ClientClosedError("the EmbeddedCluster is not running")
        if asyncio.get_running_loop() is self.loop:
            return await body
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(body, self.loop))

    def _new_topic_id(self) -> uuid.UUID:
        name = f"{self.settings.cluster_id}/{next(self._topic_ids)}"
        return uuid.uuid5(uuid.NAMESPACE_OID, name)
