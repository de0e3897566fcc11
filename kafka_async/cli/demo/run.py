"""Runs the stages of the demo in order.

At the end, also after an error or a signal, child processes are stopped, and topics and group are
deleted from a cluster that the demo has not started.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kafka_async import Producer
from kafka_async.cli.connection import Connection
from kafka_async.cli.demo import aggregate, spark, words
from kafka_async.cli.demo.cluster import embedded_cluster
from kafka_async.cli.demo.resources import COUNTS, LINES, TOP, Resources
from kafka_async.cli.demo.result import Result, Stage
from kafka_async.cli.demo.word_count import WordCount
from kafka_async.config import ProducerConfig
from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from collections import Counter
    from contextlib import AbstractContextManager

    from kafka_async.cli.demo.report import Report
    from kafka_async.cli.demo.result import Plan

BROKERS = 3


class Demo:
    """Runs the demo once and collects its result."""

    def __init__(self, plan: Plan, report: Report) -> None:
        self._plan = plan
        self._report = report
        self._lines = words.read_lines(plan.files)
        if not self._lines:
            raise KafkaError("the text is empty: name files that hold words")
        run_id = secrets.token_hex(4)
        self.result = Result(
            run_id,
            plan.seed,
            backend=plan.bootstrap or "embedded",
            topics=Resources.topic_names(run_id, shared_cluster=plan.bootstrap is not None),
            lines=len(self._lines),
        )

    async def run(self) -> Result:
        """Run all stages; raise KafkaError if one fails."""
        if self._plan.bootstrap is not None:
            await self._run_stages(self._plan.connection)
            return self.result
        self._report.start_stage(f"start {BROKERS} embedded brokers", None)
        async with AsyncExitStack() as stack:
            with self.result.timed(f"start {BROKERS} embedded brokers"):
                cluster = await stack.enter_async_context(embedded_cluster(BROKERS))
            own = Connection({"bootstrap_servers": cluster.servers}, self._plan.connection.timeout)
            await cluster.run(self._run_stages(own))
        return self.result

    async def _run_stages(self, connection: Connection) -> None:
        result, plan = self.result, self._plan
        group = f"word-count-{result.run_id}"
        resources = Resources(connection, result.topics, group)
        keep = plan.keep or plan.bootstrap is None
        async with (
            resources.created(keep=keep, show=self._report.show),
            self._spark_process(resources) as process,
        ):
            with self._stage("produce lines", len(self._lines)):
                await self._produce(resources)
            await self._count(resources, process)
            counts = await self._aggregate(resources, process)
            with self._stage("check against a plain count"):
                result.comparison = words.compare(words.count_words(self._lines), counts)
                result.counts = counts

    def _stage(self, name: str, records: int = 0) -> AbstractContextManager[Stage]:
        self._report.start_stage(name, records or None)
        return self.result.timed(name, records)

    def _spark_process(self, resources: Resources) -> spark.SparkProcess:
        out = str((self._plan.out / self.result.run_id).absolute())
        counts, top = self.result.topics[COUNTS], self.result.topics[TOP]
        return spark.SparkProcess(spark.SparkJob(counts, top, out), resources.connection)

    async def _produce(self, resources: Resources) -> None:
        topic = resources.topics[LINES]
        config = resources.connection.config(ProducerConfig, client_id="demo-lines")
        async with Producer(config=config) as producer:
            for number, line in enumerate(self._lines):
                await producer.enqueue(topic, line.encode(), key=str(number).encode())
                if number % 100 == 0:
                    self._report.advance(number)
            await producer.flush()
        self._report.advance(len(self._lines))

    async def _count(self, resources: Resources, process: spark.SparkProcess) -> None:
        rng = random.Random(self._plan.seed)
        word_count = WordCount(resources, len(self._lines), self._report, rng)
        starting = asyncio.create_task(self._start_spark(word_count.killed, process))
        try:
            with self._stage("count words in transactions", len(self._lines)):
                state = await word_count.run()
            with self._stage("wait for the killed worker's transaction"):
                aborted_by_coordinator = await word_count.wait_for_open_transactions(state)
        finally:
            starting.cancel()
            await asyncio.wait({starting})
        self.result.aborted_transactions = state.aborted + aborted_by_coordinator
        self.result.killed_workers = state.killed
        self.result.rebalances = state.generation

    async def _start_spark(self, killed: asyncio.Event, process: spark.SparkProcess) -> None:
        """Start Spark while the group waits for the killed worker's session to expire."""
        if self._plan.with_spark and await asyncio.to_thread(spark.missing_requirement) is None:
            await killed.wait()
            await process.start()

    async def _aggregate(self, resources: Resources, process: spark.SparkProcess) -> Counter[str]:
        """Return the word counts as read by Spark or, without Spark, by this project's consumer."""
        missing = "--no-spark"
        if self._plan.with_spark:
            missing = await spark.install_if_missing(self._report, self.result)
        if missing is None:
            return await self._aggregate_in_spark(process)
        self.result.spark = f"left out: {missing}"
        self._report.show(f"Spark is {self.result.spark}")
        with self._stage("read word-counts") as stage:
            counts, stage.records = await aggregate.read_counts(resources)
        with self._stage("write top-words") as stage:
            stage.records = await aggregate.write_top(resources, counts)
        return counts

    async def _aggregate_in_spark(self, process: spark.SparkProcess) -> Counter[str]:
        self._report.start_stage("read, aggregate and write in Spark", None)
        outcome = await process.run(self._report.show)
        for name, seconds in outcome.seconds.items():
            self.result.stages.append(Stage(name, seconds))
        self.result.stages[-2].records = outcome.records
        self.result.written_files.append(process.parquet)
        self.result.spark = "run"
        return outcome.counts
