"""A streaming source and sink in Python that do nothing: the least that they cost a micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class EmptyBatches(DataSource):
    """Yields one row without a value in each micro-batch, and writes nothing."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "empty_batches"

    def schema(self) -> str:
        """Return the column that the streaming benchmark copies."""
        return "value binary"

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        """Return the source."""
        return _Reader()

    def streamWriter(self, schema: object, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the sink."""
        return _Writer()


class _Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"batch": start["batch"] + 1}

    def partitions(self, start: object, end: object) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        schema = pa.schema([("value", pa.binary())])
        yield pa.RecordBatch.from_pydict({"value": [b""]}, schema=schema)


class _Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
