"""Statistics of a producer, under Kafka's metric names."""

from __future__ import annotations

from dataclasses import dataclass


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
        request_total: Produce requests.
        requests_in_flight: Produce requests without a response.
        buffer_total_bytes: Value of buffer_memory.
        buffer_available_bytes: Bytes of buffer_memory that are not in use.
        waiting_threads: Callers waiting for memory (Kafka's name; here they are tasks).
        produce_throttle_time_avg: Average throttle time of the responses, in milliseconds.
        produce_throttle_time_max: Longest throttle time of a response, in milliseconds.
    """

    record_send_total: int
    record_error_total: int
    record_retry_total: int
    batch_total: int
    batch_split_total: int
    byte_total: int
    request_total: int
    requests_in_flight: int
    buffer_total_bytes: int
    buffer_available_bytes: int
    waiting_threads: int
    produce_throttle_time_avg: float
    produce_throttle_time_max: int


class Counters:
    """Counts since the start of the producer."""

    __slots__ = (
        "batches",
        "bytes",
        "errors",
        "records",
        "requests",
        "responses",
        "retries",
        "splits",
        "throttle_max",
        "throttle_total",
    )

    def __init__(self) -> None:
        self.records = 0
        self.errors = 0
        self.retries = 0
        self.splits = 0
        self.requests = 0
        self.batches = 0
        self.bytes = 0
        self.responses = 0
        self.throttle_total = 0
        self.throttle_max = 0

    def throttled(self, milliseconds: int) -> None:
        """Count a response and its throttle time, which is usually 0."""
        self.responses += 1
        if milliseconds:
            self.throttle_total += milliseconds
            self.throttle_max = max(self.throttle_max, milliseconds)
