"""Which partition a record goes to: pure decisions.

A record with a key goes where the key's hash points, as Java's producer has it (murmur2), so that
clients of both languages put one key into one partition. A record without a key goes where the last
one went, until a batch's worth of bytes is there: full batches cost a broker less than many small
ones (KIP-480, KIP-794). The next partition is drawn at random, those with little waiting preferred,
those without a leader only if no partition has one.
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

__all__ = ["StickyChoice", "ask", "partition_for_key"]


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key, the same as that of Java's default partitioner."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def ask(partitioner: Partitioner, topic: str, key: bytes | None, partitions: int) -> int:
    """What the caller's own partitioner says; raises for what is no partition of the topic."""
    choice = partitioner(topic, key, partitions)
    if not isinstance(choice, int) or not 0 <= choice < partitions:  # pyright: ignore[reportUnnecessaryIsInstance]  # callers err
        raise InvalidConfigurationError(
            f"the partitioner chose {choice!r}; {topic} has the partitions 0 to {partitions - 1}",
            topic=topic,
        )
    return choice


class StickyChoice:
    """The partition of a topic that records without a key go to for now; -1: none was chosen."""

    __slots__ = ("_batches", "_bytes", "_rng")

    def __init__(self, rng: random.Random, batches: TopicOpenBatches) -> None:
        self._rng = rng
        self._bytes = 0
        self._batches = batches

    @property
    def current(self) -> int:
        """The partition; kept where the fast path finds it."""
        return self._batches.sticky

    def wrote(self, partition: int, size: int, enough: int) -> None:
        """Note that a batch was closed; after `enough` bytes the next choice is a new one."""
        if partition == self._batches.sticky:
            self._bytes += size
            if self._bytes >= enough:
                self.forget()

    def forget(self) -> None:
        """Choose anew next time."""
        self._batches.sticky = -1
        self._bytes = 0

    def choose(self, waiting: Sequence[tuple[int, int]]) -> int:
        """Choose among partitions, each with the number of batches that wait there.

        The chance of a partition falls with its queue, linearly, so a slow broker gets less.
        """
        longest = max(length for _, length in waiting)
        weights = list(accumulate(longest + 1 - length for _, length in waiting))
        drawn = self._rng.randrange(weights[-1])
        chosen = next(
            partition for (partition, _), upto in zip(waiting, weights, strict=True) if drawn < upto
        )
        self._batches.sticky = chosen
        return chosen
