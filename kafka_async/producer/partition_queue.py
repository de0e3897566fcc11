"""The queues of a producer: one a partition, one a topic for records without a partition."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafka_async.kernel import TopicOpenBatches
from kafka_async.producer.buffer_pool import Holder
from kafka_async.producer.idempotence import Chain
from kafka_async.producer.partitioner import StickyChoice
from kafka_async.producer.producer_batch import BatchState
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    import random

    from kafka_async.producer.outcome import Undesignated
    from kafka_async.producer.producer_batch import ProducerBatch

__all__ = ["PartitionQueue", "TopicQueue"]

_CANDIDATES = 32


class PartitionQueue(Holder):
    """The batches of one partition: at most one open, those that wait in order, those on the wire.

    `leader` is the broker that takes them, None while there is none; `wire_node` is the one that
    what is on the wire was sent to. `not_before` is when the next attempt may be made. `usual` is
    how many bytes its last batch had, `admitted` which transaction it was admitted to.
    """

    __slots__ = (
        "admitted",
        "chain",
        "leader",
        "next_order",
        "not_before",
        "on_wire",
        "open",
        "partition",
        "timer",
        "topic",
        "usual",
        "waiting",
        "wire_node",
    )

    def __init__(self, topic: TopicQueue, partition: int) -> None:
        super().__init__(stranded=True)
        self.topic = topic
        self.partition = TopicPartition(topic.name, partition)
        self.open: ProducerBatch | None = None
        self.waiting: list[ProducerBatch] = []  # a few: a deque has room for 64, in 0.7 KB
        self.on_wire: list[ProducerBatch] = []
        self.chain = Chain()
        self.leader: int | None = None
        self.wire_node = -1
        self.not_before = 0.0
        self.timer = 0.0
        self.next_order = 0
        self.admitted = 0
        self.usual = 0

    @property
    def load(self) -> int:
        """How many batches are not done."""
        return len(self.waiting) + len(self.on_wire) + (self.open is not None)

    @property
    def exists(self) -> bool:
        """Whether the topic is known to have this partition."""
        return self.partition.partition < len(self.topic.leaders)

    def due(self, now: float) -> bool:
        """Return whether the next batch is ready, or open and need not linger any longer.

        A batch that a task awaits lingers only while its partition has something in flight.
        """
        if self.waiting:
            return self.waiting[0].state is BatchState.READY
        batch = self.open
        if batch is None:
            return False
        return batch.due <= now or (batch.awaited and not self.on_wire)

    @property
    def companion(self) -> ProducerBatch | None:
        """The open batch that a request to the leader may take along before it is due."""
        if self.waiting or self.on_wire or self.open is None or not self.open.accompanies:
            return None
        return self.open

    def unsent(self) -> list[ProducerBatch]:
        """The batches that are not on the wire, the open one included, in order."""
        return [*self.waiting, *([] if self.open is None else [self.open])]

    def close(self) -> None:
        """The open batch takes no more records."""
        self.open = None
        self.topic.open.close(self.partition.partition)

    def insert(self, batch: ProducerBatch) -> None:
        """Put a batch back where its order wants it."""
        at = 0
        for at, other in enumerate(self.waiting):  # noqa: B007  # where the loop ended counts
            if batch.order < other.order:
                break
        else:
            at = len(self.waiting)
        self.waiting.insert(at, batch)

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Whether no other batch of the partition that was stamped comes before this one."""
        others = (*self.on_wire, *(b for b in self.waiting if b.stamp is not None))
        return all(batch.order <= other.order for other in others)

    def free_to_send(self, node: int) -> bool:
        """Whether the order of batches allows one more on the wire to this broker.

        After a failure one batch is sent at a time, the oldest first, until all that were sent
        before are through; a new leader gets nothing while an old one has something; and nothing
        follows the first batch before the broker checks what does.
        """
        if not self.on_wire:
            return True
        if self.chain.broken or not self.chain.checked or self.wire_node != node:
            return False
        if self.waiting and self.waiting[0].attempts:
            return False
        for batch in self.on_wire:  # noqa: SIM110  # all() costs 3 % of a batch's instructions
            if batch.attempts > 1:
                return False
        return True


class TopicQueue(Holder):
    """What a producer knows of a topic. `open` is where the fast path appends.

    `undesignated` are the records that wait for their partition, None if none do.
    """

    __slots__ = (
        "available",
        "error",
        "leaders",
        "name",
        "open",
        "partitions",
        "sticky",
        "undesignated",
    )

    def __init__(self, name: str, rng: random.Random) -> None:
        super().__init__(stranded=True)
        self.name = name
        self.leaders: tuple[int | None, ...] = ()
        self.available: tuple[int, ...] = ()
        self.error: Exception | None = None
        self.partitions: dict[int, PartitionQueue] = {}
        self.open = TopicOpenBatches()
        self.undesignated: deque[Undesignated] | None = None
        self.sticky = StickyChoice(rng, self.open)

    @property
    def count(self) -> int:
        """How many partitions it has; 0 until they are known."""
        return len(self.leaders)

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for its partitions to be known."""
        if self.leaders:
            return False
        return bool(self.undesignated) or any(queue.load for queue in self.partitions.values())

    @property
    def missed(self) -> list[PartitionQueue]:
        """Partitions that records wait for and that it does not have, though it is known."""
        if not self.leaders:
            return []
        return [each for each in self.partitions.values() if not each.exists and each.load]

    def wait(self, record: Undesignated) -> None:
        """A record waits for its partition, behind the others."""
        if self.undesignated is None:
            self.undesignated = deque()
        self.undesignated.append(record)

    def leave(self) -> Undesignated:
        """The oldest record waits no longer."""
        assert self.undesignated is not None
        record = self.undesignated.popleft()
        if not self.undesignated:
            self.undesignated = None
        return record

    def queue(self, partition: int) -> PartitionQueue:
        """A partition's queue."""
        queue = self.partitions.get(partition)
        if queue is None:
            queue = self.partitions[partition] = PartitionQueue(self, partition)
            if queue.exists:
                queue.leader = self.leaders[partition]
                queue.stranded = queue.leader is None
        return queue

    def choose(self, rng: random.Random) -> int:
        """The partition for the next record without a key."""
        current = self.open.sticky
        if 0 <= current < len(self.leaders):
            return current
        among = self.available or range(self.count)
        if len(among) > _CANDIDATES:
            among = rng.sample(among, _CANDIDATES)
        return self.sticky.choose([(partition, self._load(partition)) for partition in among])

    def _load(self, partition: int) -> int:
        queue = self.partitions.get(partition)
        return 0 if queue is None else queue.load
