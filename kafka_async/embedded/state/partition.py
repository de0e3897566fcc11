"""A topic and its partitions: leader, leader epoch, replicas, in-sync replicas and log.

Replication is a model: all replicas share one log, and every alive replica is in sync, so the high
watermark is the log end offset. Leaders, leader epochs, the ISR, and acks=all with too few replicas
behave as in Kafka. Logs are never truncated, and a preferred replica does not become leader again
when its broker returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kafka_async.embedded.state.log import ControlRecordType, PartitionLog

NO_LEADER = -1


class Partition:
    """Holds the state of one partition.

    `replicas` are broker ids in order of preference; `leader` is a broker id or NO_LEADER.
    """

    def __init__(self, topic: str, index: int, replicas: Sequence[int], log: PartitionLog) -> None:
        self.tp = TopicPartition(topic, index)
        self.index = index
        self.replicas = tuple(replicas)
        self.isr = tuple(replicas)
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.log = log
        self._listeners: set[Callable[[], None]] = set()

    def add_listener(self, callback: Callable[[], None]) -> None:
        """Call `callback()` when the log grows, the leader changes or the topic is deleted."""
        self._listeners.add(callback)

    def remove_listener(self, callback: Callable[[], None]) -> None:
        """Undo `add_listener`."""
        self._listeners.discard(callback)

    def notify_listeners(self) -> None:
        """Call the listeners after a change."""
        for callback in tuple(self._listeners):
            callback()

    def append_end_txn_marker(
        self,
        kind: ControlRecordType,
        *,
        producer_id: int,
        producer_epoch: int,
        now: int,
        coordinator_epoch: int = 0,
    ) -> int:
        """Append a transaction marker and return its offset; see `PartitionLog`."""
        offset = self.log.append_end_txn_marker(
            kind, producer_id, producer_epoch, coordinator_epoch, now
        )
        self.notify_listeners()
        return offset

    def set_leader(self, broker_id: int) -> None:
        """Set the leader, or NO_LEADER, and begin a new leader epoch."""
        self.leader = broker_id
        self.leader_epoch += 1
        self.log.assign_leader_epoch(self.leader_epoch)
        self.notify_listeners()

    def move_leader(self, broker_id: int) -> None:
        """Make a broker the leader; it becomes an in-sync replica if needed."""
        if broker_id not in self.replicas:
            self.replicas += (broker_id,)
        if broker_id not in self.isr:
            self.isr += (broker_id,)
        if broker_id != self.leader:
            self.set_leader(broker_id)

    def update_leader(self, alive: Collection[int]) -> None:
        """Update the ISR for the brokers that are alive, and elect a leader if needed."""
        self.isr = tuple(replica for replica in self.replicas if replica in alive) or self.isr
        if self.leader in alive:
            return
        chosen = next((replica for replica in self.replicas if replica in alive), NO_LEADER)
        if chosen != self.leader:
            self.set_leader(chosen)


@dataclass(slots=True)
class Topic:
    """Holds a topic's id, its partitions, and its configurations that differ from the defaults."""

    name: str
    id: UUID
    partitions: list[Partition]
    configs: dict[str, str] = field(default_factory=dict[str, str])
