"""Records that wait for their topic to be known, because nobody can say their partition: pure.

A topic's records wait in line, and leave it in that order: each to its partition once those are
known, or failed after max_block_ms.
"""

from __future__ import annotations

import heapq
from math import inf
from typing import TYPE_CHECKING

from kafka_async.kernel import Delivery
from kafka_async.producer.buffer_pool import OVERHEAD, Shortage
from kafka_async.producer.expiry import topic_not_learnt
from kafka_async.producer.outcome import Undesignated

if TYPE_CHECKING:
    from kafka_async.producer.buffer_pool import BufferMemory
    from kafka_async.producer.incomplete_batches import Ledger
    from kafka_async.producer.outcome import NewPromise
    from kafka_async.producer.partition_queue import TopicQueue
    from kafka_async.types import Headers

__all__ = ["UndesignatedRecords"]


class UndesignatedRecords:
    """The lines of all topics, and until when they may wait: `patience` seconds."""

    def __init__(
        self, memory: BufferMemory, ledger: Ledger, new_promise: NewPromise, patience: float
    ) -> None:
        self.patience = patience
        self._memory = memory
        self._ledger = ledger
        self._new_promise = new_promise
        self._heads: list[tuple[float, int, TopicQueue]] = []  # a topic once, while it has a line
        self._ticket = 0

    def append(
        self,
        topic: TopicQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        size: int,
        now: float,
        *,
        overtake: bool,
    ) -> Delivery | Shortage:
        """Append a record to its topic's line; a Shortage, and no change, if there is no memory."""
        if not self._memory.take(size + OVERHEAD, topic, overtake=overtake):
            return Shortage(size + OVERHEAD, topic)
        record = Undesignated(
            topic.name,
            key,
            value,
            tuple(headers),
            timestamp,
            size=size,
            created=now,
            new_promise=self._new_promise,
        )
        first = topic.undesignated is None
        topic.wait(record)
        if first:
            self.watch(topic)
        self._ledger.enter_record(record, topic)
        return Delivery(record, 0, timestamp)

    def expire(self, now: float, most: int) -> None:
        """Fail records that have waited too long, so many at most."""
        while self._heads and self._heads[0][0] <= now and most > 0:
            topic = heapq.heappop(self._heads)[2]
            while self._has_line(topic) and self._due(topic) <= now and most > 0:
                self._ledger.fail_record(topic, topic_not_learnt(topic, None, self.patience))
                most -= 1
            if self._has_line(topic):
                self.watch(topic)

    def next_due(self) -> float:
        """When the next record has waited too long; inf if none waits."""
        while self._heads and not self._has_line(self._heads[0][2]):
            heapq.heappop(self._heads)
        return self._heads[0][0] if self._heads else inf

    def watch(self, topic: TopicQueue) -> None:
        """Keep an eye on a topic's line, which has begun or whose topic is no longer known."""
        self._ticket += 1
        heapq.heappush(self._heads, (self._due(topic), self._ticket, topic))

    def _has_line(self, topic: TopicQueue) -> bool:
        """Whether somebody waits in vain: in a topic that is known each will have his turn."""
        return bool(topic.undesignated) and not topic.count

    def _due(self, topic: TopicQueue) -> float:
        assert topic.undesignated is not None
        return topic.undesignated[0].created + self.patience
