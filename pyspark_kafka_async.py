"""The module in which Spark finds `format("kafka_async")`: pyspark_NAME with a DefaultSource.

Only pyspark is imported until the source is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Delegates to `kafka_async.spark.KafkaDataSource`, which is imported on first use."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "kafka_async"

    def schema(self) -> StructType | str:
        """Return the columns of a read."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of a streaming query."""
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch writer."""
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer of a streaming query."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> DataSource:
        from kafka_async.spark.source import KafkaDataSource

        return KafkaDataSource(self.options)
