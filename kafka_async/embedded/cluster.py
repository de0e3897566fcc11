"""The embedded cluster: brokers, topics, coordinators, time, and the calls that control them.

Control calls are coroutines and may be awaited in any loop of any thread: they run in the
cluster's own. `BlockingCluster` has the same calls for threads that have no loop.
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
from kafka_async.embedded.kafka_apis import Dispatcher
from kafka_async.embedded.network import Connection, listen
from kafka_async.embedded.routes import table
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
    """Something in the cluster itself broke; never the answer to bad input."""

    where: str
    error: BaseException


class EmbeddedCluster:
    """A Kafka cluster inside this process, for development and tests: no data survives it.

    Args:
        brokers: how many; their ids are 1, 2, ...
        ports: their ports, in the order of ids (0: a free one); all free ones if not given.
        clock: the wall clock of LogAppendTime and the like; the loop's own if not given.
        network: listen in memory instead of on 127.0.0.1, for virtual time.
        settings: see `Settings`.

    Use it with `async with`, or `start` and `stop`, which may be called from different tasks. Once
    stopped it cannot be started again.
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
            self.alive,
            self._new_topic_id,
            lambda name: self.groups.topic_deleted(name),
        )
        self.faults = Faults()
        self.failures: list[Failure] = []
        self.routes = table(self.settings.version_limits())
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self._clock = clock
        self._network = network
        self._dispatcher = Dispatcher(self)
        self._listeners: dict[int, Listener] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._topic_ids = itertools.count(1)
        self._producer_ids = itertools.count(1000)

    # -- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __del__(self) -> None:
        if self._supervisor.running:
            warnings.warn("an EmbeddedCluster was never stopped", ResourceWarning, stacklevel=1)

    async def start(self) -> None:
        """Start all brokers; returns when they listen."""
        await self._supervisor.start()
        if self._clock is None:
            self._clock = LoopClock(self.loop)
        try:
            for broker_id in self.brokers:
                await self._open(broker_id)
        except BaseException:
            await self.stop()
            raise
        self._retain_later()

    async def stop(self) -> None:
        """End every connection, timer and task; safe to call again."""
        if not self._supervisor.running:
            await self._supervisor.stop()
            return
        self.groups.close()
        self.transactions.close()
        for broker_id in self.alive():
            await self._close(broker_id)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        await self._supervisor.stop()

    # -- what rooms and handlers use --------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it runs in; raises ClientClosedError before the start."""
        return self._supervisor.loop

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._supervisor.running

    @property
    def clock(self) -> Clock:
        """The cluster's clocks: `wall()` for timestamps, `monotonic()` is the loop's time."""
        if self._clock is None:
            raise ClientClosedError("the EmbeddedCluster was not started")
        return self._clock

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch."""
        return int(self.clock.wall() * 1000)

    def alive(self) -> list[int]:
        """The ids of the brokers that listen, ascending."""
        return [broker.id for broker in self.brokers.values() if broker.alive]

    @property
    def controller_id(self) -> int:
        """The broker that clients take for the controller: the lowest that is alive, else -1."""
        return next(iter(self.alive()), -1)

    def coordinator_for(self, key: str) -> int | None:
        """The broker that coordinates a group or a transactional id; None while all are down.

        A broker's keys move to the next one while it is stopped, and come back; other keys stay.
        """
        ids = list(self.brokers)
        start = zlib.crc32(key.encode()) % len(ids)
        return next((id_ for id_ in ids[start:] + ids[:start] if self.brokers[id_].alive), None)

    def next_producer_id(self) -> int:
        """A producer id that nobody had before."""
        return next(self._producer_ids)

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args
    ) -> asyncio.TimerHandle:
        """Call back in the loop after `delay` seconds, unless cancelled or the cluster stops."""

        def run() -> None:
            self._timers.discard(timer)
            try:
                callback(*args)
            except Exception as error:  # noqa: BLE001  # a bug of ours: visible, but nothing dies
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
        """End a transaction in a partition's log; the marker's offset, None without the topic."""
        partition = self.topics.partition(tp)
        if partition is None:
            return None
        offset = partition.log.append_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            now=self.now_ms(),
        )
        partition.changed()
        return offset

    def record_failure(self, where: str, error: BaseException) -> None:
        """Log a bug of ours and keep it in `failures`."""
        logger.error("%s failed", where, exc_info=error)
        self.failures.append(Failure(where, error))

    # -- control ----------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, stopped ones too, as `host:port,host:port`."""
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
        """Make a topic; numbers default to the settings'. Raises what a broker answers."""

        async def create() -> Topic:
            return self.topics.create(
                name, partitions, replication_factor, assignments=assignments, configs=configs
            )

        return await self._here(create())

    async def delete_topic(self, name: str) -> None:
        """Drop a topic; whoever waits for its data is answered."""

        async def delete() -> None:
            self.topics.delete(name)

        await self._here(delete())

    async def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, `total` in all."""

        async def grow() -> None:
            self.topics.grow(name, total)

        await self._here(grow())

    async def move_leader(self, tp: TopicPartition, broker_id: int | None = None) -> int:
        """Make a broker lead a partition (None: the next replica that is alive); returns its id.

        A broker that has no replica gets one.
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
            partition.assign(chosen)
            return chosen

        return await self._here(move())

    async def stop_broker(self, broker_id: int) -> None:
        """Take a broker down as a crash does: connections reset, leaders and coordinators move."""
        await self._here(self._stop_broker(broker_id))

    async def start_broker(self, broker_id: int) -> None:
        """Bring a stopped broker back on its old port."""
        await self._here(self._start_broker(broker_id))

    async def disconnect(self, broker_id: int | None = None) -> int:
        """Reset all connections of a broker (None: of all), which stays up; returns how many."""

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

        return await self._here(reset())

    async def _stop_broker(self, broker_id: int) -> None:
        if self.brokers[broker_id].alive:
            await self._close(broker_id)
            self._placed()

    async def _start_broker(self, broker_id: int) -> None:
        if not self.brokers[broker_id].alive:
            await self._open(broker_id)
            self._placed()

    def _retain_later(self) -> None:
        interval = self.settings.log_retention_check_interval_ms / 1000

        def retain() -> None:
            self.topics.retain(self.now_ms())
            self._retain_later()

        self.call_later(interval, retain)

    def _placed(self) -> None:
        self.topics.settle()
        self.groups.placement_changed()
        self.transactions.placement_changed()

    async def _open(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]

        def accept() -> Connection:
            return Connection(
                broker, self._dispatcher, self._supervisor, self.settings.socket_request_max_bytes
            )

        listener = await listen(accept, HOST, broker.port, self._network)
        self._listeners[broker_id] = listener
        broker.port = listener.port
        broker.begin()

    async def _close(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        broker.alive = False
        await self._listeners.pop(broker_id).close()
        connections = tuple(broker.connections)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.end()

    async def _here(self, body: Coroutine[Any, Any, R]) -> R:
        """Run a control call in the cluster's loop, wherever it was made."""
        if not self.running:
            body.close()
            raise ClientClosedError("the EmbeddedCluster does not run")
        if asyncio.get_running_loop() is self.loop:
            return await body
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(body, self.loop))

    def _new_topic_id(self) -> uuid.UUID:
        name = f"{self.settings.cluster_id}/{next(self._topic_ids)}"
        return uuid.uuid5(uuid.NAMESPACE_OID, name)
