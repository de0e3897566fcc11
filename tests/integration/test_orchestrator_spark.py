"""The orchestrator with Spark: ranges, tags, pools, interruption, poison records, query events."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Producer
from kafka_async.spark.orchestrator import (
    JobCancelledError,
    JobContext,
    JobFailedError,
    JobTimeoutError,
    OffsetRange,
    Orchestrator,
    OrchestratorEvent,
)
from tests.integration.helpers import SPARKS_SIDE, create_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [
    pytest.mark.spark,
    pytest.mark.mainly_on("embedded", reason=SPARKS_SIDE),
    pytest.mark.asyncio,
    pytest.mark.may_block(reason="Spark starts in this process"),
]


async def source_with(cluster: ClusterHandle, count: int) -> str:
    topic = await create_topic(cluster, "source", 2)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.enqueue(topic, b"%d" % number, partition=number % 2)
    return topic


def orchestrator_of(
    cluster: ClusterHandle, spark: SparkSession, events_topic: str | None = None
) -> Orchestrator:
    return Orchestrator(
        cluster.bootstrap_servers,
        spark,
        name=cluster.group("spark"),
        control_topic=cluster.topic("control"),
        ledger_topic=cluster.topic("ledger"),
        dead_letter_topic=cluster.topic("dead_letter"),
        events_topic=events_topic,
    )


def rows_of(context: JobContext) -> DataFrame:
    return context.spark.read.format("kafka_async").options(**context.read_options()).load()


async def test_jobs_read_exactly_their_ranges(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = await source_with(kafka_cluster, 100)

    def numbers(context: JobContext) -> list[int]:
        return sorted(int(row["value"]) for row in rows_of(context).select("value").collect())

    async with orchestrator_of(kafka_cluster, spark) as orchestrator:
        plans = await orchestrator.plan(topic, size=40)
        results = await asyncio.gather(*(orchestrator.run(numbers, ranges=p) for p in plans))
    found: list[Any] = [result.value for result in results]
    assert [len(one) for one in found] == [40, 40, 20]
    assert sorted(number for one in found for number in one) == list(range(100))


def endless(spark: SparkSession) -> int:
    """Run a Spark job that does not end by itself."""
    from pyspark.sql import functions as f

    rows = spark.range(0, 1 << 60, 1, 2)
    return rows.agg(f.max(f.hash("id"))).collect()[0][0]


async def until_spark_runs(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(tracker.getActiveJobsIds):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until_spark_is_idle(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    async with asyncio.timeout(60):
        while await asyncio.to_thread(tracker.getActiveJobsIds):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
async def test_cancellation_interrupts_only_the_tagged_job(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = await source_with(kafka_cluster, 2)
    calls: list[str] = []

    def job(context: JobContext) -> int:
        calls.append(context.job_id)
        try:
            return endless(context.spark)
        finally:
            calls.remove(context.job_id)

    def quick(context: JobContext) -> int:
        return rows_of(context).count()

    ranges = [OffsetRange(topic, 0, 0, 1)]
    async with orchestrator_of(kafka_cluster, spark) as orchestrator:
        running = asyncio.create_task(orchestrator.run(job, ranges=ranges, tag="nightly"))
        await until_spark_runs(spark)
        other = asyncio.create_task(orchestrator.run(quick, ranges=ranges))
        assert len(await orchestrator.cancel("nightly")) == 1
        assert calls == [], "cancel has joined the thread"
        with pytest.raises(JobCancelledError):
            await running
        assert (await other).value == 1
        await until_spark_is_idle(spark)

        caller = asyncio.create_task(orchestrator.run(job, ranges=ranges))
        await until_spark_runs(spark)
        caller.cancel()
        await asyncio.wait({caller})
        assert caller.cancelled()
        assert calls == []
        with pytest.raises(JobTimeoutError):
            await orchestrator.run(job, ranges=ranges, timeout=1.0)
        assert calls == []
        await until_spark_is_idle(spark)


def scheduler_has(spark: SparkSession, pool: str) -> bool:
    """Return whether Spark's scheduler has run a stage in a pool; only the mode FAIR has pools."""
    context: Any = spark.sparkContext._jsc  # pyright: ignore
    return context.sc().getPoolForName(pool).isDefined()


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
async def test_thread_has_the_pool_and_tags_of_its_job(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    def properties(context: JobContext) -> tuple[Any, list[str]]:
        assert context.spark.range(1).count() == 1
        spark_context = context.spark.sparkContext
        pool = spark_context.getLocalProperty("spark.scheduler.pool")
        return pool, sorted(spark_context.getJobTags())

    async with orchestrator_of(kafka_cluster, spark) as orchestrator:
        pool = kafka_cluster.group("pool")
        assert not scheduler_has(spark, pool)
        first = await orchestrator.run(properties, pool=pool, tag="nightly")
        second = await orchestrator.run(properties)
    assert first.value == (pool, [f"kafka_async-{first.job_id}", "nightly"])
    assert scheduler_has(spark, pool)
    assert second.value == (None, [f"kafka_async-{second.job_id}"])
    assert not set(spark.sparkContext.getJobTags())


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
async def test_bisects_a_failing_stage_to_the_record(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = await source_with(kafka_cluster, 4)

    def parse(context: JobContext) -> int:
        def check(rows: Any) -> Any:
            for row in rows:
                if row["value"] == b"3":
                    raise ValueError("3 cannot be parsed")
                yield row["value"]

        return rows_of(context).rdd.mapPartitions(check).count()

    async with orchestrator_of(kafka_cluster, spark) as orchestrator:
        ranges = [OffsetRange(topic, partition, 0, 2) for partition in range(2)]
        result = await orchestrator.run(parse, ranges=ranges)
    assert result.dead_letters == 1
    assert sum(int(str(value)) for value in result.values) == 3
    (letter,) = await kafka_cluster.read(kafka_cluster.topic("dead_letter"))
    assert letter.value == b"3"


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
async def test_error_of_the_plan_fails_the_job_at_once(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topic = await source_with(kafka_cluster, 4)

    def wrong(context: JobContext) -> int:
        return rows_of(context).select("no_such_column").count()

    async with orchestrator_of(kafka_cluster, spark) as orchestrator:
        with pytest.raises(JobFailedError, match="configuration") as caught:
            await orchestrator.run(wrong, ranges=[OffsetRange(topic, 0, 0, 2)])
    assert "AnalysisException" in str(caught.value)


@pytest.mark.slow
@pytest.mark.one_backend("apache")
async def test_streams_events_of_queries_and_writes_them_to_a_topic(
    kafka_cluster: ClusterHandle, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka_cluster.topic("events")

    def start() -> Any:
        rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        writer = rows.writeStream.format("noop").queryName("rates")
        return writer.option("checkpointLocation", str(tmp_path)).start()

    async with orchestrator_of(kafka_cluster, spark, events_topic=topic) as orchestrator:
        events = orchestrator.events()
        query = await asyncio.to_thread(start)
        received: list[OrchestratorEvent] = []
        async with asyncio.timeout(60):
            async for event in events:
                received.append(event)
                if event.kind == "query_progress" and query.isActive:
                    await asyncio.to_thread(query.stop)
                if event.kind == "query_terminated":
                    break
    received += [event async for event in events]
    of_queries = [event for event in received if event.kind.startswith("query_")]
    kinds = [event.kind for event in of_queries]
    assert (kinds[0], kinds[-1]) == ("query_started", "query_terminated")
    assert "query_progress" in kinds
    assert {event.details["id"] for event in of_queries} == {str(query.id)}
    for event in of_queries:
        if event.kind == "query_progress":
            assert event.details["name"] == "rates"
    assert of_queries[-1].details["exception"] is None

    written = [json.loads(record.value or b"") for record in await kafka_cluster.read(topic)]
    assert written == [json.loads(event.to_json()) for event in received]
    assert len(spark.streams._jsqm.listListeners()) == 0  # pyright: ignore
