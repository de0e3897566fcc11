"""Writes rows of Arrow batches as records; a task succeeds once all are acknowledged.

Delivery is at least once: Spark may run a task twice, and the second run writes its rows again.
Producers are idempotent, so their retries do not duplicate records.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.clients import lend_producer
from kafka_async.spark.worker_heap import note_use

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow
    from pyspark.sql.types import StructType

    from kafka_async import blocking
    from kafka_async.spark.sink.sink_options import SinkOptions

logger = logging.getLogger("kafka_async.spark")

TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
READ_ONLY: Final = ("offset", "timestamp", "timestampType")
"""Columns of a read that the broker sets when a record is written."""


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """Reports the number of records that a task wrote to the driver."""

    records: int


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Check that the columns form records; raise InvalidConfigurationError for a wrong column."""
    names = {column.name: column.dataType.simpleString() for column in schema.fields}
    for name, kind in names.items():
        if name in TYPES and kind not in TYPES[name]:
            raise InvalidConfigurationError(
                f"column {name} is of type {kind}: cast it to {' or '.join(TYPES[name])}"
            )
    if "value" not in names:
        raise InvalidConfigurationError(
            f"there is no column value: name one of these columns so: {', '.join(names)}"
        )
    if "topic" not in names and options.topic is None:
        raise InvalidConfigurationError("there is neither an option topic nor a column topic")
    if ignored := [name for name in names if name not in TYPES and name not in READ_ONLY]:
        logger.warning(
            "not written, because a record has no such part: %s; a record has %s",
            ", ".join(ignored),
            ", ".join(TYPES),
        )


def record_columns(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return the rows without read-only columns, as Spark's connector does."""
    columns = [name for name in rows.schema.names if name in TYPES]
    return rows if len(columns) == rows.num_columns else rows.select(columns)


class ArrowWriter(DataSourceArrowWriter):
    """Writes Arrow batches to Kafka. Made on the driver, pickled to the workers."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskCommitMessage:
        """Send every row and wait until all are acknowledged; raise DeliveryError otherwise."""
        return write_task(self._options, iterator)


def write_task(options: SinkOptions, batches: Iterable[pyarrow.RecordBatch]) -> TaskCommitMessage:
    """Send the rows of one task and wait until all are acknowledged."""
    note_use()
    with lend_producer(options.config()) as producer:
        written = send_batches(producer, batches, options.topic)
        producer.flush()
    return TaskCommitMessage(written)


def send_batches(
    sender: blocking.Producer | blocking.Transaction,
    batches: Iterable[pyarrow.RecordBatch],
    topic: str | None,
) -> int:
    """Append the rows of a task and return their number; `topic` overrides the column."""
    written = 0
    for rows in batches:
        try:
            sender.send_arrow(record_columns(rows), topic)
        except Exception as error:
            if written:
                error.add_note(f"rows[0] is the row with the index {written} of the task")
            raise
        written += rows.num_rows
    return written
