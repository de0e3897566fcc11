"""A partition and its topic: who leads, who follows, and the log that all replicas share.

Replication is a model: there is one log, a replica that is alive is in sync, and so the high
watermark is the log's end. Leaders, epochs, the ISR, and acks=all with too few replicas are as in
Kafka. A log is never truncated, and the preferred replica does not take its leadership back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kafka_async.embedded.log import PartitionLog

NO_LEADER = -1


class Partition:
    """One partition: its log, its replicas in order of preference, its leader and epoch."""

    def __init__(self, topic: str, index: int, replicas: Sequence[int], log: PartitionLog) -> None:
        self.tp = TopicPartition(topic, index)
        self.index = index
        self.replicas = tuple(replicas)
        self.isr = tuple(replicas)
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.deleted = False
        self.log = log
        self._watchers: set[Callable[[], None]] = set()

    def watch(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called when the log grew, the leader moved or the topic went."""
        self._watchers.add(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Undo `watch`."""
        self._watchers.discard(callback)

    def changed(self) -> None:
        """Wake everybody who waits for this partition."""
        for callback in tuple(self._watchers):
            callback()

    def lead(self, broker_id: int) -> None:
        """Make a broker the leader, in a new epoch; NO_LEADER if there is none left."""
        self.leader = broker_id
        self.leader_epoch += 1
        self.log.new_epoch(self.leader_epoch)
        self.changed()

    def assign(self, broker_id: int) -> None:
        """Make a broker the leader, and a replica if it is none."""
        if broker_id not in self.replicas:
            self.replicas += (broker_id,)
        if broker_id not in self.isr:
            self.isr += (broker_id,)
        if broker_id != self.leader:
            self.lead(broker_id)

    def settle(self, alive: Collection[int]) -> None:
        """Follow the brokers that are alive: set the ISR, and elect a leader if needed."""
        self.isr = tuple(replica for replica in self.replicas if replica in alive) or self.isr
        if self.leader in alive:
            return
        chosen = next((replica for replica in self.replicas if replica in alive), NO_LEADER)
        if chosen != self.leader:
            self.lead(chosen)


@dataclass(slots=True)
class Topic:
    """A topic: its id, its partitions by index, and the settings that differ from the defaults."""

    name: str
    id: UUID
    partitions: list[Partition]
    configs: dict[str, str] = field(default_factory=dict[str, str])
