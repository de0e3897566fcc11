"""The orchestrator: runs jobs on ranges of offsets from an asyncio program, each range once.

    async with Orchestrator("localhost:9092", spark, name="clicks") as orchestrator:
        result = await orchestrator.run(count_clicks, ranges=ranges)

`job_ledger.py` describes the protocol. pyspark is needed only for jobs that use Spark.
"""

from __future__ import annotations

from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator.context import JobContext, JobResult
from kafka_async.spark.orchestrator.errors import (
    DriverFencedError,
    JobCancelledError,
    JobFailedError,
    JobTimeoutError,
    PoisonRecordError,
    RetryPolicy,
)
from kafka_async.spark.orchestrator.events import EventStream, OrchestratorEvent
from kafka_async.spark.orchestrator.orchestrator import Orchestrator
from kafka_async.spark.orchestrator.ranges import ranges_to_json
from kafka_async.spark.orchestrator.triggers import Trigger

__all__ = [
    "DriverFencedError",
    "EventStream",
    "JobCancelledError",
    "JobContext",
    "JobFailedError",
    "JobResult",
    "JobTimeoutError",
    "OffsetRange",
    "Orchestrator",
    "OrchestratorEvent",
    "PoisonRecordError",
    "RetryPolicy",
    "Trigger",
    "ranges_to_json",
]
