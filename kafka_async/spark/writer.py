"""Writes rows of Arrow batches as records; a task succeeds once all are acknowledged.

Delivery is at least once: Spark may run a task twice, and the second run writes its rows again.
Each task has one idempotent producer, so retries within a run do not duplicate records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_async import blocking
from kafka_async.errors import InvalidConfigurationError
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow
    from pyspark.sql.types import StructType

    from kafka_async.spark.sink_options import SinkOptions

# Arrow arrays by column name; Any, because their element types differ.
Columns = dict[str, Any]

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
    written = 0
    with blocking.Producer(config=options.config()) as producer:
        for rows in batches:
            send_rows(producer, rows, options.topic)
            written += rows.num_rows
        producer.flush()
    return TaskCommitMessage(written)


def send_rows(
    sender: blocking.Producer | blocking.Transaction, rows: pyarrow.RecordBatch, topic: str | None
) -> None:
    """Append the rows of a batch; `topic` overrides the column of that name."""
    columns: Columns = {name: rows.column(name) for name in rows.schema.names}
    values = _bytes(columns["value"])
    keys = _bytes(columns["key"]) if "key" in columns else None
    if topic is not None and not columns.keys() & {"partition", "headers"}:
        sender.send_many(topic, values, keys=keys)
    else:
        sender.send_records(_records(columns, values, keys, topic))


def _records(
    columns: Columns,
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    topic_of_all: str | None,
) -> Iterable[ProducerRecord]:
    rows = len(values)
    topics = columns["topic"].to_pylist() if "topic" in columns else [None] * rows
    partitions = columns["partition"].to_pylist() if "partition" in columns else [None] * rows
    headers = columns["headers"].to_pylist() if "headers" in columns else [None] * rows
    for row, value in enumerate(values):
        topic = topic_of_all or topics[row]
        if topic is None:
            raise InvalidConfigurationError(
                "a row has null in column topic: set it, or the option topic"
            )
        yield ProducerRecord(
            topic=topic,
            value=value,
            key=None if keys is None else keys[row],
            partition=partitions[row],
            headers=[(header["key"], header["value"]) for header in headers[row] or ()],
        )


def _bytes(column: Any) -> list[bytes | None]:
    from pyarrow import binary

    return column.cast(binary()).to_pylist()
