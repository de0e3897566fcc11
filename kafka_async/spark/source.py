"""The data source that Spark sees: its name, its columns, and who reads and writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

    from kafka_async.spark.reader import BatchReader
    from kafka_async.spark.writer import ArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:

        class DataSource:
            """Stands in for pyspark's base class, so that this module can be imported."""

            def __init__(self, options: MutableMapping[str, str]) -> None:
                raise IllegalStateError(
                    "pyspark is not installed: pip install pyspark pyarrow (and Java 17)"
                )


COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, "
    "timestamp timestamp, timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


class KafkaDataSource(DataSource):
    """`format("kafka_async")`: the columns and options of Spark's own Kafka connector, no jar.

    Reads in batches (subscribe, subscribePattern or assign; startingOffsets, endingOffsets,
    minPartitions, maxRecordsPerPartition, includeHeaders, failOnDataLoss, kafka.*), and writes the
    columns value, and if there are such key, headers, topic and partition. Writing is at least
    once: a task that Spark repeats writes its rows again.
    """

    @classmethod
    def name(cls) -> str:
        """The short name for `format`."""
        return "kafka_async"

    def schema(self) -> str:
        """The columns that a read has; `headers` only with the option includeHeaders."""
        with_headers = _lower(self.options).get("includeheaders", "").lower() == "true"
        return f"{COLUMNS}, {HEADERS}" if with_headers else COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        """A reader of everything between two sets of offsets."""
        from kafka_async.spark.options import source_options
        from kafka_async.spark.reader import BatchReader

        return BatchReader(source_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> ArrowWriter:
        """A writer to one topic, or to the topics that a column names."""
        from kafka_async.spark.options import sink_options
        from kafka_async.spark.writer import ArrowWriter, check_columns

        options = sink_options(self.options)
        check_columns(schema, options, overwrite=overwrite)
        return ArrowWriter(options)


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in options.items()}
