"""Chooses the partitions of records for which the application has named none.

`partitioner` has the strategy; this applies the options of the producer to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.config import seconds
from kafka_async.producer.partitioner import call_partitioner, partition_for_key

if TYPE_CHECKING:
    import random
    from collections.abc import Set

    from kafka_async.config import ProducerConfig
    from kafka_async.producer.buffer.partition_queue import TopicQueue

NO_BROKERS: Final[Set[int]] = frozenset()


class PartitionChooser:
    """Chooses the partitions of a producer's records.

    Args:
        config: Options of the partitioner.
        rng: Draws the partitions of records without a key.
    """

    def __init__(self, config: ProducerConfig, rng: random.Random) -> None:
        self._partitioner = config.partitioner
        self._adaptive = config.partitioner_adaptive_partitioning_enable
        self._availability_timeout = seconds(config.partitioner_availability_timeout_ms)
        self._rng = rng
        # Brokers that have ready batches, and accept none at the moment (KIP-794).
        self._waiting_since: dict[int, float] = {}

    def of_application(self, topic: TopicQueue, key: bytes | None) -> int | None:
        """Return the partition that the application's partitioner chooses, or None without one."""
        if self._partitioner is None:
            return None
        return call_partitioner(self._partitioner, topic.name, key, topic.partition_count)

    def choose(self, topic: TopicQueue, key: bytes | None, now: float) -> int:
        """Return the partition of the next record; without a key it may change with each batch."""
        if key is not None:
            return partition_for_key(key, topic.partition_count)
        # Records without a key only: a key must lead to the same partition whether or not its
        # leader accepts batches.
        unavailable: Set[int] = NO_BROKERS
        if self._waiting_since:
            latest = now - self._availability_timeout
            unavailable = {node for node, since in self._waiting_since.items() if since < latest}
        return topic.choose_partition(self._rng, unavailable, adaptive=self._adaptive)

    def note_sendable(self, node: int, now: float, *, sendable: bool) -> None:
        """Note whether a broker that has ready batches accepts them now.

        Records without a key avoid a broker that accepts none for
        partitioner_availability_timeout_ms (KIP-794).
        """
        if sendable:
            self._waiting_since.pop(node, None)
        else:
            # The first refusal counts: later ones must not restart the time.
            self._waiting_since.setdefault(node, now)
