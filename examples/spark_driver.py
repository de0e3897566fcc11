"""An asyncio driver that runs a Spark job whenever enough new records have arrived.

    python examples/spark_driver.py localhost:9092 clicks

Several drivers may run: one is active, and another continues when it ends. Each job reads exactly
its range of offsets, and the ledger of the orchestrator records it: no range is counted twice.
The program ends with one line and status 1 if no job has succeeded within 5 minutes, and within a
minute, before Spark starts, if no broker answers.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from kafka_async import Client, run
from kafka_async.errors import KafkaError
from kafka_async.spark import Orchestrator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_async.spark.orchestrator import JobContext

MAX_SECONDS = 300.0
"""Maximum time to connect, to start Spark, to wait for records and to run the job."""


class DriverError(Exception):
    """No job has succeeded."""


def count_values(context: JobContext) -> int:
    """Run a Spark job that counts the distinct values in a range of offsets."""
    rows = context.spark.read.format("kafka_async").options(**context.read_options()).load()
    return rows.select("value").distinct().count()


async def drive(
    spark: SparkSession | None, servers: str | Client, topic: str, *, batch: int, jobs: int
) -> list[object]:
    """Run `jobs` jobs, each as soon as there are `batch` new records, and return their counts."""
    counts: list[object] = []
    orchestrator = Orchestrator(servers, spark, name=f"count-{topic}")
    orchestrator.job(count_values, "count_values")
    orchestrator.trigger("count_values", topic, rows=batch)
    async with orchestrator:
        async for event in orchestrator.events():
            if event.kind == "job_failed":
                raise DriverError(event.details["error"])
            if event.kind == "job_succeeded":
                counts.append(event.details["value"])
                print(f"job {len(counts)}: {counts[-1]} distinct values")
            if len(counts) == jobs:
                break
    return counts


def start_spark() -> SparkSession:
    """Start Spark in this process."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("spark_driver")
    builder = builder.config("spark.sql.shuffle.partitions", "2")  # 200 is for large clusters
    return builder.getOrCreate()


async def main(client: Client, topic: str) -> None:
    """Run one job on the records that exist now."""
    # A driver waits for brokers and records as long as it runs; this one is to run one job.
    limit = asyncio.timeout(MAX_SECONDS)
    try:
        async with limit, client:  # Without a cluster it fails here, before Spark starts.
            spark = await asyncio.to_thread(start_spark)
            try:
                await drive(spark, client, topic, batch=1, jobs=1)
            finally:
                await asyncio.to_thread(spark.stop)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise DriverError(
            f"no job has succeeded within {MAX_SECONDS:g} s: "
            f"topic {topic} has no new records, or another driver is active"
        ) from error


if __name__ == "__main__":
    try:
        run(main(Client(sys.argv[1]), sys.argv[2]))
    except (KafkaError, DriverError) as error:
        sys.exit(f"spark_driver: {error}")
