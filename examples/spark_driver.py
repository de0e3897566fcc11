"""An asyncio driver that runs a Spark job whenever enough new records have arrived.

    python examples/spark_driver.py localhost:9092 clicks

Several drivers may run: one is active, and another continues when it ends. Each job reads exactly
its range of offsets, and the ledger of the orchestrator records it: no range is counted twice.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from kafka_async import run
from kafka_async.spark import Orchestrator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_async.spark.orchestrator import JobContext

MAX_SECONDS = 300.0
"""Maximum time to wait for records and to run the job."""


def count_values(context: JobContext) -> int:
    """Run a Spark job that counts the distinct values in a range of offsets."""
    rows = context.spark.read.format("kafka_async").options(**context.read_options()).load()
    return rows.select("value").distinct().count()


async def drive(
    spark: SparkSession | None, bootstrap: str, topic: str, *, batch: int, jobs: int
) -> list[object]:
    """Run `jobs` jobs, each as soon as there are `batch` new records, and return their counts."""
    counts: list[object] = []
    orchestrator = Orchestrator(bootstrap, spark, name=f"count-{topic}")
    orchestrator.job(count_values, "count_values")
    orchestrator.trigger("count_values", topic, rows=batch)
    async with orchestrator:
        async for event in orchestrator.events():
            if event.kind == "job_failed":
                raise RuntimeError(event.details["error"])
            if event.kind == "job_succeeded":
                counts.append(event.details["value"])
                print(f"job {len(counts)}: {counts[-1]} distinct values")
            if len(counts) == jobs:
                break
    return counts


async def main(bootstrap: str, topic: str) -> None:
    """Run one job on the records that exist now."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("spark_driver")
    builder = builder.config("spark.sql.shuffle.partitions", "2")  # 200 is for large clusters
    spark = await asyncio.to_thread(builder.getOrCreate)
    try:
        # A driver waits for brokers and records as long as it runs; this one is to run one job.
        async with asyncio.timeout(MAX_SECONDS):
            await drive(spark, bootstrap, topic, batch=1, jobs=1)
    finally:
        await asyncio.to_thread(spark.stop)


if __name__ == "__main__":
    run(main(*sys.argv[1:3]))
