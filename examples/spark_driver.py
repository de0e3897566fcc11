"""An asyncio driver that runs a Spark job whenever enough new records have arrived.

    python examples/spark_driver.py localhost:9092 clicks

The driver's event loop never blocks: Spark's actions wait in a thread. The driver chooses the
offsets of each job, which reads exactly that range.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from kafka_async import Consumer, TopicPartition, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Offsets = dict[TopicPartition, int]


def as_json(offsets: Offsets) -> str:
    """Return offsets in the form of the data source's options."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)


def count_values(spark: SparkSession, bootstrap: str, start: Offsets, end: Offsets) -> int:
    """Run a Spark job that counts the distinct values in a range of offsets."""
    rows = (
        spark.read.format("kafka_async")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("assign", json.dumps(_assignment(start)))
        .option("startingOffsets", as_json(start))
        .option("endingOffsets", as_json(end))
        .load()
    )
    return rows.select("value").distinct().count()


def _assignment(offsets: Offsets) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in offsets:
        topics.setdefault(topic, []).append(partition)
    return topics


async def drive(
    spark: SparkSession, bootstrap: str, topic: str, *, batch: int, jobs: int
) -> list[int]:
    """Run `jobs` jobs, each as soon as there are `batch` new records, and return their counts."""
    counts: list[int] = []
    async with Consumer(bootstrap, partitions=()) as consumer:
        partitions = [TopicPartition(topic, p) for p in await consumer.partitions_for(topic)]
        start = await consumer.beginning_offsets(partitions)
        while len(counts) < jobs:
            end = await consumer.end_offsets(partitions)
            if sum(end.values()) - sum(start.values()) < batch:
                await asyncio.sleep(0.5)
                continue
            counts.append(await asyncio.to_thread(count_values, spark, bootstrap, start, end))
            print(f"job {len(counts)}: {counts[-1]} distinct values up to {as_json(end)}")
            start = end
    return counts


async def main(bootstrap: str, topic: str) -> None:
    """Run one job on the records that exist now."""
    from pyspark.sql import SparkSession

    spark = await asyncio.to_thread(
        SparkSession.builder.master("local[2]").appName("spark_driver").getOrCreate
    )
    try:
        await drive(spark, bootstrap, topic, batch=1, jobs=1)
    finally:
        await asyncio.to_thread(spark.stop)


if __name__ == "__main__":
    run(main(*sys.argv[1:3]))
