"""Reads and writes topics through Spark Connect, with a local server, also in an orchestrator.

python -m tests.integration.spark_connect_program reads a `Task` as JSON from each line of the
standard input, and prints what it did as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kafka_async.spark.orchestrator import JobContext, Orchestrator
from tests.spark_versions import spark_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = 500
MAX_STARTS = 10


@dataclass(frozen=True)
class Task:
    """Topics to read and write.

    Attributes:
        servers: Addresses without TLS.
        secure: Options of a listener with TLS and SASL.
        topic: Topic to write and to read.
        copy: Topic to which a stream copies it.
        batches: Topic to which the function of a `foreachBatch` copies it.
        directory: Directory of the checkpoints.
    """

    servers: str
    secure: dict[str, str]
    topic: str
    copy: str
    batches: str
    directory: str


def main() -> None:
    from pyspark.sql import SparkSession

    builder: Any = cast("Any", SparkSession).builder
    if spark_version() < (4, 1):  # docs/spark.md, "Spark Connect"
        builder = builder.config("spark.python.worker.reuse", "false")
    spark = builder.remote("local[2]").getOrCreate()
    try:
        for line in sys.stdin:
            sys.stdout.write(f"{json.dumps(done(spark, Task(**json.loads(line))))}\n")
            sys.stdout.flush()
    finally:
        spark.stop()


def done(spark: SparkSession, task: Task) -> dict[str, object]:
    """Write a topic, read it on both listeners and in a job, and copy it with two streams."""
    cluster = {"kafka.bootstrap.servers": task.servers}
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("kafka_async").options(**cluster).option("topic", task.topic)
    writer.mode("append").save()

    read = spark.read.format("kafka_async").options(**task.secure, subscribe=task.topic).load()
    stream = spark.readStream.format("kafka_async").options(**cluster)
    lines = stream.option("subscribe", task.topic).option("startingOffsets", "earliest").load()
    places = lines.selectExpr("CONCAT(partition, ':', offset) AS value")
    sink = {**cluster, "topic": task.copy, "exactlyOnce": "true", "sinkId": task.copy}
    copying = places.writeStream.format("kafka_async").options(**sink)
    batches = places.writeStream.foreachBatch(written_in_batches(task))
    job = asyncio.run(job_of_a_topic(spark, task))
    queries = [
        started(writer.option("checkpointLocation", f"{task.directory}/{name}"))
        for name, writer in (("batches", batches), ("copy", copying))
    ]
    for query in queries:
        query.awaitTermination()
    return {
        "session": type(spark).__module__,
        "rows": read.count(),
        "job": job,
        "failures": [str(query.exception()) for query in queries],
    }


async def job_of_a_topic(spark: SparkSession, task: Task) -> list[object]:
    """Return what a job of an orchestrator has read of the topic, and an event of a query."""

    def count(context: JobContext) -> int:
        reader = context.spark.read.format("kafka_async").options(**context.read_options())
        return reader.load().count()

    async with Orchestrator(task.servers, spark, name=f"{task.topic}-jobs") as orchestrator:
        (ranges,) = await orchestrator.plan(task.topic, by="rows", size=ROWS)
        result = await orchestrator.run(count, ranges=ranges)
        events = orchestrator.events()
        rates = spark.readStream.format("rate").load().writeStream.format("noop")
        rates = rates.option("checkpointLocation", f"{task.directory}/rates")
        query = await asyncio.to_thread(rates.start)
        await asyncio.to_thread(query.stop)
        async for event in events:
            if event.kind == "query_terminated":
                return [result.value, event.details["id"] == str(query.id)]
    raise AssertionError("the events have ended")


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query, again if the server's process for a `foreachBatch` was slow.

    Spark waits for 10 s until that process has imported pyspark, and has no option for it.
    """
    from pyspark.errors import PySparkException

    for _ in range(MAX_STARTS):
        try:
            return writer.trigger(availableNow=True).start()
        except PySparkException as error:
            if "Timed out while waiting for the Python worker" not in str(error):
                raise
    raise TimeoutError(f"{MAX_STARTS} processes for a foreachBatch did not start")


def written_in_batches(task: Task) -> Callable[[DataFrame, int], None]:
    """Return the function of a `foreachBatch`, which Spark runs on the server."""
    sink = {**task.secure, "topic": task.batches, "exactlyOnce": "true", "sinkId": task.batches}

    def write(rows: DataFrame, number: int) -> None:
        writer = rows.write.format("kafka_async").options(**sink)
        for _ in range(2):  # The second write has the id of the first, so it writes nothing.
            writer.option("writeId", f"batch-{number}").mode("append").save()

    return write


if __name__ == "__main__":
    main()
