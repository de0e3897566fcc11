"""Statistics of a consumer under Kafka's metric names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """Snapshot of a consumer's statistics; totals count from its start.

    Attributes:
        records_consumed_total: Records taken by `poll` and streams; `poll_batches` is not counted.
        records_undecodable_total: Records that could not be deserialized, and that `process` or
            `partition_streams` has skipped or given to the function `on_undecodable`.
        bytes_consumed_total: Bytes of fetched batches.
        fetch_total: Fetch responses.
        commit_total: Successful commit requests.
        rebalance_total: Completed rebalances.
        offset_reset_total: Positions that were out of range and reset by auto_offset_reset; each
            was logged as a warning.
        assigned_partitions: Number of partitions assigned now.
        records_lag: Records between a partition's position and its high watermark (its last stable
            offset with `read_committed`), as of the last fetch; only partitions that were fetched.
            While `process` or `partition_streams` runs, it counts from the first record that is not
            done.
        records_lag_max: The largest value of `records_lag`, or None if it is empty.
        buffered_bytes: Bytes fetched and not returned yet.
        fetch_throttle_time_avg: Average throttle time of the responses, in milliseconds.
        fetch_throttle_time_max: Longest throttle time of a response, in milliseconds.
        fetch_throttle_wait_total: Time that fetches waited for throttle times, in milliseconds.
        quota_usage_percent: What `client.quota_usage()` returns, in percent (100: throttled), from
            the present rates and the quotas that it last found; None before its first call.
    """

    records_consumed_total: int = 0
    records_undecodable_total: int = 0
    bytes_consumed_total: int = 0
    fetch_total: int = 0
    commit_total: int = 0
    rebalance_total: int = 0
    offset_reset_total: int = 0
    assigned_partitions: int = 0
    records_lag: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    records_lag_max: int | None = None
    buffered_bytes: int = 0
    fetch_throttle_time_avg: float = 0.0
    fetch_throttle_time_max: int = 0
    fetch_throttle_wait_total: int = 0
    quota_usage_percent: Mapping[tuple[int, str], float | None] = field(
        default_factory=dict[tuple[int, str], float | None]
    )


@dataclass(frozen=True, slots=True)
class ShareConsumerStatistics:
    """Snapshot of a share consumer's statistics; totals count from its start.

    Attributes:
        records_consumed_total: Records returned by polls; one that is delivered again, or whose
            lock was renewed, counts each time.
        bytes_consumed_total: Bytes of the batches in fetch responses, including records that this
            member did not acquire.
        fetch_total: ShareFetch responses.
        rebalance_total: Assignments received from the coordinator.
        assigned_partitions: Number of partitions assigned now.
        acquired_records: Records that are locked for this member now, until their acknowledgement
            is recorded or their lock ends.
        acknowledgements_total: Acknowledgements that brokers have recorded, by type: "accept",
            "release", "reject" and "renew". Releases of a closed or cancelled poll count too.
        acknowledgements_error_total: Acknowledgements that failed, or whose outcome is unknown.
        fetch_throttle_time_avg: Average throttle time of the fetch responses, in milliseconds.
        fetch_throttle_time_max: Longest throttle time of a fetch response, in milliseconds.
        quota_usage_percent: As in `ConsumerStatistics`.
    """

    records_consumed_total: int = 0
    bytes_consumed_total: int = 0
    fetch_total: int = 0
    rebalance_total: int = 0
    assigned_partitions: int = 0
    acquired_records: int = 0
    acknowledgements_total: Mapping[str, int] = field(default_factory=dict[str, int])
    acknowledgements_error_total: int = 0
    fetch_throttle_time_avg: float = 0.0
    fetch_throttle_time_max: int = 0
    quota_usage_percent: Mapping[tuple[int, str], float | None] = field(
        default_factory=dict[tuple[int, str], float | None]
    )
