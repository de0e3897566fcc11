"""Where Spark looks for `format("kafka_async")`: a module pyspark_NAME with a DefaultSource.

Nothing but pyspark is imported until the source is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`kafka_async.spark.KafkaDataSource`, imported when it is needed."""

    @classmethod
    def name(cls) -> str:
        """The short name for `format`."""
        return "kafka_async"

    def schema(self) -> StructType | str:
        """The columns of a read."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader."""
        return self._source().reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch writer."""
        return self._source().writer(schema, overwrite)

    def _source(self) -> DataSource:
        from kafka_async.spark.source import KafkaDataSource

        return KafkaDataSource(self.options)
