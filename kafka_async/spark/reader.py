"""Reads offset ranges as Arrow batches; the driver plans the ranges, each task reads one.

The driver fetches the offsets of every partition once, so all tasks of a read use the same end.
With read_committed the end is the last stable offset: open transactions are not waited for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_async import blocking
from kafka_async.errors import (
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kafka_async.spark.offsets import OffsetRange, Offsets, plan, split
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow

    from kafka_async.spark.source_options import SourceOptions

MAX_ROWS_PER_BATCH: Final = 32_768
"""Rows of an Arrow batch; larger batches are not faster, and each batch has a fixed cost."""
METADATA_TIMEOUT: Final = 10.0
"""Seconds that a topic may take to appear in the metadata after it was created."""
NO_DATA_TIMEOUT: Final = 120.0
"""Seconds without data after which a task fails; Spark may run it again elsewhere."""
POLL_TIMEOUT: Final = 0.25
"""Seconds per poll; a range may end in markers and aborted records, which return no batch."""


class RangePartition(InputPartition):
    """Holds the offset range that one task reads."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)
        self.range = value


class BatchReader(DataSourceReader):
    """Reads a fixed set of offset ranges. Made on the driver, pickled to the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Fetch partitions and offsets from the cluster and return the ranges to read."""
        options = self._options
        with blocking.Consumer(config=options.config(), partitions=()) as consumer:
            chosen = self._select_partitions(consumer)
            available = {
                tp: (earliest, latest)
                for (tp, earliest), latest in zip(
                    consumer.beginning_offsets(chosen).items(),
                    consumer.end_offsets(chosen).values(),
                    strict=True,
                )
            }
        starts = _bounds(options.starting, chosen)
        ends = _bounds(options.ending, chosen)
        ranges = plan(chosen, starts, ends, available)
        ranges = [self._clip_to_available(whole, available) for whole in ranges]
        parts = split(
            ranges, min_partitions=options.min_partitions, max_records=options.max_records
        )
        return [RangePartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one range, in offset order."""
        assert isinstance(partition, RangePartition)
        part = partition.range
        tp = TopicPartition(part.topic, part.partition)
        with blocking.Consumer(config=self._options.config(), partitions=[tp]) as consumer:
            consumer.seek(tp, part.start)
            without_data = 0.0
            while (before := consumer.position(tp)) < part.end:
                batches = consumer.poll_batches(timeout=POLL_TIMEOUT)
                progressed = bool(batches) or consumer.position(tp) > before
                without_data = 0.0 if progressed else without_data + POLL_TIMEOUT
                if without_data >= NO_DATA_TIMEOUT:
                    raise KafkaTimeoutError(
                        f"no data for {NO_DATA_TIMEOUT:.0f} s, yet the partition goes on to "
                        f"{part.end}",
                        topic=tp.topic,
                        partition=tp.partition,
                        offset=before,
                    )
                for batch in batches:
                    rows = batch.to_arrow(end=part.end, headers=self._options.include_headers)
                    for start in range(0, rows.num_rows, MAX_ROWS_PER_BATCH):
                        yield rows.slice(start, MAX_ROWS_PER_BATCH)

    def _select_partitions(self, consumer: blocking.Consumer) -> list[TopicPartition]:
        options = self._options
        if options.partitions is not None:
            return list(options.partitions)
        topics = options.topics
        if topics is None:
            pattern = re.compile(options.pattern or "")
            topics = tuple(topic for topic in sorted(consumer.topics()) if pattern.fullmatch(topic))
            if not topics:
                raise UnknownTopicOrPartitionError(
                    f'subscribePattern "{options.pattern}" matches no topic of the cluster'
                )
        return [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in consumer.partitions_for(topic, timeout=METADATA_TIMEOUT)
        ]

    def _clip_to_available(
        self, whole: OffsetRange, available: dict[TopicPartition, tuple[int, int]]
    ) -> OffsetRange:
        """Return the range; if failOnDataLoss is off, clip it to the available offsets."""
        earliest, latest = available[TopicPartition(whole.topic, whole.partition)]
        if earliest <= whole.start and whole.end <= latest:
            return whole
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"offsets {whole.start} to {whole.end} are requested, but the partition holds "
                f"{earliest} to {latest}: set other offsets, or failOnDataLoss=false",
                topic=whole.topic,
                partition=whole.partition,
            )
        start = min(max(whole.start, earliest), latest)
        return OffsetRange(whole.topic, whole.partition, start, max(start, min(whole.end, latest)))


def _bounds(given: Offsets | int, chosen: Sequence[TopicPartition]) -> Offsets:
    return dict.fromkeys(chosen, given) if isinstance(given, int) else given
