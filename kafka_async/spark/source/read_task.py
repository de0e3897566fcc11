"""Reads one offset range as Arrow batches, in a task of a batch or streaming read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from kafka_async import blocking
from kafka_async.client.client import services_of
from kafka_async.errors import (
    DataLossError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kafka_async.spark.clients import lend_consumer
from kafka_async.spark.worker_heap import note_use
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    import pyarrow

    from kafka_async.spark.offsets import OffsetRange
    from kafka_async.spark.source.source_options import SourceOptions

logger = logging.getLogger("kafka_async.spark")

MAX_ROWS_PER_BATCH: Final = 65_536
"""Maximum rows of an Arrow batch: each batch has a fixed cost, but larger ones are not faster."""
MAX_BYTES_PER_BATCH: Final = 16 * 2**20
"""Maximum bytes of an Arrow batch of more than one row."""
POLL_TIMEOUT: Final = 0.25
"""Seconds per poll; a range may end in control records and aborted records, which return no batch.
"""


class RangePartition(InputPartition):
    """Holds the offset range that one task reads.

    Args:
        value: The range.
        topic_id: Id of the topic with these offsets; None if unknown.
    """

    def __init__(self, value: OffsetRange, topic_id: uuid.UUID | None = None) -> None:
        super().__init__(value)
        self.range = value
        self.topic_id = topic_id


def read_partition(
    partition: InputPartition, options: SourceOptions
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a task's range; without ranges, Spark passes another class."""
    note_use()
    if isinstance(partition, RangePartition):
        return read_range(partition.range, partition.topic_id, options)
    return iter(())


def read_range(
    part: OffsetRange, topic_id: uuid.UUID | None, options: SourceOptions
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a range, in offset order.

    Raises:
        KafkaTimeoutError: No data arrived for kafkaConsumer.pollTimeoutMs.
        DataLossError: failOnDataLoss is on, and retention has removed records of the range or the
            topic was created again.
    """
    tp = TopicPartition(part.topic, part.partition)
    with lend_consumer(options.config(), [tp]) as consumer:
        consumer.seek(tp, part.start)
        before, without_data = part.start, 0.0
        while before < part.end:
            try:
                batches = consumer.poll_batches(timeout=POLL_TIMEOUT)
                # Each poll has one of four results: data, no data for now, removed records (seek
                # past them), or a position in another log (continue if the topic has the planned
                # id, else end).
                after = batches[-1].next_offset if batches else consumer.position(tp)
            except OffsetOutOfRangeError as error:
                before = _skip_removed(consumer, tp, before, part, options, error)
                continue
            except NoOffsetForPartitionError as error:
                # The reused consumer's position belongs to a former topic of this name, or to
                # another cluster.
                timeout = options.poll_timeout
                if not (topic_id and topic_id.int) or not blocking.run(
                    _has_topic_id, consumer, tp.topic, topic_id, timeout
                ):
                    _skip_other_log(tp, before, topic_id, options, error)
                    return
                consumer.seek(tp, before)
                continue
            if batches and topic_id:
                timeout = options.poll_timeout
                if not blocking.run(_has_topic_id, consumer, tp.topic, topic_id, timeout):
                    _skip_other_log(tp, before, topic_id, options)
                    return
            # Control records and aborted records move the position without data.
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
                yield from slices(rows)
            before = after


async def _has_topic_id(
    consumer: blocking.Consumer, topic: str, topic_id: uuid.UUID, timeout: float
) -> bool:
    """Return whether a topic has an id in the metadata that a consumer fetches with.

    Metadata with another id, or without the topic, is refreshed first: it may be stale.
    """
    metadata = services_of(consumer.asynchronous.client).metadata
    if metadata.snapshot.topic_id(topic) == topic_id:
        return True
    try:
        await metadata.refresh(timeout, topics=[topic], tracked=False)
        snapshot = await metadata.wait_for_topics([topic], timeout)
    except UnknownTopicOrPartitionError:
        return False
    return snapshot.topic_id(topic) == topic_id


def slices(rows: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Yield an Arrow batch in halves of at most MAX_ROWS_PER_BATCH rows and MAX_BYTES_PER_BATCH."""
    pending = [rows] if rows.num_rows else []
    while pending:
        part = pending.pop()
        half = part.num_rows // 2
        if half and (part.num_rows > MAX_ROWS_PER_BATCH or part.nbytes > MAX_BYTES_PER_BATCH):
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
    """Seek past records that were removed after the read was planned, or raise.

    Returns:
        The offset at which the task continues.
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
        "%s at offset %d: the records are gone; the task continues at %d (failOnDataLoss=false)",
        tp,
        offset,
        to,
    )
    consumer.seek(tp, to)
    return to


def _skip_other_log(
    tp: TopicPartition,
    offset: int,
    topic_id: uuid.UUID | None,
    options: SourceOptions,
    cause: NoOffsetForPartitionError | None = None,
) -> None:
    """Log that a task ends because its offsets belong to a former topic, or raise."""
    reason = f"the topic has another id than {topic_id}, with which the read was planned"
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{reason}: it was created again, or the bootstrap servers lead to another cluster; "
            "start the query from a new checkpoint, or set failOnDataLoss=false",
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
        ) from cause
    logger.warning("%s at offset %d: %s (failOnDataLoss=false)", tp, offset, reason)
