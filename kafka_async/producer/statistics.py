"""The result of `Producer.statistics`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ProducerStatistics"]


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """A snapshot. Totals count from the start; sizes are in bytes.

    Attributes:
        record_send_total: Records that were acknowledged.
        record_error_total: Records that failed.
        record_retry_total: Records that were sent again, counted each time.
        batch_total: Batches that were acknowledged.
        batch_split_total: Batches that were too large for the broker and were split.
        byte_total: Size of the acknowledged batches, compressed.
        request_total: Produce requests, including those that could not be sent.
        requests_in_flight: Produce requests without a response.
        buffer_total_bytes: Value of buffer_memory.
        buffer_available_bytes: Bytes of buffer_memory that are not in use.
        waiting_threads: Callers waiting for memory (Kafka's name; here they are tasks).
        produce_throttle_time_avg: Average throttle time of the responses, in milliseconds.
        produce_throttle_time_max: Longest throttle time of a response, in milliseconds.
        produce_throttle_wait_total: Time that ready batches waited for throttle times, in
            milliseconds.
        quota_usage_percent: What `client.quota_usage()` returns, in percent (100: throttled), from
            the present rates and the quotas that it last found; None before its first call.
    """

    record_send_total: int = 0
    record_error_total: int = 0
    record_retry_total: int = 0
    batch_total: int = 0
    batch_split_total: int = 0
    byte_total: int = 0
    request_total: int = 0
    requests_in_flight: int = 0
    buffer_total_bytes: int = 0
    buffer_available_bytes: int = 0
    waiting_threads: int = 0
    produce_throttle_time_avg: float = 0.0
    produce_throttle_time_max: int = 0
    produce_throttle_wait_total: int = 0
    quota_usage_percent: Mapping[tuple[int, str], float | None] = field(
        default_factory=dict[tuple[int, str], float | None]
    )
