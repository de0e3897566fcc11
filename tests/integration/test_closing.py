"""Clients close in bounded time after a cancellation and without a cluster, and free sockets."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kafka_async import Admin, Client, Consumer, Producer
from kafka_async.admin import NewTopic
from kafka_async.testing.backends import ApacheBackend, EmbeddedBackend
from tests.integration.helpers import create_topic, find_group, poll_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafka_async.testing.fixtures import ClusterHandle

    Use = Callable[[], Coroutine[Any, Any, None]]
    Leave = Callable[[Use, asyncio.Event], Coroutine[Any, Any, None]]

pytestmark = pytest.mark.asyncio


async def by_move_on_after(use: Use, ready: asyncio.Event) -> None:
    with anyio.move_on_after(None) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(use)
            await ready.wait()
            scope.deadline = anyio.current_time()


async def by_cancelled_task_group(use: Use, ready: asyncio.Event) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(use)
        await ready.wait()
        group.cancel_scope.cancel()


async def by_timeout(use: Use, ready: asyncio.Event) -> None:
    async def expiring() -> None:
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
            group.create_task(use())
            await ready.wait()
            limit.reschedule(asyncio.get_running_loop().time())

    with pytest.raises(TimeoutError):
        await expiring()


async def by_cancelling_twice(use: Use, ready: asyncio.Event) -> None:
    task = asyncio.create_task(use())
    await ready.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.wait({task})
    assert task.cancelled()


WAYS: list[Leave] = [by_move_on_after, by_cancelled_task_group, by_timeout, by_cancelling_twice]


def sockets() -> int:
    """Return the number of open sockets of this process, including those of embedded clusters."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            continue  # The descriptor that listed the directory.
    return found


async def until_no_more_than(count: int) -> None:
    async with asyncio.timeout(10):
        while await asyncio.to_thread(sockets) > count:  # noqa: ASYNC110  # There is no event.
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("leave", WAYS)
async def test_cancelled_consumer_leaves_its_group(
    kafka_cluster: ClusterHandle, leave: Leave
) -> None:
    group, ready = kafka_cluster.group(), asyncio.Event()
    before = await asyncio.to_thread(sockets)
    topic = await create_topic(kafka_cluster)

    async def use() -> None:
        async with Consumer(
            kafka_cluster.bootstrap_servers, topics=[topic], group_id=group
        ) as consumer:
            while True:
                await consumer.poll(timeout=0.2)
                if consumer.assignment():
                    ready.set()

    async with asyncio.timeout(30):
        await leave(use, ready)
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        described = await find_group(partial(admin.describe_groups, [group]), group)
    assert described.members == ()
    await until_no_more_than(before)


@pytest.mark.parametrize("kind", [Client, Admin, Producer])
@pytest.mark.parametrize("leave", WAYS)
async def test_cancelled_client_closes_its_sockets(
    kafka_cluster: ClusterHandle, leave: Leave, kind: type[Client | Admin | Producer]
) -> None:
    before, ready = await asyncio.to_thread(sockets), asyncio.Event()

    async def use() -> None:
        async with kind(kafka_cluster.bootstrap_servers):
            ready.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(30):
        await leave(use, ready)
    await until_no_more_than(before)


@pytest.mark.slow
async def test_stop_is_bounded_while_all_brokers_are_frozen() -> None:
    """Freezes the broker by SIGSTOP: its connections stay open without responses."""
    with ApacheBackend(brokers=1) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("t", b"value")
        options: dict[str, Any] = {
            "topics": ["t"],
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 600_000,
        }
        idle = Consumer(cluster.bootstrap_servers, group_id="idle", **options)
        busy = Consumer(cluster.bootstrap_servers, group_id="busy", **options)
        for consumer in (idle, busy):
            await consumer.start()
            assert await consumer.poll(timeout=30)
        await idle.commit()
        await busy.poll(timeout=0)
        cluster.pause_broker(1)
        async with asyncio.timeout(12):  # 2 s and 3 s are expected.
            await idle.stop()
            await busy.stop(3.0)
        cluster.resume_broker(1)


async def test_stop_is_bounded_after_all_brokers_have_stopped() -> None:
    with EmbeddedBackend(brokers=3) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t", 1, 1)])
        consumer = Consumer(cluster.bootstrap_servers, topics=["t"], group_id="g")
        await consumer.start()
        await poll_until(consumer.assignment, consumer)
        await consumer.commit()
    async with asyncio.timeout(10):
        await consumer.stop()
