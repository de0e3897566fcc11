"""The driver's side of the exactly-once sink on a cluster, without Spark."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async import Admin, NewTopic, Producer
from kafka_async.config import ProducerConfig
from kafka_async.errors import (
    InvalidConfigurationError,
    ProducerFencedError,
    TornEpochError,
    TransactionAbortableError,
)
from kafka_async.spark.sink.ledger import RepairAction, decide, transactional_id
from kafka_async.spark.sink.sink_cluster import KafkaSinkCluster, open_cluster
from kafka_async.spark.sink.sink_driver import LedgerLockLostError, Plan, SinkDriver
from tests.integration.helpers import create_topic, read_values

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async import PreparedTransaction
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]

QUERY = "q"


class Sink:
    """One sink of a test, with a topic, and drivers that share nothing but the cluster."""

    def __init__(self, cluster: ClusterHandle, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.id = f"sink-{uuid.uuid4().hex[:8]}"
        self.timeout_ms = 60_000

    @asynccontextmanager
    async def requests(self) -> AsyncGenerator[KafkaSinkCluster]:
        config = ProducerConfig(self.cluster.bootstrap_servers)
        async with open_cluster(config, self.id, self.cluster.topic("ledger")) as requests:
            yield requests

    @asynccontextmanager
    async def driver(self) -> AsyncGenerator[SinkDriver]:
        async with self.requests() as requests:
            await requests.check(self.timeout_ms)
            now = asyncio.get_running_loop().time
            yield SinkDriver(requests, self.id, self.timeout_ms / 1000, now)

    async def write(
        self, plan: Plan, value: bytes, partition: int = 0, attempt: int = 0
    ) -> PreparedTransaction:
        async with Producer(
            self.cluster.bootstrap_servers,
            transactional_id=transactional_id(self.id, plan.number, partition, attempt),
            transaction_timeout_ms=self.timeout_ms,
        ) as producer:
            txn = await producer.begin()
            await txn.enqueue(self.topic, value)
            prepared = await txn.prepare()
        assert prepared is not None
        return prepared

    async def values(self) -> list[bytes]:
        return sorted(value or b"" for value in await read_values(self.cluster, self.topic))

    async def open_transactions(self) -> set[str]:
        async with Admin(self.cluster.bootstrap_servers) as admin:
            return set(await admin.list_transactions(states=["Ongoing"], pattern=f"{self.id}:.*"))

    async def until_closed(self, *transactions: PreparedTransaction) -> None:
        """Wait for the time-out of transactions."""
        names = {each.transactional_id for each in transactions}
        async with asyncio.timeout(60):
            while names & await self.open_transactions():  # noqa: ASYNC110  # There is no event.
                await asyncio.sleep(0.1)


@pytest_asyncio.fixture
async def sink(kafka_cluster: ClusterHandle) -> Sink:
    return Sink(kafka_cluster, await create_topic(kafka_cluster, "output"))


async def test_commits_an_epoch_and_aborts_attempts_that_lost(sink: Sink) -> None:
    async with sink.driver() as driver:
        plan = await driver.plan("a")
        winner = await sink.write(plan, b"winner")
        await sink.write(plan, b"loser", attempt=1)
        other = await sink.write(plan, b"other", partition=1)
    async with sink.driver() as driver:  # Another process commits.
        for _ in range(2):
            await driver.commit(plan, QUERY, 0, {0: winner, 1: other})
    assert await sink.open_transactions() == set()
    assert await sink.values() == [b"other", b"winner"]
    async with sink.driver() as driver:
        assert (await driver.plan("a")).committed == {QUERY: 0}


async def test_a_plan_aborts_what_an_earlier_job_has_left(sink: Sink) -> None:
    async with sink.driver() as driver:
        plan = await driver.plan("a")
        left = await sink.write(plan, b"left")
        assert await sink.open_transactions() == {left.transactional_id}
        await driver.plan("a")
        assert await sink.open_transactions() == set()
        with pytest.raises(ProducerFencedError):
            await driver.commit(plan, QUERY, 0, {0: left})
    assert await sink.values() == []


async def test_a_failed_job_leaves_no_transaction_open(sink: Sink) -> None:
    async with sink.driver() as driver:
        plan = await driver.plan("a")
        left = await sink.write(plan, b"left")
        await driver.give_up(None, "a")
        assert await sink.open_transactions() == set()
        with pytest.raises(TransactionAbortableError, match="given up"):
            await driver.commit(plan, QUERY, 0, {0: left})


async def test_a_plan_commits_what_was_decided(sink: Sink) -> None:
    async with sink.requests() as requests:
        await requests.check(sink.timeout_ms)
        driver = SinkDriver(requests, sink.id, 60, asyncio.get_running_loop().time)
        plan = await driver.plan("a")
        done = {number: await sink.write(plan, b"%d" % number, number) for number in range(3)}
        await decide_only(requests, sink, plan, done)
        await requests.commit(done[0])  # The driver is killed here.
    async with sink.driver() as driver:
        assert (await driver.plan("b")).committed == {QUERY: 0}
    assert await sink.values() == [b"0", b"1", b"2"]


async def decide_only(
    requests: KafkaSinkCluster, sink: Sink, plan: Plan, done: dict[int, PreparedTransaction]
) -> None:
    """Write the decision as `SinkDriver.commit` does, and stop there."""
    await requests.lock()
    head = (await requests.read()).head
    assert head.plan == plan.number
    await requests.write(decide(sink.id, head, QUERY, 0, done))


@pytest.mark.parametrize("action", RepairAction)
async def test_a_torn_epoch_raises_until_it_is_repaired(sink: Sink, action: RepairAction) -> None:
    async with sink.requests() as requests:
        await requests.check(sink.timeout_ms)
        driver = SinkDriver(requests, sink.id, 60, asyncio.get_running_loop().time)
        plan = await driver.plan("a")
        sink.timeout_ms = 2_000
        done = {1: await sink.write(plan, b"expires", 1)}
        sink.timeout_ms = 60_000
        done[0] = await sink.write(plan, b"stays", 0)
        await decide_only(requests, sink, plan, done)
        await sink.until_closed(done[1])
        for _ in range(2):
            with pytest.raises(TornEpochError) as raised:
                await driver.plan("a")
            assert raised.value.partitions == {0: "committed", 1: "aborted"}
            assert set(raised.value.offsets) == {0, 1}
        await driver.repair(action)
        plan = await driver.plan("a")
        written = [number for number in (0, 1) if not plan.writes_nothing(QUERY, 0, number)]
    assert (
        written
        == {
            RepairAction.RESUME: [1],
            RepairAction.SKIP: [],
            RepairAction.REPEAT: [0, 1],
        }[action]
    )
    assert await sink.values() == [b"stays"]


async def test_an_expired_epoch_can_be_repeated(sink: Sink) -> None:
    async with sink.requests() as requests:
        await requests.check(sink.timeout_ms)
        driver = SinkDriver(requests, sink.id, 60, asyncio.get_running_loop().time)
        plan = await driver.plan("a")
        sink.timeout_ms = 1_000
        done = {0: await sink.write(plan, b"expires")}
        await decide_only(requests, sink, plan, done)
        await sink.until_closed(done[0])
        assert (await driver.plan("a")).committed == {}
        plan = await driver.plan("a")
        sink.timeout_ms = 1_000
        done = {0: await sink.write(plan, b"expires")}
        await sink.until_closed(done[0])
        with pytest.raises(TransactionAbortableError, match="have timed out or were fenced"):
            await driver.commit(plan, QUERY, 0, done)
    assert await sink.values() == []


@pytest.mark.parametrize("committed", [True, False])
async def test_reads_the_outcome_from_the_log_when_the_id_was_used_again(
    sink: Sink, committed: bool
) -> None:
    async with sink.requests() as requests:
        await requests.check(sink.timeout_ms)
        driver = SinkDriver(requests, sink.id, 60, asyncio.get_running_loop().time)
        plan = await driver.plan("a")
        await sink.write(plan, b"aborted before")
        await requests.fence([transactional_id(sink.id, plan.number, 0, 0)])
        done = await sink.write(plan, b"v")
        if committed:
            await requests.commit(done)
        await requests.fence([done.transactional_id])
        after = await sink.write(plan, b"aborted after")
        await requests.fence([after.transactional_id])
        outcome = await requests.commit(done)
    assert outcome.value == ("committed" if committed else "aborted")
    assert await sink.values() == [b"v"] * committed


async def test_a_lock_ends_the_writes_of_the_driver_before(sink: Sink) -> None:
    async with sink.requests() as first, sink.requests() as second:
        await first.check(sink.timeout_ms)
        await first.lock()
        await second.lock()
        with pytest.raises(LedgerLockLostError):
            await first.write([(b'["x"]', b"{}")])
        await second.write([(b'["x"]', b"{}")])
        assert (await second.read()).head.plan == 0


async def test_finds_the_head_behind_the_records_of_other_sinks(sink: Sink) -> None:
    async with sink.driver() as driver:
        plan = await driver.plan("a")
        await driver.commit(plan, QUERY, 0, {0: await sink.write(plan, b"v")})
    async with sink.requests() as other:
        await other.lock()
        await other.write([(b'["other",%d]' % number, b"{}") for number in range(1_000)])
    async with sink.driver() as driver:
        assert (await driver.plan("a")).committed == {QUERY: 0}


async def test_a_time_out_above_the_brokers_maximum_is_refused(sink: Sink) -> None:
    sink.timeout_ms = 900_001
    with pytest.raises(InvalidConfigurationError, match=r"transaction\.max\.timeout\.ms"):
        async with sink.driver():
            pass


async def test_a_time_out_below_twice_the_batch_is_refused(sink: Sink) -> None:
    async with sink.driver() as driver:
        plan = await driver.plan("a")
        done = {0: await sink.write(plan, b"v")}
        late = replace(plan, planned_at=plan.planned_at - 30.1)
        with pytest.raises(InvalidConfigurationError, match=r"transactionTimeoutMs=60000 must be"):
            await driver.commit(late, QUERY, 0, done)
        assert (await driver.plan("a")).committed == {}
    assert await sink.values() == []


async def test_a_ledger_that_forgets_is_refused(sink: Sink) -> None:
    async with Admin(sink.cluster.bootstrap_servers) as admin:
        topic = NewTopic(
            sink.cluster.topic("ledger"), 1, configs={"cleanup.policy": "compact,delete"}
        )
        await admin.create_topics([topic])
    with pytest.raises(InvalidConfigurationError, match=r"cleanup\.policy=compact"):
        async with sink.driver():
            pass
