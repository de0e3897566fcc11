"""The stages of the demo, in order, and what they measured.

Everything is undone at the end, in whatever way the end comes: processes are ended, topics and the
group are deleted on a cluster that is not ours.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kafka_async import Producer
from kafka_async.cli.demo import aggregate, spark, text
from kafka_async.cli.demo.cluster import embedded_cluster
from kafka_async.cli.demo.counting import Counting
from kafka_async.cli.demo.resources import COUNTS, LINES, TOP, Resources
from kafka_async.cli.demo.result import Result, Stage
from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from collections import Counter
    from contextlib import AbstractContextManager

    from kafka_async.cli.demo.result import Plan, Teller

BROKERS = 3


class Demo:
    """One run. `result` fills as it goes on."""

    def __init__(self, plan: Plan, teller: Teller) -> None:
        self._plan = plan
        self._teller = teller
        self._lines = text.load(plan.files)
        if not self._lines:
            raise KafkaError("the text is empty: name files that hold words")
        run_id = secrets.token_hex(4)
        self.result = Result(
            run_id,
            plan.seed,
            backend=plan.bootstrap or "embedded",
            topics=Resources.named(run_id, own_cluster=plan.bootstrap is None),
            lines=len(self._lines),
        )

    async def run(self) -> Result:
        """All stages; raises KafkaError where one cannot be done."""
        servers = self._plan.bootstrap
        if servers is not None:
            await self._stages(servers)
            return self.result
        self._teller.stage(f"start {BROKERS} embedded brokers", None)
        async with AsyncExitStack() as stack:
            with self.result.timed(f"start {BROKERS} embedded brokers"):
                cluster = await stack.enter_async_context(embedded_cluster(BROKERS))
            await cluster.while_it_runs(self._stages(cluster.servers))
        return self.result

    async def _stages(self, servers: str) -> None:
        result, plan = self.result, self._plan
        group = f"word-count-{result.run_id}"
        where = Resources(servers, result.topics, group, plan.patience)
        keep = plan.keep or plan.bootstrap is None
        async with where.made(keep=keep, say=self._teller.say), self._spark(where) as its:
            with self._stage("produce lines", len(self._lines)):
                await self._produce(where)
            await self._count(where, its)
            found = await self._aggregate(where, its)
            with self._stage("check against a plain count"):
                result.comparison = text.compare(text.count(self._lines), found)
                result.counts = found

    def _stage(self, name: str, records: int = 0) -> AbstractContextManager[Stage]:
        self._teller.stage(name, records or None)
        return self.result.timed(name, records)

    def _spark(self, where: Resources) -> spark.Spark:
        out = str((self._plan.out / self.result.run_id).absolute())
        counts, top = self.result.topics[COUNTS], self.result.topics[TOP]
        return spark.Spark(spark.SparkJob(where.servers, counts, top, out))

    async def _produce(self, where: Resources) -> None:
        async with Producer(where.servers, client_id="demo-lines") as producer:
            for number, line in enumerate(self._lines):
                key = str(number).encode()
                await producer.enqueue(where.topics[LINES], line.encode(), key=key)
                if number % 100 == 0:
                    self._teller.advance(number)
            await producer.flush()
        self._teller.advance(len(self._lines))

    async def _count(self, where: Resources, its: spark.Spark) -> None:
        rng = random.Random(self._plan.seed)
        counting = Counting(where, len(self._lines), self._teller, rng)
        early = asyncio.create_task(self._start_spark_early(counting.killed, its))
        try:
            with self._stage("count words in transactions", len(self._lines)):
                tally = await counting.run()
            with self._stage("wait for the killed worker's transaction"):
                by_coordinator = await counting.settled(tally)
        finally:
            early.cancel()
            await asyncio.wait({early})
        self.result.aborted_transactions = tally.aborted + by_coordinator
        self.result.killed_workers = tally.killed
        self.result.rebalances = tally.generation

    async def _start_spark_early(self, killed: asyncio.Event, its: spark.Spark) -> None:
        """While the group waits for the killed worker's session to end, Spark can start."""
        if self._plan.with_spark and await asyncio.to_thread(spark.lacking) is None:
            await killed.wait()
            await its.start()

    async def _aggregate(self, where: Resources, its: spark.Spark) -> Counter[str]:
        """Word counts, as Spark read them or, without Spark, as our own consumer does."""
        lacking = "--no-spark"
        if self._plan.with_spark:
            lacking = await spark.make_ready(self._teller, self.result)
        if lacking is None:
            return await self._in_spark(its)
        self.result.spark = f"left out: {lacking}"
        self._teller.say(f"Spark is {self.result.spark}")
        with self._stage("read word-counts") as stage:
            found, stage.records = await aggregate.read_counts(where)
        with self._stage("write top-words") as stage:
            stage.records = await aggregate.write_top(where, found)
        return found

    async def _in_spark(self, its: spark.Spark) -> Counter[str]:
        self._teller.stage("read, aggregate and write in Spark", None)
        outcome = await its.run(self._teller.say)
        for name, seconds in outcome.seconds.items():
            self.result.stages.append(Stage(name, seconds))
        self.result.stages[-2].records = outcome.records
        self.result.wrote.append(its.parquet)
        self.result.spark = "run"
        return outcome.counts
