"""Spark: the data source `spark.read.format("kafka_async")`, and the orchestrator of jobs.

The classes can be imported without pyspark; using the data source then raises an error that
includes the package to install. Spark finds the source through the top-level module
`pyspark_kafka_async`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_async.spark.source import KafkaDataSource as KafkaDataSource

if TYPE_CHECKING:
    from kafka_async.spark.orchestrator import Orchestrator as Orchestrator

__all__ = ["KafkaDataSource", "Orchestrator"]


def __getattr__(name: str) -> Any:
    # Import lazily: Spark's workers import this package for the data source only.
    if name == "Orchestrator":
        from kafka_async.spark.orchestrator import Orchestrator

        return Orchestrator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
