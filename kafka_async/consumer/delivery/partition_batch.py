"""Batches of one partition as returned by `poll_batches`, parsed on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.foundation.fairness import BYTES_PER_CHUNK, RECORDS_PER_CHUNK
from kafka_async.records.arrow import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow

    from kafka_async.kernel import Record
    from kafka_async.records.batch import BatchView
    from kafka_async.types import TopicPartition


class PartitionBatch:
    """Fetched batches of one partition, decompressed and parsed on demand.

    It refers to the fetched frame: a reference to it keeps megabytes alive. Control batches are
    left out, as are batches of aborted transactions with read_committed.

    Attributes:
        topic_partition: The partition.
        start: First offset to read.
        next_offset: Position after this batch. It may be past the last record, where records were
            compacted away, aborted, or are control records.
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
        """Name of the topic."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self.topic_partition.partition

    @property
    def size(self) -> int:
        """Size of the batches as fetched, in bytes."""
        return sum(view.raw.nbytes for view in self._views)

    def records(self) -> Iterator[Record]:
        """Yield the records, with keys and values as bytes; each call starts at the first record.

        One batch is decompressed at a time and 500 records are parsed at a time, so memory does not
        grow with the number of records; a list of the records takes up to 24 times their bytes.

        Raises:
            CorruptRecordError: The next record cannot be read; the records before it were yielded.
        """
        for view in self._views:
            yield from _records(view, self.start)

    def to_arrow(
        self, *, start: int | None = None, end: int | None = None, headers: bool = False
    ) -> pyarrow.RecordBatch:
        """Return the records as one Arrow record batch, in the columns of Spark's Kafka source.

        Args:
            start: First offset (default: the first to read).
            end: Offset after the last record (default: after the last).
            headers: True to add the headers' column.

        Raises:
            CorruptRecordError: A record cannot be read.
            RecordTooLargeError: The batches decompress to more than 512 MiB together.
            InvalidConfigurationError: pyarrow is not installed.
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
        yield from reader.read(RECORDS_PER_CHUNK, BYTES_PER_CHUNK)
