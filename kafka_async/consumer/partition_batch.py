"""What `poll_batches` gives: a partition's batches as they were fetched, parsed on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.consumer.fetch_buffer import BYTES, RECORDS
from kafka_async.records.arrow import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow

    from kafka_async.kernel import Record
    from kafka_async.records.batch import BatchView
    from kafka_async.types import TopicPartition


class PartitionBatch:
    """Batches of one partition, uncompressed and parsed when they are asked for.

    It refers to the frame that was fetched: whoever keeps one keeps megabytes. Markers, and under
    read_committed the records of aborted transactions, are not in it. `start` is the first offset
    to read, `next_offset` the one after the last.
    """

    __slots__ = ("_views", "next_offset", "start", "topic_partition")

    def __init__(
        self, partition: TopicPartition, views: list[BatchView], start: int, next_offset: int
    ) -> None:
        self.topic_partition = partition
        self.start = start
        self.next_offset = next_offset
        self._views = views

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.topic_partition.partition

    @property
    def size(self) -> int:
        """Bytes of the batches, as they came."""
        return sum(view.raw.nbytes for view in self._views)

    def records(self) -> Iterator[Record]:
        """Yield the records, with keys and values as bytes; each call begins with the first one.

        One batch is decompressed at a time, and 500 records are parsed at a time, so that memory
        does not grow with the number of records: a list of them takes up to 24 times their bytes.

        Raises:
            CorruptRecordError: the next record cannot be read; those before it were yielded.
        """
        for view in self._views:
            yield from _records(view, self.start)

    def to_arrow(
        self, *, start: int | None = None, end: int | None = None, headers: bool = False
    ) -> pyarrow.RecordBatch:
        """The records as one Arrow record batch, in the columns of Spark's Kafka source.

        `start` and `end` (exclusive) narrow it; `headers` adds their column. Raises
        CorruptRecordError, InvalidConfigurationError if pyarrow is not installed.
        """
        return to_arrow(
            self._views,
            topic=self.topic,
            partition=self.partition,
            start=self.start if start is None else max(start, self.start),
            end=end,
            headers=headers,
        )

    def __repr__(self) -> str:
        return (
            f"<PartitionBatch {self.topic_partition} offsets {self.start}-{self.next_offset - 1}, "
            f"{self.size} bytes>"
        )


def _records(view: BatchView, start: int) -> Iterator[Record]:
    reader = view.reader(start)
    while not reader.done:
        yield from reader.read(RECORDS, BYTES)
