"""The command spark-sink: it shows exactly-once sinks, and repairs torn epochs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from kafka_async import Admin, NewTopic, Producer
from kafka_async.config import ProducerConfig
from kafka_async.errors import TornEpochError
from kafka_async.spark.sink.ledger import decide, transactional_id
from kafka_async.spark.sink.sink_cluster import open_cluster
from kafka_async.spark.sink.sink_driver import SinkDriver

if TYPE_CHECKING:
    from kafka_async import PreparedTransaction
    from tests.cli.conftest import Command

LEDGER = "kafka-async-spark-ledger"


async def commit_and_tear(servers: str, sink: str) -> None:
    """Commit epoch 0 of a query, and leave epoch 1 torn."""

    async def write(plan: int, partition: int) -> PreparedTransaction:
        name = transactional_id(sink, plan, partition, 0)
        async with Producer(servers, transactional_id=name) as producer:
            txn = await producer.begin()
            await txn.enqueue(f"{sink}-output", b"v")
            prepared = await txn.prepare()
            assert prepared is not None
            return prepared

    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(f"{sink}-output", 1)])
    async with open_cluster(ProducerConfig(servers), sink, LEDGER) as cluster:
        await cluster.check(60_000)
        driver = SinkDriver(cluster, sink, 60, time.monotonic)
        plan = await driver.plan("a")
        await driver.commit(plan, "q", 0, {0: await write(plan.number, 0)})
        plan = await driver.plan("a")
        done = {number: await write(plan.number, number) for number in range(2)}
        await cluster.lock()
        await cluster.write(decide(sink, (await cluster.read()).head, "q", 1, done))
        await cluster.fence([done[1].transactional_id])
        with pytest.raises(TornEpochError):
            await driver.plan("a")


def test_shows_and_repairs_a_torn_epoch(command: Command, servers: str) -> None:
    asyncio.run(commit_and_tear(servers, "orders"))
    shown = command("spark-sink", "show", "orders").out
    assert "query q: committed up to epoch 0\n" in shown
    assert "query q: epoch 1 is torn\n" in shown
    assert "partition 0 is committed (orders-output-0 offsets 2 to 2)" in shown.replace("\n", " ")
    assert "partition 1 is aborted" in shown
    assert "choose one of" in command("spark-sink", "repair", "orders").error
    repaired = command("spark-sink", "repair", "orders", "--skip")
    assert (repaired.status, repaired.err) == (0, "repaired orders: start its query again\n")
    assert command("spark-sink", "show", "orders").out == "query q: committed up to epoch 1\n"
    assert "nothing to repair" in command("spark-sink", "repair", "orders", "--skip").error
    assert "has nothing of a sink other" in command("spark-sink", "show", "other").error
