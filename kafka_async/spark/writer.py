"""Writes rows of Arrow batches as records; a task succeeds once all are acknowledged.

Delivery is at least once: Spark may run a task twice, and the second run writes its rows again.
Producers are idempotent, so their retries do not duplicate records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.clients import lend_producer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow
    from pyspark.sql.types import StructType

    from kafka_async import blocking
    from kafka_async.spark.sink_options import SinkOptions

TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """Tells the driver how many records a task wrote."""

    records: int


def check_columns(schema: StructType, options: SinkOptions, *, overwrite: bool) -> None:
    """Check that the columns form records; InvalidConfigurationError names a wrong column."""
    if overwrite:
        raise InvalidConfigurationError('a topic cannot be overwritten: use mode("append")')
    names = {column.name: column.dataType.simpleString() for column in schema.fields}
    for name, kind in names.items():
        if name not in TYPES:
            raise InvalidConfigurationError(
                f"column {name} is not part of a record: select only " + ", ".join(TYPES)
            )
        if kind not in TYPES[name]:
            raise InvalidConfigurationError(
                f"column {name} is of type {kind}: cast it to {' or '.join(TYPES[name])}"
            )
    if "value" not in names:
        raise InvalidConfigurationError("there is no column value")
    if "topic" not in names and options.topic is None:
        raise InvalidConfigurationError("there is neither an option topic nor a column topic")


class ArrowWriter(DataSourceArrowWriter):
    """Writes Arrow batches to Kafka. Made on the driver, pickled to the workers."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskCommitMessage:
        """Send every row and wait until all are acknowledged; raise DeliveryError otherwise."""
        return write_task(self._options, iterator)


def write_task(options: SinkOptions, batches: Iterable[pyarrow.RecordBatch]) -> TaskCommitMessage:
    """Send the rows of one task and wait until all are acknowledged."""
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
            sender.send_arrow(rows, topic)
        except Exception as error:
            if written:
                error.add_note(f"rows[0] is the row with the index {written} of the task")
            raise
        written += rows.num_rows
    return written
