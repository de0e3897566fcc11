"""Frameworks that call methods of clients: awaited ones append, others are refused in threads."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio.to_thread
import pytest
import pytest_asyncio
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import BackgroundTasks
from starlette.background import BackgroundTask

from kafka_async import EmbeddedCluster, Producer
from kafka_async.errors import IllegalStateError

Call = Callable[..., object]


@pytest_asyncio.fixture
async def producer() -> AsyncIterator[Producer]:
    async with EmbeddedCluster() as cluster, Producer(cluster.bootstrap_servers) as started:
        yield started


async def starlette(function: Call) -> None:
    await BackgroundTask(function, "t", b"v")()


async def starlette_partial(function: Call) -> None:
    await BackgroundTask(functools.partial(function, "t"), b"v")()


async def fastapi(function: Call) -> None:
    tasks = BackgroundTasks()
    tasks.add_task(function, "t", value=b"v")
    await tasks()


async def apscheduler(function: Call) -> None:
    scheduler = AsyncIOScheduler()
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    scheduler.add_listener(ended.set_result, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    scheduler.start()
    scheduler.add_job(function, args=("t", b"v"))
    event = await ended
    scheduler.shutdown()
    if event.exception is not None:
        raise event.exception


async def to_thread(function: Call) -> None:
    await asyncio.to_thread(function, "t", b"v")


async def anyio_to_thread(function: Call) -> None:
    await anyio.to_thread.run_sync(function, "t", b"v")


AWAIT = [starlette, starlette_partial, fastapi, apscheduler]
THREADS = [to_thread, anyio_to_thread]


@pytest.mark.asyncio
@pytest.mark.parametrize("call", AWAIT)
async def test_awaited_method_appends(
    producer: Producer, call: Callable[[Call], Awaitable[None]]
) -> None:
    await call(producer.send)
    assert (await producer.send("t", b"next")).offset == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("call", [*AWAIT, *THREADS])
@pytest.mark.parametrize("name", ["enqueue", "enqueue_nowait"])
async def test_method_that_is_no_coroutine_function_is_refused(
    producer: Producer, call: Callable[[Call], Awaitable[None]], name: str
) -> None:
    await producer.send("t", b"first")
    with pytest.raises(IllegalStateError, match=f"{name} was called in a thread without an event"):
        await call(getattr(producer, name))
