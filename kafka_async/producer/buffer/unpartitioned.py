"""Keeps records whose topic has no metadata yet, so that no partition can be chosen for them.

The records of a topic stay in order: each is moved to its partition once the partitions are known,
or fails after max_block_ms.
"""

from __future__ import annotations

import heapq
from math import inf
from typing import TYPE_CHECKING

from kafka_async.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.producer.buffer.outcome import UnpartitionedRecord
    from kafka_async.producer.buffer.partition_queue import TopicQueue

__all__ = ["UnpartitionedRecords", "missing_topic_error"]


class UnpartitionedRecords:
    """Expires unpartitioned records after `max_block` seconds."""

    def __init__(self, max_block: float) -> None:
        self.max_block = max_block
        # Each topic once, while it has records.
        self._deadlines: list[tuple[float, int, TopicQueue]] = []
        self._tie_breaker = 0

    def add(self, topic: TopicQueue, record: UnpartitionedRecord) -> None:
        """Add a record to its topic."""
        first = topic.unpartitioned is None
        topic.add_unpartitioned(record)
        if first:
            self.track_deadline(topic)

    def expired(self, now: float) -> Iterator[TopicQueue]:
        """Yield a topic for each record whose time is over; the caller removes the record."""
        while self._deadlines and self._deadlines[0][0] <= now:
            topic = self._deadlines[0][2]
            # Yielded again and again until the topic has no expired record.
            if self._is_waiting(topic) and self._deadline(topic) <= now:
                yield topic
                continue
            heapq.heappop(self._deadlines)
            # The oldest record is another one now, so it has another deadline.
            if self._is_waiting(topic):
                self.track_deadline(topic)

    def next_due(self) -> float:
        """Return the time at which the next record expires; inf if there is none."""
        while self._deadlines and not self._is_waiting(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else inf

    def track_deadline(self, topic: TopicQueue) -> None:
        """Watch the deadline of a topic's oldest record."""
        self._tie_breaker += 1
        heapq.heappush(self._deadlines, (self._deadline(topic), self._tie_breaker, topic))

    def _is_waiting(self, topic: TopicQueue) -> bool:
        """Return True if the topic has records and no metadata."""
        return bool(topic.unpartitioned) and not topic.partition_count

    def _deadline(self, topic: TopicQueue) -> float:
        assert topic.unpartitioned is not None
        return topic.unpartitioned[0].created + self.max_block


def missing_topic_error(topic: TopicQueue, partition: int | None, max_block: float) -> KafkaError:
    """Return the error for a topic or partition not found within `max_block` seconds."""
    waited = f"within max_block_ms ({max_block:g} s)"
    if topic.partition_count:
        return UnknownTopicOrPartitionError(
            f"the topic has the partitions 0 to {topic.partition_count - 1}, and got no more "
            f"{waited}",
            topic=topic.name,
            partition=partition,
        )
    last = topic.error
    # The last error decides: a topic that does not exist needs another remedy than brokers that do
    # not respond.
    if isinstance(last, UnknownTopicOrPartitionError):
        error: KafkaError = UnknownTopicOrPartitionError(
            f"the topic does not exist, and was not created {waited}: create it, or check its name",
            topic=topic.name,
        )
    else:
        reason = "" if last is None else f": {last}"
        error = KafkaTimeoutError(
            f"no metadata of the topic was received {waited}{reason}", topic=topic.name
        )
    error.__cause__ = last
    return error
