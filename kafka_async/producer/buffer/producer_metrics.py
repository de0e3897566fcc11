"""Counts what happens to batches, for `Producer.statistics`, and emits their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.hooks import BatchAcknowledged, BatchClosed, BatchFailed
from kafka_async.producer.statistics import ProducerStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.hooks import Hooks
    from kafka_async.producer.buffer.buffer_pool import BufferPool
    from kafka_async.producer.buffer.partition_queue import ProducerBatch
    from kafka_async.types import TopicPartition

__all__ = ["ProducerMetrics"]


class ProducerMetrics:
    """Counts since the start of a producer.

    Attributes:
        last_error: Error of the last batch, connection attempt or producer id request that failed.
    """

    def __init__(self, client_id: str, hooks: Hooks) -> None:
        self.last_error: Exception | None = None
        self._client_id = client_id
        self._hooks = hooks
        self._records = 0
        self._errors = 0
        self._retries = 0
        self._splits = 0
        self._requests = 0
        self._batches = 0
        self._bytes = 0
        self._responses = 0
        self._throttle_total = 0
        self._throttle_max = 0
        self._throttle_wait = 0.0

    def note_error(self, error: Exception) -> None:
        """Note the error of a batch, a connection attempt or a producer id request."""
        self.last_error = error

    def add_request(self) -> None:
        """Count a request, whether or not it can be sent."""
        self._requests += 1

    def add_response(self, throttle_ms: int) -> None:
        """Count a response and its throttle time, which is usually 0."""
        self._responses += 1
        if throttle_ms:
            self._throttle_total += throttle_ms
            self._throttle_max = max(self._throttle_max, throttle_ms)

    def add_throttle_wait(self, seconds: float) -> None:
        """Count the time for which ready batches have waited for a throttle time."""
        self._throttle_wait += seconds

    def sent(self, batches: Sequence[ProducerBatch]) -> None:
        """Emit an event for each batch that was sent for the first time."""
        if not self._hooks.active:
            return
        for batch in batches:
            if batch.attempts == 1:
                event = BatchClosed(
                    self._client_id,
                    batch.partition,
                    batch.count,
                    batch.reserved_bytes,
                    batch.wire_size,
                )
                self._hooks.emit(event)

    def acknowledged(self, batch: ProducerBatch, base_offset: int, now: float) -> None:
        """Count a batch that was acknowledged."""
        self._records += batch.count
        self._batches += 1
        self._bytes += batch.wire_size
        if self._hooks.active:
            seconds = now - batch.closed_at
            event = BatchAcknowledged(
                self._client_id, batch.partition, batch.count, base_offset, seconds
            )
            self._hooks.emit(event)

    def failed(self, partition: TopicPartition, records: int, error: Exception) -> None:
        """Count a batch that failed, or an unpartitioned record (partition -1)."""
        self._errors += records
        self.last_error = error
        if self._hooks.active:
            self._hooks.emit(BatchFailed(self._client_id, partition, records, error))

    def retried(self, records: int) -> None:
        """Count a batch that is sent again."""
        self._retries += records

    def split(self) -> None:
        """Count a batch that was split."""
        self._splits += 1

    def snapshot(
        self,
        requests_in_flight: int,
        buffer_pool: BufferPool,
        quota_usage_percent: Mapping[tuple[int, str], float | None],
    ) -> ProducerStatistics:
        """Return the counts."""
        return ProducerStatistics(
            record_send_total=self._records,
            record_error_total=self._errors,
            record_retry_total=self._retries,
            batch_total=self._batches,
            batch_split_total=self._splits,
            byte_total=self._bytes,
            request_total=self._requests,
            requests_in_flight=requests_in_flight,
            buffer_total_bytes=buffer_pool.total_bytes,
            buffer_available_bytes=max(0, buffer_pool.total_bytes - buffer_pool.reserved_bytes),
            waiting_threads=buffer_pool.waiter_count,
            produce_throttle_time_avg=self._throttle_total / max(1, self._responses),
            produce_throttle_time_max=self._throttle_max,
            produce_throttle_wait_total=round(self._throttle_wait * 1000),
            quota_usage_percent=quota_usage_percent,
        )
