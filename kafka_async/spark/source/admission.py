"""Limits of a micro-batch, with the arithmetic of Spark's Kafka connector. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.spark.offsets import Offsets
    from kafka_async.types import TopicPartition


def backlog(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
    """Return the number of offsets from start to end by partition, without zeros."""
    sizes = {tp: end[tp] - start[tp] for tp in end if tp in start}
    return {tp: size for tp, size in sizes.items() if size > 0}


def limit_rows(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> Offsets:
    """Return the end of a batch of about `limit` offsets, shared in proportion to the backlog.

    A share below one offset is rounded up, so that no partition starves; other shares are rounded
    down.
    """
    return _limit(limit, start, end, dict.fromkeys(end, 1.0))


def limit_bytes(
    limit: int,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
) -> Offsets:
    """Return the end of a batch of about `limit` bytes, shared in proportion to the backlog.

    Args:
        limit: Bytes of the batch; at least one offset of each partition with a backlog is read.
        start: First offsets.
        end: Latest offsets.
        bytes_per_offset: Average sizes; a partition without a size is not limited.
    """
    return _limit(limit, start, end, bytes_per_offset)


def _limit(
    limit: int,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, float],
) -> Offsets:
    sizes = backlog(start, end)
    total = float(sum(size * weights[tp] for tp, size in sizes.items() if tp in weights))
    limited = dict(end)
    if total <= 0:
        return limited
    for tp, size in sizes.items():
        if tp in weights:
            share = limit * (size / total)
            rows = math.ceil(share) if share < 1 else math.floor(share)
            limited[tp] = min(end[tp], start[tp] + rows)
    return limited


class TriggerDelay:
    """Decides whether a batch waits for more records (minOffsetsPerTrigger, maxTriggerDelay).

    Args:
        min_rows: Offsets that a batch waits for.
        max_delay: Maximum time since the last batch, in seconds.
    """

    def __init__(self, min_rows: int, max_delay: float) -> None:
        self._min_rows = min_rows
        self._max_delay = max_delay
        self._last_batch: float | None = None

    def waits(
        self,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        now: float,
    ) -> bool:
        """Return whether to wait. The first batch after the query's start never waits.

        Args:
            start: First offsets.
            end: Latest offsets.
            now: Seconds of a monotonic clock.
        """
        due = self._last_batch is None or now - self._last_batch >= self._max_delay
        if not due and sum(end[tp] - start.get(tp, 0) for tp in end) < self._min_rows:
            return True
        self._last_batch = now
        return False
