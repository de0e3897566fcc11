"""A rebalance listener that records its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.consumer.consumer import RebalanceListener

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafka_async.types import TopicPartition


class RecordingListener(RebalanceListener):
    """Records each call, with the numbers of its partitions."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, list[int]]] = []

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("assigned", sorted(p.partition for p in partitions)))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("revoked", sorted(p.partition for p in partitions)))

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.lines.append(("lost", sorted(p.partition for p in partitions)))
