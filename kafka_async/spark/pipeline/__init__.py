"""Pipelines from Kafka through Spark to Kafka, files or the console, defined in a file."""

from __future__ import annotations

from kafka_async.spark.pipeline.definition import Sink as Sink
from kafka_async.spark.pipeline.definition import Source as Source
from kafka_async.spark.pipeline.definition import Step as Step
from kafka_async.spark.pipeline.definition import Watermark as Watermark
from kafka_async.spark.pipeline.pipeline import Pipeline as Pipeline
from kafka_async.spark.pipeline.status import PipelineStatus as PipelineStatus
from kafka_async.spark.pipeline.status import QueryStatus as QueryStatus

__all__ = ["Pipeline", "PipelineStatus", "QueryStatus", "Sink", "Source", "Step", "Watermark"]
