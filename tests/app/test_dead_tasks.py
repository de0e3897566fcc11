"""A background task that dies ends each kind of membership with an error; `health` shows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Consumer, GroupMember, ShareConsumer
from kafka_async.app import LeaderElection, SingleWriter, WorkerPool
from kafka_async.errors import LeadershipLostError, TaskDiedError
from kafka_async.group.coordinator_connection import CoordinatorConnection
from tests.embedded_client import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.client.client import Client
    from kafka_async.types import Health
    from tests.embedded_client import InMemory

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

INTERVAL = 6.0
"""More than a heartbeat interval of any member, in seconds."""


@pytest.fixture
def break_heartbeats(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which the next heartbeat raises an exception that is a bug."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    return lambda: monkeypatch.setattr(CoordinatorConnection, "heartbeat", broken)


def check_failed(health: Health) -> None:
    assert health.state == "failed"
    assert health.last_error is not None
    assert "heartbeats of g died: ZeroDivisionError('a bug')" in health.last_error


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_polls_and_commits_of_a_consumer_raise(
    memory: InMemory, client: Client, protocol: Any, break_heartbeats: Callable[[], None]
) -> None:
    await memory.cluster.create_topic("t", 1)
    consumer = Consumer(client, topics=["t"], group_id="g", group_protocol=protocol)
    await consumer.start()
    while consumer.health().last_heartbeat_s is None or not consumer.assignment():
        await consumer.poll(timeout=0.1)
    health = consumer.health()
    assert (health.state, health.last_error) == ("running", None)
    assert health.assignment == tuple(consumer.assignment())
    assert health.last_heartbeat_s is not None
    break_heartbeats()
    with pytest.raises(TaskDiedError, match="a bug") as raised:
        async with asyncio.timeout(INTERVAL):
            await consumer.poll(timeout=100)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    check_failed(consumer.health())
    for call in (consumer.poll, consumer.commit):
        with pytest.raises(TaskDiedError, match="a bug"):
            await call()
    with pytest.raises(TaskDiedError, match="a bug"):
        async for _ in consumer:
            pass
    await consumer.stop()


async def test_polls_of_a_share_consumer_raise(
    memory: InMemory, client: Client, break_heartbeats: Callable[[], None]
) -> None:
    await memory.cluster.create_topic("t", 1)
    consumer = ShareConsumer(client, topics=["t"], group_id="g")
    await consumer.start()
    while not consumer.health().assignment:
        await consumer.poll(timeout=0.1)
    assert (consumer.health().state, consumer.health().last_error) == ("running", None)
    break_heartbeats()
    for _ in range(2):
        with pytest.raises(TaskDiedError, match="a bug"):
            async with asyncio.timeout(INTERVAL):
                await consumer.poll(timeout=100)
    check_failed(consumer.health())
    await consumer.stop()


async def test_iteration_over_a_group_member_raises(
    client: Client, break_heartbeats: Callable[[], None]
) -> None:
    member = GroupMember(
        client,
        group_id="g",
        protocol_type="jobs",
        protocols={"v0": lambda members: {each.member_id: b"" for each in members}},
    )
    async with member:
        await anext(member)
        assert member.health().state == "running"
        break_heartbeats()
        for _ in range(2):
            with pytest.raises(TaskDiedError, match="a bug"):
                async with asyncio.timeout(INTERVAL):
                    await anext(member)
        check_failed(member.health())


async def test_worker_pool_cancels_its_workers_and_raises(
    client: Client, break_heartbeats: Callable[[], None]
) -> None:
    cancelled: list[str] = []

    async def worker(resource: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(resource)

    pool = WorkerPool(client, group_id="g", resources=["a", "b"], worker=worker)
    await pool.start()
    await until(lambda: pool.held == frozenset({"a", "b"}))
    await asyncio.sleep(INTERVAL)
    health = pool.health()
    assert (health.state, health.last_error) == ("running", None)
    assert health.last_heartbeat_s is not None
    break_heartbeats()
    with pytest.raises(TaskDiedError, match="a bug"):
        async with asyncio.timeout(INTERVAL):
            await pool.wait()
    assert sorted(cancelled) == ["a", "b"]
    check_failed(pool.health())
    with pytest.raises(TaskDiedError, match="a bug"):
        await pool.stop()


@pytest.mark.parametrize("kind", [LeaderElection, SingleWriter])
async def test_block_of_a_leader_is_cancelled(
    client: Client, kind: Any, break_heartbeats: Callable[[], None]
) -> None:
    lead = kind(client, group_id="g") if kind is LeaderElection else kind(client, name="g")

    async def hold() -> None:
        async with asyncio.timeout(60), lead:
            assert lead.health().state == "running"
            await asyncio.sleep(INTERVAL)
            assert (lead.health().last_heartbeat_s or 0) > 0
            break_heartbeats()
            await asyncio.Event().wait()

    with pytest.raises(LeadershipLostError, match="a bug"):
        await hold()
    assert lead.health().state == "failed"
    assert "a bug" in (lead.health().last_error or "")
