"""Reads one offset range as Arrow batches, in a task of a batch or streaming read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from kafka_async.errors import DataLossError, KafkaTimeoutError, OffsetOutOfRangeError
from kafka_async.spark.clients import lend_consumer
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow

    from kafka_async import blocking
    from kafka_async.spark.offsets import OffsetRange
    from kafka_async.spark.source_options import SourceOptions

logger = logging.getLogger("kafka_async.spark")

MAX_ROWS_PER_BATCH: Final = 32_768
"""Rows of an Arrow batch; larger batches are not faster, and each batch has a fixed cost."""
MAX_BYTES_PER_BATCH: Final = 16 * 2**20
"""Bytes of an Arrow batch, unless one row has more."""
POLL_TIMEOUT: Final = 0.25
"""Seconds per poll; a range may end in markers and aborted records, which return no batch."""


class RangePartition(InputPartition):
    """Holds the offset range that one task reads."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)
        self.range = value


def read_partition(
    partition: InputPartition, options: SourceOptions
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a task's range; Spark passes another partition if there are no ranges."""
    if isinstance(partition, RangePartition):
        return read_range(partition.range, options)
    return iter(())


def read_range(part: OffsetRange, options: SourceOptions) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a range, in offset order.

    Raises:
        KafkaTimeoutError: There was no data for kafkaConsumer.pollTimeoutMs.
        DataLossError: Retention has removed records of the range, and failOnDataLoss is on.
    """
    tp = TopicPartition(part.topic, part.partition)
    decoder = None if options.value_format is None else options.value_format.decoder()
    with lend_consumer(options.config(), [tp]) as consumer:
        consumer.seek(tp, part.start)
        before, without_data = part.start, 0.0
        while before < part.end:
            try:
                batches = consumer.poll_batches(timeout=POLL_TIMEOUT)
            except OffsetOutOfRangeError as error:
                before = _skip_removed(consumer, tp, before, part, options, error)
                continue
            after = batches[-1].next_offset if batches else consumer.position(tp)
            without_data = 0.0 if after > before else without_data + POLL_TIMEOUT
            if without_data >= options.poll_timeout:
                raise KafkaTimeoutError(
                    f"no data for {options.poll_timeout:g} s, yet the partition goes on to "
                    f"{part.end}: check its leader, or raise kafkaConsumer.pollTimeoutMs",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=before,
                )
            for batch in batches:
                rows = batch.to_arrow(end=part.end, headers=options.include_headers)
                for piece in slices(rows):
                    yield piece if decoder is None else decoder.decode(piece)
            before = after


def slices(rows: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Yield an Arrow batch in parts of at most MAX_ROWS_PER_BATCH rows and MAX_BYTES_PER_BATCH."""
    pending = [
        rows.slice(start, MAX_ROWS_PER_BATCH)
        for start in reversed(range(0, rows.num_rows, MAX_ROWS_PER_BATCH))
    ]
    while pending:
        part = pending.pop()
        half = part.num_rows // 2
        if half and part.nbytes > MAX_BYTES_PER_BATCH:
            pending += [part.slice(half), part.slice(0, half)]
        else:
            yield part


def _skip_removed(
    consumer: blocking.Consumer,
    tp: TopicPartition,
    offset: int,
    part: OffsetRange,
    options: SourceOptions,
    error: OffsetOutOfRangeError,
) -> int:
    """Seek behind records that were removed since the read was planned, or raise.

    Returns:
        The offset at which the task goes on.
    """
    earliest = consumer.beginning_offsets([tp])[tp]
    if options.fail_on_data_loss:
        raise DataLossError(
            f"the partition now begins at offset {earliest}, and the task reads {part.start} to "
            f"{part.end}, so records may be lost: set failOnDataLoss=false to read what is left",
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
        ) from error
    to = min(earliest, part.end) if earliest > offset else part.end
    logger.warning(
        "%s at offset %d: the records are gone, and the task goes on at %d (failOnDataLoss=false)",
        tp,
        offset,
        to,
    )
    consumer.seek(tp, to)
    return to
