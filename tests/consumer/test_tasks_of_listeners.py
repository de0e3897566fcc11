"""Calls in tasks that a rebalance listener creates and awaits: they never wait for the listener."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from kafka_async.errors import IllegalStateError
from tests.embedded_client import InMemory
from tests.lifecycle.calls import make, outcome_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.consumer.consumer import Consumer

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

Call: TypeAlias = Callable[[], Awaitable[Any]]
LIMIT = 100.0
"""Seconds for calls that take no time: more than the other timeouts of a consumer."""
METHODS = {
    "stop": "works",
    "poll": "not now",
    "poll_batches": "not now",
    "rewind": "not now",
    "unsubscribe": "not now",
    "commit": "works",
    "committed": "works",
    "position": "works",
    "seek_to_committed": "works",
}


async def create_task(call: Call) -> None:
    async def run() -> None:
        await call()

    await asyncio.create_task(run())


async def gather(call: Call) -> None:
    await asyncio.gather(call(), asyncio.sleep(0))


async def task_group(call: Call) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(create_task(call))


async def wait_for(call: Call) -> None:
    await asyncio.wait_for(create_task(call), LIMIT)


async def timeout(call: Call) -> None:
    async with asyncio.timeout(LIMIT):
        await create_task(call)


WAYS = [create_task, gather, task_group, wait_for, timeout]


@contextlib.asynccontextmanager
async def consumer_of(cluster: InMemory) -> AsyncGenerator[Consumer]:
    """Return a consumer that was not started, and stop it."""
    await cluster.cluster.create_topic("t", 1)
    async with cluster.producer() as producer:
        await producer.send("t", b"v", partition=0)
    consumer = cluster.consumer("t", group_id="g", auto_offset_reset="earliest")
    try:
        yield consumer
    finally:
        await consumer.stop()


@pytest.mark.parametrize("way", WAYS)
async def test_call_in_a_task_of_a_listener_does_not_wait_for_the_listener(
    way: Callable[[Call], Awaitable[None]],
) -> None:
    found: dict[str, str] = {}
    ended = asyncio.Event()

    async def on_revoked(_: object) -> None:
        started_at = asyncio.get_running_loop().time()
        for method in reversed(METHODS):

            async def call(method: str = method) -> None:
                found[method] = await outcome_of(consumer, method, LIMIT)

            await way(call)
        assert asyncio.get_running_loop().time() - started_at < 5
        ended.set()

    async with InMemory() as cluster, consumer_of(cluster) as consumer:
        consumer.on_revoked(on_revoked)
        await consumer.start()
        assert await consumer.poll(timeout=30)
        await cluster.cluster.create_topic("u", 1)
        consumer.subscribe(["t", "u"])
        await consumer.poll(timeout=0)
        async with asyncio.timeout(LIMIT):
            await ended.wait()
    assert found == METHODS


async def test_task_with_its_own_context_waits_until_the_listener_has_returned() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def on_assigned(_: object) -> None:
        loop = asyncio.get_running_loop()
        tasks.append(loop.create_task(consumer.unsubscribe(), context=contextvars.Context()))
        await asyncio.sleep(1)
        assert not tasks[0].done()

    async with InMemory() as cluster, consumer_of(cluster) as consumer:
        assigned = asyncio.Event()
        consumer.on_assigned(on_assigned)
        consumer.on_assigned(lambda _: assigned.set())
        await consumer.start()
        await assigned.wait()
        await tasks[0]
        assert consumer.assignment() == frozenset()


async def test_task_of_a_listener_polls_once_the_listener_has_returned() -> None:
    tasks: list[asyncio.Task[Any]] = []
    returned = asyncio.Event()

    async def read() -> Any:
        with pytest.raises(IllegalStateError, match="before the listener has returned"):
            await consumer.poll(timeout=None)
        await returned.wait()
        return await consumer.poll(timeout=30)

    async def on_assigned(_: object) -> None:
        tasks.append(asyncio.create_task(read()))
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_later(1, returned.set)

    async with InMemory() as cluster, consumer_of(cluster) as consumer:
        consumer.on_assigned(on_assigned)
        await consumer.start()
        await returned.wait()
        assert len(await tasks[0]) == 1


async def test_stop_in_a_task_of_a_worker_does_not_wait_for_the_worker() -> None:
    found: list[str] = []

    async def work(_: str) -> None:
        async def stop() -> None:
            found.append(await outcome_of(pool, "stop", LIMIT))

        await create_task(stop)

    async with InMemory() as cluster:
        pool = make("WorkerPool", cluster, worker=work)
        await pool.start()
        async with asyncio.timeout(LIMIT):
            await pool.wait()
    assert found == ["works"]


async def test_calls_in_a_task_of_a_protocols_function_do_not_wait_for_the_function() -> None:
    found: list[str] = []
    done = asyncio.Event()

    async def assign(_: object) -> dict[str, bytes]:
        for method in ("stop", "__anext__"):

            async def call(method: str = method) -> None:
                found.append(await outcome_of(member, method, LIMIT))

            await create_task(call)
        done.set()
        return {}

    async with InMemory() as cluster:
        member = make("GroupMember", cluster, protocols={"p": assign})
        async with member, asyncio.timeout(LIMIT):
            await done.wait()
    assert found == ["not now", "not now"]
