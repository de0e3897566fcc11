"""Reads topics in a streaming query, for all versions of Spark.

One reader lives in a driver process as long as the query runs, and looks up offsets; its client
stays connected. Tasks have copies of it, which only read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafka_async.errors import InvalidConfigurationError, KafkaError
from kafka_async.spark.offsets import Offsets, split
from kafka_async.spark.source.admission import TriggerDelay, backlog, limit_bytes, limit_rows
from kafka_async.spark.source.cluster_offsets import ClusterOffsets
from kafka_async.spark.source.data_loss import LogState, Loss, find_losses, plan_batch
from kafka_async.spark.source.read_task import RangePartition, read_partition
from kafka_async.spark.source.stream_offset import OffsetJson, StreamOffset, read_stream_offset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    import pyarrow

    from kafka_async.spark.source.source_options import SourceOptions
    from kafka_async.types import TopicPartition

logger = logging.getLogger("kafka_async.spark")


class KafkaStreamReader(DataSourceStreamReader):
    """Plans micro-batches in the driver and reads their ranges in tasks.

    Args:
        options: The options of the read.
        clock: Seconds of a monotonic clock, for maxTriggerDelay.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._offsets: ClusterOffsets | None = None
        self._delay = (
            None
            if options.min_rows_per_trigger is None
            else TriggerDelay(options.min_rows_per_trigger, options.max_trigger_delay)
        )
        self._planned: tuple[StreamOffset, LogState] | None = None
        """The last returned end, with the state of the logs from which it was chosen."""
        self._target: Offsets | None = None
        """End offsets of a query with availableNow."""
        self._committed: StreamOffset | None = None
        self._topic_ids: dict[str, UUID] = {}
        """Topic ids from the first metadata of this run of the query."""

    def __reduce__(self) -> tuple[type[KafkaStreamReader], tuple[SourceOptions]]:
        return type(self), (self._options,)

    # -- called by Spark in the driver ------------------------------------------------------------

    def initialOffset(self) -> OffsetJson:
        """Return the offsets at which a new query starts."""
        cluster = self._cluster()
        topics, chosen = cluster.find_partitions()
        earliest, latest, leader_epochs = cluster.available(chosen)
        starts = cluster.resolve(
            self._options.starting, "startingOffsets", chosen, earliest, latest
        )
        topic_ids = {name: topic.topic_id for name, topic in topics.items()}
        return StreamOffset(starts, topic_ids, leader_epochs).to_json()

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Check that a micro-batch's records still exist, and return its ranges.

        Raises:
            DataLossError: Records of the batch are lost, and failOnDataLoss is on.
        """
        first, last = read_stream_offset(start), read_stream_offset(end)
        if first == last:
            return []
        first = first.identified_by(self._topic_ids)
        if self._planned is not None and self._planned[0] == last:
            ranges, losses = plan_batch(first, last, self._planned[1])
        else:  # An earlier run of the query planned the batch.
            cluster = self._cluster()
            logs = cluster.state(first)
            ends = cluster.epoch_ends(last, logs.topic_ids, logs.leader_epochs)
            ranges, losses = plan_batch(first, last, logs, ends)
        self._report(losses)
        return [
            RangePartition(part, last.topic_ids.get(part.topic))
            for part in split(
                ranges,
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records,
            )
        ]

    def stop(self) -> None:
        """Close the connections."""
        if self._offsets is not None:
            self._offsets.close()

    # -- called by Spark in tasks -----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one range, in offset order."""
        return read_partition(partition, self._options)

    # -- planning ---------------------------------------------------------------------------------

    def _cluster(self) -> ClusterOffsets:
        if self._offsets is None:
            self._offsets = ClusterOffsets(self._options)
        return self._offsets

    def _next_offset(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """Return the end of the next micro-batch, or `start` if there is no new record.

        Raises:
            DataLossError: Records from `start` on are lost, and failOnDataLoss is on.
        """
        logs = self._cluster().state(start.identified_by(self._topic_ids))
        starts, losses = find_losses(start.identified_by(self._topic_ids), logs)
        self._topic_ids = {**logs.topic_ids, **self._topic_ids}
        if losses and self._options.fail_on_data_loss:
            self._report(losses)
        # Bounds apply in this order: the end of a query with availableNow, the delay for a minimum
        # size, and the maximum size of a batch.
        latest = dict(logs.latest)
        if self._target is not None:
            latest = _stop_at(self._target, start, starts, latest)
        end = latest
        if limited and self._waits(starts, latest):
            end = {tp: starts[tp] for tp in latest if tp in start.offsets}
        elif limited:
            end = self._limit(starts, latest)
        moved = StreamOffset(
            end,
            {tp.topic: logs.topic_ids[tp.topic] for tp in end},
            {tp: epoch for tp in end if (epoch := _epoch(tp, start, end, logs)) is not None},
        )
        if not losses and end == start.offsets:
            moved = start
        self._planned = moved, logs
        return moved

    def _waits(self, starts: Offsets, latest: Offsets) -> bool:
        """Return whether the next batch waits for more records: never with availableNow."""
        if self._delay is None or self._target is not None:
            return False
        return self._delay.waits(starts, latest, self._clock())

    def _limit(self, starts: Offsets, latest: Offsets) -> Offsets:
        """Return the end of a batch within the limits of the options."""
        options = self._options
        end = latest
        if options.max_rows_per_trigger is not None:
            end = limit_rows(options.max_rows_per_trigger, starts, latest)
        if options.max_bytes_per_trigger is not None and (sizes := backlog(starts, end)):
            average = self._cluster().bytes_per_offset({tp: starts[tp] for tp in sizes})
            end = limit_bytes(options.max_bytes_per_trigger, starts, end, average)
        return end

    def _report(self, losses: Sequence[Loss]) -> None:
        """Raise for lost records, or log them."""
        if losses and self._options.fail_on_data_loss:
            error = losses[0].error()
            for loss in losses[1:]:
                error.add_note(str(loss.error()))
            raise error
        for loss in losses:
            logger.warning("%s", loss)

    def _commit_progress(self, offsets: StreamOffset) -> None:
        """Commit offsets of a completed batch to the group of commitGroupId."""
        group = self._options.commit_group_id
        if group is None or offsets == self._committed or not offsets.offsets:
            return
        try:
            self._cluster().commit(group, offsets)
        except KafkaError as error:
            logger.warning("the offsets of a batch are not committed: %s", error)
        self._committed = offsets


def _epoch(
    tp: TopicPartition, start: StreamOffset, end: Mapping[TopicPartition, int], logs: LogState
) -> int | None:
    """Return the leader epoch at a batch's end, or at its start if no record was read."""
    if start.offsets.get(tp) == end[tp] and tp in start.epochs:
        return start.epochs[tp]
    return logs.leader_epochs.get(tp)


def _stop_at(target: Offsets, start: StreamOffset, starts: Offsets, latest: Offsets) -> Offsets:
    """Return the ends of a query that ends at `target`, without newer partitions."""
    return {
        tp: max(starts[tp], min(target.get(tp, 0), end))
        for tp, end in latest.items()
        if tp in target or tp in start.offsets
    }


class StreamReaderWithoutLimits(KafkaStreamReader):
    """Reads streams on Spark 4.0 and 4.1, which pass no start and no limit.

    The reader remembers the end of the last batch. After a restart the end is unknown, unless Spark
    plans the last batch again, so the next batch has no limit. With availableNow, Spark requests
    the end of a new query before its start, which has the same effect.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options, clock)
        self._last: StreamOffset | None = None

    def initialOffset(self) -> OffsetJson:
        """Return the offsets at which a new query starts."""
        value = super().initialOffset()
        self._last = read_stream_offset(value)
        return value

    def latestOffset(self) -> OffsetJson:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the end of the next micro-batch."""
        if self._last is None:
            self._last = self._cluster().latest_position()
        else:
            self._last = self._next_offset(self._last, limited=True)
        return self._last.to_json()

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch; see `KafkaStreamReader.partitions`."""
        self._last = read_stream_offset(end)
        return super().partitions(start, end)

    def commit(self, end: dict[str, object]) -> None:
        """Commit the offsets of a completed batch to the group of commitGroupId."""
        self._commit_progress(read_stream_offset(end))


class RefusingStreamReader(DataSourceStreamReader):
    """Raises the error for wrong options when Spark calls a method.

    Spark would replace an error of `streamReader` with its own UnboundLocalError.

    Args:
        error: The error.
    """

    def __init__(self, error: InvalidConfigurationError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error: the query is new."""
        raise self._error

    def latestOffset(self, start: object = None, limit: object = None) -> NoReturn:
        """Raise the error: the query has a checkpoint."""
        raise self._error

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> NoReturn:
        """Raise the error: the checkpoint has an incomplete batch."""
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error; Spark runs no task, because there are no partitions."""
        raise self._error
