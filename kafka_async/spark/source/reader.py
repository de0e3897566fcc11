"""Reads offset ranges in a batch; the driver plans the ranges, each task reads one.

The driver fetches the offsets of every partition once, so all tasks of a read use the same end.
With read_committed, the end is the last stable offset: a read does not wait for open transactions.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_async.errors import InvalidConfigurationError, OffsetOutOfRangeError
from kafka_async.spark.offsets import ByTimestamp, OffsetRange, plan, split
from kafka_async.spark.source.cluster_offsets import ClusterOffsets
from kafka_async.spark.source.filters import Selection
from kafka_async.spark.source.read_task import RangePartition, read_partition
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow
    from pyspark.sql.datasource import Filter

    from kafka_async.spark.offsets import Offsets
    from kafka_async.spark.source.source_options import SourceOptions

logger = logging.getLogger("kafka_async.spark")


class BatchReader(DataSourceReader):
    """Reads a fixed set of offset ranges. Made on the driver, pickled to the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Fetch partitions and offsets from the cluster and return the ranges to read."""
        options = self._options
        with closing(ClusterOffsets(options)) as cluster:
            topics, chosen = cluster.find_partitions()
            if not chosen:
                logger.warning("there is nothing to read: no partition of the options exists")
                return []
            earliest, latest, _ = cluster.available(chosen)
            starts = cluster.resolve(options.starting, "startingOffsets", chosen, earliest, latest)
            ends = cluster.resolve(options.ending, "endingOffsets", chosen, earliest, latest)
            self._check_order(starts, ends)
            self._restrict(cluster, starts, ends)
        ranges = [
            self._clip_to_available(whole, earliest, latest) for whole in plan(chosen, starts, ends)
        ]
        parts = split(
            ranges, min_partitions=options.min_partitions, max_records=options.max_records
        )
        return [RangePartition(part, topics[part.topic].topic_id) for part in parts]

    def _restrict(self, cluster: ClusterOffsets, starts: Offsets, ends: Offsets) -> None:
        """Narrow the bounds by the query's filters, if any."""

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one range, in offset order."""
        return read_partition(partition, self._options)

    def _check_order(self, starts: Offsets, ends: Offsets) -> None:
        """Raise if a start offset is greater than its end offset."""
        options = self._options
        if isinstance(options.starting, ByTimestamp) or isinstance(options.ending, ByTimestamp):
            return  # There is no record between these times.
        for tp, start in starts.items():
            if start > ends[tp]:
                raise InvalidConfigurationError(
                    f"startingOffsets of {tp} is {start}, after the end of the read, {ends[tp]}: "
                    "set other offsets"
                )

    def _clip_to_available(
        self,
        whole: OffsetRange,
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> OffsetRange:
        """Return the range, clipped to the available offsets if failOnDataLoss is off."""
        tp = TopicPartition(whole.topic, whole.partition)
        first, last = earliest[tp], latest[tp]
        if first <= whole.start and whole.end <= last:
            return whole
        wanted = f"offsets {whole.start} to {whole.end} are requested, but the partition holds"
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{wanted} {first} to {last}: set other offsets, or failOnDataLoss=false",
                topic=whole.topic,
                partition=whole.partition,
            )
        logger.warning("%s: %s only %d to %d (failOnDataLoss=false)", tp, wanted, first, last)
        start = min(max(whole.start, first), last)
        return OffsetRange(whole.topic, whole.partition, start, max(start, min(whole.end, last)))


class FilteringReader(BatchReader):
    """Reads only the records that the query's filters select, where Spark pushes filters down.

    A separate class, because Spark refuses a reader with `pushFilters` when pushdown is off.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._selection = Selection()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Add the filters; return the ones that Spark must still apply."""
        return [each for each in filters if not self._selection.add(each)]

    def _restrict(self, cluster: ClusterOffsets, starts: Offsets, ends: Offsets) -> None:
        chosen = self._selection
        for tp in starts:
            starts[tp] = max(starts[tp], chosen.first)
            ends[tp] = min(ends[tp], chosen.end) if chosen.reads(tp) else starts[tp]
        if chosen.timestamp is None:
            return
        to_read = [tp for tp in starts if starts[tp] < ends[tp]]
        for tp, found in cluster.list_offsets(dict.fromkeys(to_read, chosen.timestamp)).items():
            starts[tp] = max(starts[tp], found.offset) if found.offset >= 0 else ends[tp]

    def __reduce__(self) -> tuple[type[BatchReader], tuple[SourceOptions]]:
        return BatchReader, (self._options,)  # Tasks read ranges, and need no filters.
