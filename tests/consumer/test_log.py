"""Log lines of a producer and a consumer whose broker is stopped, started, frozen and thawed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kafka_async.client.client import services_of
from kafka_async.client.connection import brokers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.consumer.consumer import Consumer
    from kafka_async.errors import KafkaError
    from kafka_async.producer.producer import Producer
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the clients' log lines at INFO or above."""
    rows = [row for row in caplog.records if row.levelno >= logging.INFO]
    return [row.getMessage() for row in rows if row.name.startswith("kafka_async.")]


async def work(producer: Producer, consumer: Consumer) -> None:
    while True:
        await producer.enqueue("t", b"v")
        await consumer.poll(timeout=0.5)
        await asyncio.sleep(0.5)


async def outages(stage: Stage) -> AsyncIterator[str]:
    """Stop the broker for 40 s, and freeze it for 60 s."""
    await asyncio.sleep(10)
    await stage.cluster.stop_broker(1)
    await asyncio.sleep(40)
    yield "stopped"
    await stage.cluster.start_broker(1)
    await asyncio.sleep(20)
    yield "started"
    frozen = stage.hang(broker=1)
    await asyncio.sleep(60)
    yield "frozen"
    frozen.remove()
    await asyncio.sleep(30)
    yield "thawed"


async def test_log_lines_are_accurate_and_not_repeated(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka_async")
    await stage.topic("t", 1)
    await stage.shared_client.stop()
    phases: dict[str, list[str]] = {}
    async with (
        stage.producer() as producer,
        stage.consumer("t", enable_auto_commit=True) as consumer,
    ):
        working = asyncio.create_task(work(producer, consumer))
        async for fetch_state in outages(stage):
            phases[fetch_state] = lines(caplog)
            caplog.clear()
        working.cancel()
        await asyncio.wait([working])
    for fetch_state, written in phases.items():
        for line in written:
            assert max(Counter(ADDRESS.findall(line)).values(), default=0) <= 1, (fetch_state, line)
            assert "broker -1" not in line, (fetch_state, line)
            assert "(broker 1)" not in line or "not a Kafka broker" not in line, (fetch_state, line)
    assert [line for line in phases["started"] if "no broker" in line] == []
    assert any(line.endswith("it is frozen or overloaded") for line in phases["frozen"])
    moved = [line for line in phases["thawed"] if "the group has moved on" in line]
    assert all("no heartbeat for session_timeout_ms" in line for line in moved)


@pytest.mark.parametrize("kind", ["stopped", "frozen"])
async def test_clients_closed_in_outage_do_not_log_retries(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Clients are closed at different moments of the outage; the peer closes connections slowly."""

    async def closing(
        connections: Iterable[BrokerConnection], timeout: float, reason: KafkaError
    ) -> None:
        for connection in list(connections):
            connection.end(reason)
        await asyncio.sleep(0.05)

    monkeypatch.setattr(brokers, "close_connections", closing)
    await stage.topic("t", 1)
    clients = [
        stage.client(client_id=f"c{number}", request_timeout_ms=2_000) for number in range(40)
    ]
    for client in clients:
        await client.start()
    if kind == "stopped":
        await stage.cluster.stop_broker(1)
    else:
        stage.hang(broker=1)
    for client in clients:
        services_of(client).metadata.request_update()
    await asyncio.sleep(11)  # until the second warning of the outage is due
    for client in clients:
        await client.stop()
        await asyncio.sleep(0.1)
    assert [line for line in lines(caplog) if "was closed" in line] == []
    assert [line for line in lines(caplog) if "retrying" in line] != []
    if kind == "stopped":
        await stage.cluster.start_broker(1)
    stage.cluster.faults.clear()
