"""A Spark data source for Kafka in Python and Arrow: `spark.read.format("kafka_async")`.

The classes can be imported without pyspark; using one then raises an error that says what to
install. Spark finds the source through the top-level module `pyspark_kafka_async`.
"""

from __future__ import annotations

from kafka_async.spark.source import KafkaDataSource as KafkaDataSource

__all__ = ["KafkaDataSource"]
