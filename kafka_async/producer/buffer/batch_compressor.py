"""Compresses batches: small ones in the event loop, large ones in threads.

Passing work to a thread and back costs 0.1 to 0.2 ms of CPU time, for caches and Python's lock. A
batch that compresses in about that time is compressed in the event loop, a few per iteration.
Larger ones go to a thread, several at once if possible.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafka_async.errors import KafkaError
from kafka_async.foundation.fairness import (
    IN_LOOP_BUDGET_FACTOR,
    KIB,
    MAX_BYTES_PER_JOB,
    MAX_IN_LOOP_BYTES_HIGH_LEVEL,
    MAX_ITEMS_PER_ITERATION,
)
from kafka_async.records.compression import Codec, compress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafka_async.config import ProducerConfig
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.producer.buffer.accumulator import Accumulator
    from kafka_async.producer.buffer.partition_queue import ProducerBatch
    from kafka_async.records.batch import RecordBatch

__all__ = ["BatchCompressor"]

MAX_IN_LOOP_BYTES: Final = {
    Codec.none: 0,
    Codec.gzip: 16 * KIB,
    Codec.snappy: 128 * KIB,
    Codec.lz4: 256 * KIB,
    Codec.zstd: 128 * KIB,
}
"""Bytes that a codec compresses in 0.2 to 0.4 ms; larger batches go to a thread."""
MAX_FAST_LEVELS: Final = {Codec.gzip: 6, Codec.lz4: 2, Codec.zstd: 3}
"""Highest levels that are about as fast as the default ones."""
MAX_WORKERS: Final = 2
"""Threads that compress at the same time."""


class BatchCompressor:
    """Compresses the batches of a producer, in order within a partition.

    It belongs to the sender; `wakeup()` is called when there is more to do in the next event loop
    iteration.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        supervisor: Supervisor,
        *,
        now: Callable[[], float],
        wakeup: Callable[[], None],
    ) -> None:
        self._accumulator = accumulator
        self._supervisor = supervisor
        self._now = now
        self._wakeup = wakeup
        # Large batches, with the contents to compress: the batch may be split or fail before its
        # turn.
        self._codec = Codec[config.compression_type]
        self._level = config.compression_level
        self._max_in_loop_bytes = max_in_loop_bytes(self._codec, self._level)
        self._queued: deque[tuple[ProducerBatch, RecordBatch]] = deque()
        self._workers = 0

    def run(self) -> None:
        """Compress small batches, up to the limit per iteration, and queue large ones."""
        # The last batch of a run may exceed the budget, so that each run makes progress.
        left = IN_LOOP_BUDGET_FACTOR * self._max_in_loop_bytes
        for batch in islice(self._batches(), MAX_ITEMS_PER_ITERATION):
            contents = batch.record_batch
            size = len(contents.payload)
            if size > self._max_in_loop_bytes:
                self._queued.append((batch, contents))
            else:
                self._finish(batch, contents, self._compress(contents))
                left -= size
                if left <= 0:
                    break
        if self._accumulator.has_batches_to_compress:
            self._wakeup()
        if self._queued and self._workers < min(MAX_WORKERS, len(self._queued)):
            self._workers += 1
            self._supervisor.spawn(self._run_worker, name="compression")

    def _batches(self) -> Iterator[ProducerBatch]:
        """Yield batches to compress, including those that become available during the iteration."""
        while self._accumulator.has_batches_to_compress:
            yield from self._accumulator.next_to_compress()

    async def _run_worker(self) -> None:
        """Compress queued batches in a thread until the queue is empty."""
        try:
            while self._queued:
                job = self._next_job()
                compressed = await self._supervisor.offload(
                    self._compress_all, [contents for _, contents in job]
                )
                # Also of batches that have failed since: `_finish` handles these.
                for (batch, contents), result in zip(job, compressed, strict=True):
                    self._finish(batch, contents, result)
                self._wakeup()
        finally:
            self._workers -= 1

    def _next_job(self) -> list[tuple[ProducerBatch, RecordBatch]]:
        """Remove and return the next batches for one thread."""
        job = [self._queued.popleft()]
        size = len(job[0][1].payload)
        # Several batches per job, since passing a job to a thread costs as much as compressing a
        # small batch.
        while self._queued and size + len(self._queued[0][1].payload) <= MAX_BYTES_PER_JOB:
            job.append(self._queued.popleft())
            size += len(job[-1][1].payload)
        return job

    def _compress_all(self, all_contents: Sequence[RecordBatch]) -> list[RecordBatch | KafkaError]:
        return [self._compress(contents) for contents in all_contents]

    def _compress(self, contents: RecordBatch) -> RecordBatch | KafkaError:
        try:
            payload = compress(self._codec, contents.payload, self._level)
        except KafkaError as error:
            return error
        return replace(contents, payload=payload, codec=self._codec)

    def _finish(
        self, batch: ProducerBatch, contents: RecordBatch, compressed: RecordBatch | KafkaError
    ) -> None:
        failed = isinstance(compressed, KafkaError)
        self._accumulator.finish_compression(batch, None if failed else compressed, self._now())
        if failed and batch.contents is contents:  # otherwise it has failed or was split since
            self._accumulator.fail(batch, compressed, self._now())


def max_in_loop_bytes(codec: Codec, level: int | None) -> int:
    """Return the size up to which a batch is compressed in the event loop."""
    high_level = level is not None and level > MAX_FAST_LEVELS.get(codec, 0)
    return (
        min(MAX_IN_LOOP_BYTES[codec], MAX_IN_LOOP_BYTES_HIGH_LEVEL)
        if high_level
        else MAX_IN_LOOP_BYTES[codec]
    )
