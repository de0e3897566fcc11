"""Chooses the partitions of records. Nothing here waits.

A record with a key goes to the partition that the key's hash selects, as in Java's producer
(murmur2), so that clients in both languages put a key into the same partition. Records without a
key go to one partition until its closed batches have about batch_size bytes, then to another: full
batches cost a broker less than many small ones (KIP-480, KIP-794). The next partition is drawn at
random; partitions with short queues are preferred, and one without a leader, or whose leader has
accepted no batches for partitioner_availability_timeout_ms, is chosen only if there are no others.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from kafka_async.errors import InvalidConfigurationError
from kafka_async.kernel import murmur2

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from kafka_async.config import Partitioner
    from kafka_async.kernel import TopicOpenBatches

__all__ = ["StickyPartition", "call_partitioner", "partition_for_key"]


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, the same as Java's default partitioner."""
    # As Java's Utils.toPositive: the sign bit is cleared, which differs from abs().
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def call_partitioner(
    partitioner: Partitioner, topic: str, key: bytes | None, partitions: int
) -> int:
    """Return the partitioner's choice; raise InvalidConfigurationError if it is out of range."""
    choice = partitioner(topic, key, partitions)
    if not isinstance(choice, int) or not 0 <= choice < partitions:  # pyright: ignore[reportUnnecessaryIsInstance]  # user code
        raise InvalidConfigurationError(
            f"the partitioner chose {choice!r}; {topic} has the partitions 0 to {partitions - 1}",
            topic=topic,
        )
    return choice


class StickyPartition:
    """Partition of a topic for records without a key; -1 until one is chosen."""

    __slots__ = ("_batches", "_bytes")

    def __init__(self, batches: TopicOpenBatches) -> None:
        self._bytes = 0
        self._batches = batches

    @property
    def current(self) -> int:
        """The partition, stored where the fast path reads it."""
        return self._batches.sticky_partition

    def batch_closed(self, partition: int, size: int, enough: int) -> None:
        """Count the bytes of a closed batch; after `enough` bytes another partition is chosen."""
        # Batches of records with keys do not count.
        if partition == self._batches.sticky_partition:
            self._bytes += size
            if self._bytes >= enough:
                self.reset()

    def reset(self) -> None:
        """Choose another partition next time."""
        self._batches.sticky_partition = -1
        self._bytes = 0

    def choose(self, rng: random.Random, queued: Sequence[tuple[int, int]]) -> int:
        """Choose among partitions, given as pairs of a partition and its number of queued batches.

        The chance of a partition decreases linearly with its queue, so that a slow broker gets
        less.
        """
        # Weights from 1 for the longest queue upward, so that each partition has a chance.
        longest = max(length for _, length in queued)
        weights = list(accumulate(longest + 1 - length for _, length in queued))
        drawn = rng.randrange(weights[-1])
        chosen = next(
            partition for (partition, _), upto in zip(queued, weights, strict=True) if drawn < upto
        )
        self._batches.sticky_partition = chosen
        return chosen
