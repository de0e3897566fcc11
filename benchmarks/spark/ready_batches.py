"""A data source that yields ready-made Arrow batches: the least that any Python source costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks import payload
from kafka_async.records.arrow import arrow_schema
from kafka_async.spark.source.data_source import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROWS_PER_BATCH = 32_768


class ReadyBatches(DataSource):
    """Yields the options records, size and partitions' worth of rows, made once per task."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ready_batches"

    def schema(self) -> str:
        """Return the columns of the Kafka source."""
        return COLUMNS

    def reader(self, schema: object) -> DataSourceReader:
        """Return the reader."""
        return ReadyReader(self.options)


class ReadyReader(DataSourceReader):
    """Yields the rows of each partition."""

    def __init__(self, options: Mapping[str, str]) -> None:
        names = ("records", "size", "partitions")
        self._records, self._size, self._partitions = (int(options[name]) for name in names)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the numbers of the partitions."""
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        number = int(partition.value)
        return self.rows(number, len(range(number, self._records, self._partitions)))

    def rows(self, number: int, count: int) -> Iterator[pa.RecordBatch]:
        """Yield `count` rows of a partition."""
        return ready_rows(ready_batch(self._size, number), count)


def ready_rows(batch: Any, count: int) -> Iterator[pa.RecordBatch]:
    """Yield `count` rows in parts of a batch, which is repeated."""
    while count > 0:
        rows = min(count, batch.num_rows)
        yield batch.slice(0, rows)
        count -= rows


def ready_batch(size: int, partition: int) -> Any:
    """Return rows with values of `size` bytes, for one task."""
    values = payload.values(size)
    schema: Any = arrow_schema()
    columns: dict[str, list[Any]] = {
        "key": [None] * ROWS_PER_BATCH,
        "value": [values[n % len(values)] for n in range(ROWS_PER_BATCH)],
        "topic": ["ready"] * ROWS_PER_BATCH,
        "partition": [partition] * ROWS_PER_BATCH,
        "offset": list(range(ROWS_PER_BATCH)),
        "timestamp": [0] * ROWS_PER_BATCH,
        "timestampType": [0] * ROWS_PER_BATCH,
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema)
