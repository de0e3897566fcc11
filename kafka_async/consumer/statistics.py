"""A snapshot of what a consumer has done, under Kafka's own metric names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """Totals since the start.

    Attributes:
        records_consumed_total: records handed out.
        bytes_consumed_total: bytes of batches fetched.
        fetch_total: answers to fetches.
        commit_total: answers to commits that took something.
        rebalance_total: assignments taken over.
        offset_reset_total: offsets that were out of range and reset by auto_offset_reset; each was
            logged as a warning.
        assigned_partitions: partitions read now.
        records_lag: by partition, records between its position and its high watermark (its last
            stable offset with `read_committed`), as of the last fetch; partitions not fetched yet
            are missing.
        records_lag_max: the largest of them, None if there are none.
        buffered_bytes: bytes fetched and not handed out.
        fetch_throttle_time_avg: average throttle time of the responses, in milliseconds.
        fetch_throttle_time_max: longest throttle time of a response, in milliseconds.
    """

    records_consumed_total: int
    bytes_consumed_total: int
    fetch_total: int
    commit_total: int
    rebalance_total: int
    offset_reset_total: int
    assigned_partitions: int
    records_lag: Mapping[TopicPartition, int]
    records_lag_max: int | None
    buffered_bytes: int
    fetch_throttle_time_avg: float
    fetch_throttle_time_max: int
