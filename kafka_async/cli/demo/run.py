"""Runs the stages of the demo in order.

At the end, even after an error or a signal, the demo stops its child processes and deletes its
topics and its group from a shared cluster.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from kafka_async import Producer
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.demo import aggregate, spark, words
from kafka_async.cli.demo.cluster import embedded_cluster
from kafka_async.cli.demo.resources import COUNTS, LINES, TOTALS, Resources
from kafka_async.cli.demo.result import Result, Stage
from kafka_async.cli.demo.word_count import WordCount
from kafka_async.config import ProducerConfig
from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager

    from kafka_async.cli.demo.report import Report
    from kafka_async.cli.demo.result import DemoOptions

BROKERS = 3


class Demo:
    """Runs the demo once and collects its result."""

    def __init__(self, plan: DemoOptions, report: Report) -> None:
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
        missing = "--no-spark"
        if self._plan.with_spark:
            missing = await asyncio.to_thread(spark.missing_requirement)
        self.result.spark = "run" if missing is None else f"left out: {missing}"
        if self._plan.bootstrap is not None:
            await self._run_stages(self._plan.connection)
            return self.result
        self._report.start_stage(f"start {BROKERS} embedded brokers", None)
        async with AsyncExitStack() as stack:
            with self.result.timed(f"start {BROKERS} embedded brokers"):
                cluster = await stack.enter_async_context(embedded_cluster(BROKERS))
            own = ConnectionOptions(
                {"bootstrap_servers": cluster.servers}, self._plan.connection.timeout
            )
            await cluster.run(self._run_stages(own))
        return self.result

    async def _run_stages(self, connection: ConnectionOptions) -> None:
        result, plan = self.result, self._plan
        group = f"word-count-{result.run_id}"
        resources = Resources(connection, result.topics, group)
        keep = plan.keep or plan.bootstrap is None
        async with (
            resources.created(keep=keep, show=self._report.show),
            self._spark_process(resources) as process,
        ):
            if process is None:
                self._report.show(f"Spark is {result.spark}")
            with self._stage("produce lines", len(self._lines)):
                await self._produce(resources)
            await self._count(resources)
            await self._total(resources, process)
            with self._stage("read word-totals") as stage:
                result.counts, stage.records = await aggregate.read_totals(resources)
            with self._stage("check against a plain count"):
                plain = words.count_words(self._lines)
                result.comparison = words.compare(plain, result.counts)

    def _stage(self, name: str, records: int = 0) -> AbstractContextManager[Stage]:
        self._report.start_stage(name, records or None)
        return self.result.timed(name, records)

    @asynccontextmanager
    async def _spark_process(
        self, resources: Resources
    ) -> AsyncGenerator[spark.SparkProcess | None]:
        """Start the Spark stream, and stop it at the end of the block; yield None without Spark."""
        if self.result.spark != "run":
            yield None
            return
        job = spark.SparkJob(
            name=f"word-totals-{self.result.run_id}",
            counts_topic=resources.topics[COUNTS],
            totals_topic=resources.topics[TOTALS],
            ledger_topic=resources.ledger_topic,
            out=str((self._plan.out / self.result.run_id).absolute()),
        )
        async with spark.SparkProcess(job, resources.connection, self._report.show) as process:
            await process.start()
            yield process

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

    async def _count(self, resources: Resources) -> None:
        rng = random.Random(self._plan.seed)
        word_count = WordCount(resources, len(self._lines), self._report, rng)
        with self._stage("count words in transactions", len(self._lines)):
            state = await word_count.run()
        with self._stage("wait for the killed worker's transaction"):
            aborted_by_coordinator = await word_count.wait_for_open_transactions(state)
        self.result.aborted_transactions = state.aborted + aborted_by_coordinator
        self.result.killed_workers = state.killed
        self.result.rebalances = state.generation

    async def _total(self, resources: Resources, process: spark.SparkProcess | None) -> None:
        """Write the total of each word with Spark, or with this project's consumer and producer."""
        if process is not None:
            with self._stage("finish the stream in Spark") as stage:
                last = await process.finish()
                stage.records, self.result.batches = last.rows, last.batches
            self.result.written_files.append(process.pipeline)
            return
        with self._stage("sum word-counts") as stage:
            totals, stage.records = await aggregate.sum_counts(resources)
        with self._stage("write word-totals", len(totals)):
            await aggregate.write_totals(resources, totals)
