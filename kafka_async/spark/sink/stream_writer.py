"""Writes the epochs of a streaming query as records, at least once.

Spark 4.1 and newer pass Arrow batches to a streaming writer. Spark 4.0 passes rows, which are
converted to Arrow in groups, so that both then take the same path.
"""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter

from kafka_async.spark.sink.writer import TYPES, TaskCommitMessage, write_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

    from kafka_async.spark.sink.sink_options import SinkOptions

MAX_ROWS_PER_CONVERSION: Final = 10_000
"""Maximum rows converted to one Arrow batch."""

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:
    StreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


class StreamWriter(StreamArrowWriter):
    """Writes Arrow batches of an epoch to Kafka. Made on the driver, pickled to the workers.

    A task's records are acknowledged when its `write` returns, so commit and abort do nothing.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskCommitMessage:
        """Send every row and wait until all are acknowledged; raise DeliveryError otherwise."""
        return write_task(self._options, iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Do nothing: the records of the epoch are acknowledged."""

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Do nothing: Spark repeats the epoch, and its records may be written twice."""


class RowStreamWriter(StreamWriter):
    """Writes rows of an epoch to Kafka, for Spark 4.0."""

    def write(self, iterator: Iterator[Row]) -> TaskCommitMessage:  # pyright: ignore[reportIncompatibleMethodOverride]  # Spark 4.0 gives rows
        """Send every row and wait until all are acknowledged; raise DeliveryError otherwise."""
        return super().write(arrow_batches(iterator, self._schema))


def stream_writer(options: SinkOptions, schema: StructType) -> StreamWriter:
    """Return a writer for the rows or Arrow batches of this Spark version."""
    return (StreamWriter if gives_arrow_batches() else RowStreamWriter)(options, schema)


def gives_arrow_batches() -> bool:
    """Return whether this Spark version passes Arrow batches to streaming writers."""
    return StreamArrowWriter is not DataSourceStreamWriter


def arrow_batches(rows: Iterable[Row], schema: StructType) -> Iterator[pyarrow.RecordBatch]:
    """Convert the writable columns of rows to batches of at most MAX_ROWS_PER_CONVERSION rows."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    pa: Any = importlib.import_module("pyarrow")  # pyspark's stubs lack element types
    written = [at for at, name in enumerate(schema.names) if name in TYPES]
    arrow_schema: Any = to_arrow_schema(StructType([schema.fields[at] for at in written]))
    pending = iter(rows)
    while group := list(itertools.islice(pending, MAX_ROWS_PER_CONVERSION)):
        columns: Any = list(zip(*group, strict=True))
        arrays = [
            pa.array(columns[at], field.type)
            for at, field in zip(written, arrow_schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)
