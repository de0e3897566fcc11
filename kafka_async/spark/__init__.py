"""Kafka as a Spark data source, in Python and Arrow: `spark.read.format("kafka_async")`.

The classes can be imported without pyspark; using one without it says what to install. Spark finds
the source by itself through the top-level module `pyspark_kafka_async`.
"""

from __future__ import annotations

from kafka_async.spark.source import KafkaDataSource as KafkaDataSource

__all__ = ["KafkaDataSource"]
