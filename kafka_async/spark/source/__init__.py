"""The source: reads topics in batch and streaming queries.

`data_source.py` is where Spark enters, for the sink too.
"""

from __future__ import annotations

from kafka_async.spark.source.data_source import KafkaDataSource

__all__ = ["KafkaDataSource"]
