"""What a producer has done, under Kafka's own metric names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """A snapshot. Totals count from the start; sizes are in bytes.

    Attributes:
        record_send_total: records that were acknowledged.
        record_error_total: records that failed.
        record_retry_total: records that were sent again, each time counted.
        batch_total: batches that were acknowledged.
        batch_split_total: batches that were too large for the broker and were split.
        byte_total: size of the acknowledged batches, compressed.
        request_total: produce requests.
        requests_in_flight: produce requests without an answer.
        buffer_total_bytes: buffer_memory.
        buffer_available_bytes: what is left of it.
        waiting_threads: callers that wait for room (Kafka's name; here they are tasks).
        produce_throttle_time_avg: average throttle time of the responses, in milliseconds.
        produce_throttle_time_max: longest throttle time of a response, in milliseconds.
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
    """What has happened since the start."""

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
        """Count a response and its throttle time, 0 as a rule."""
        self.responses += 1
        if milliseconds:
            self.throttle_total += milliseconds
            self.throttle_max = max(self.throttle_max, milliseconds)
