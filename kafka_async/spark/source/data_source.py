"""The data source class that Spark loads: name, columns, reader and writer."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Final

from kafka_async.errors import IllegalStateError, InvalidConfigurationError
from kafka_async.foundation.arguments import missing_extra
from kafka_async.spark.worker_heap import note_use

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSource,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from kafka_async.spark.source.reader import BatchReader
else:
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:

        class DataSource:
            """Replaces pyspark's base class so that this module can be imported without it."""

            def __init__(self, options: MutableMapping[str, str]) -> None:
                needed = missing_extra("the data source kafka_async", "spark")
                raise IllegalStateError(f"{needed}; Spark also needs Java 17")


COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, "
    "timestamp timestamp, timestampType int"
)
FILTERING_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""Module that plans a read with filters; Spark runs it in separate processes."""
READ_LIMITS: Final = "pyspark.sql.streaming.datasource"
"""Module that exists in Spark versions that pass limits to streaming sources."""
HEADERS = "headers array<struct<key: string, value: binary>>"


class KafkaDataSource(DataSource):
    """Implements `format("kafka_async")` with the columns and options of Spark's Kafka connector.

    Reads batches and streams, with that connector's options and maxBytesPerTrigger and
    commitGroupId. Writes the column value and, if they exist, the columns key, headers, topic and
    partition, in batches and streaming queries. Writing is at least once: a task that Spark repeats
    writes its rows again. With the options exactlyOnce and sinkId, each row is written once.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafka_async"

    def schema(self) -> str:
        """Return the columns of a read; `headers` requires the option includeHeaders."""
        from kafka_async.spark.options import flag, hide_option_secrets, own_options

        note_use()
        own = own_options(hide_option_secrets(self.options))
        with_headers = flag(own, "includeHeaders", default=False)
        return f"{COLUMNS}, {HEADERS}" if with_headers else COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        """Return a reader of the records between two sets of offsets."""
        from kafka_async.spark.source.reader import BatchReader, FilteringReader
        from kafka_async.spark.source.source_options import source_options

        note_use()
        options = source_options(self.options)
        return FilteringReader(options) if FILTERING_WORKER in sys.modules else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of a streaming query."""
        from kafka_async.spark.source.source_options import source_options
        from kafka_async.spark.source.stream_reader import RefusingStreamReader

        try:
            options = source_options(self.options, streaming=True)
        except InvalidConfigurationError as error:
            return RefusingStreamReader(error)
        if importlib.util.find_spec(READ_LIMITS) is None:  # Spark 4.0 and 4.1
            from kafka_async.spark.source.stream_reader import StreamReaderWithoutLimits

            return StreamReaderWithoutLimits(options)
        from kafka_async.spark.source.limited_stream_reader import LimitedStreamReader

        return LimitedStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer to one topic, or to the topics in the column topic."""
        from kafka_async.spark.sink.sink_options import sink_options
        from kafka_async.spark.sink.writer import ArrowWriter, check_columns

        note_use()
        if overwrite:
            raise InvalidConfigurationError('a topic cannot be overwritten: use mode("append")')
        options = sink_options(self.options)
        check_columns(schema, options)
        if options.exactly_once:
            from kafka_async.spark.sink.exactly_once import ExactlyOnceWriter

            return ExactlyOnceWriter(options)
        return ArrowWriter(options)

    def streamWriter(  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return a writer of the epochs of a streaming query.

        Spark passes `overwrite` for the output mode "complete". Each epoch's whole result is then
        appended to the topic, as with Spark's connector.
        """
        from kafka_async.spark.sink.sink_options import sink_options
        from kafka_async.spark.sink.stream_writer import stream_writer
        from kafka_async.spark.sink.writer import check_columns

        note_use()
        options = sink_options(self.options)
        check_columns(schema, options)
        if options.write_id is not None:
            raise InvalidConfigurationError(
                "writeId is an option of batch writes: a streaming query is known by its checkpoint"
            )
        if options.exactly_once:
            from kafka_async.spark.sink.exactly_once import exactly_once_stream_writer

            return exactly_once_stream_writer(options, schema)
        return stream_writer(options, schema)
