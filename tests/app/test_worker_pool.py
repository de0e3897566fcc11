"""Worker pools on virtual time: starts, moves, failover, errors."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.app import WorkerPool
from kafka_async.errors import ClientClosedError, InconsistentGroupProtocolError
from tests.app.conftest import silence

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.client.client import Client
    from tests.embedded_client import InMemory

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

SESSION = 6.0
HEARTBEAT = 1.0
OPTIONS: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}
RESOURCES = ["a", "b", "c", "d"]


class Work:
    """Runs workers that record who runs, and fails if two run for one resource.

    Attributes:
        running: The running workers: names of pools by resource.
        cleanup: Seconds that a cancelled worker takes to end.
    """

    def __init__(self, client: Client, cleanup: float = 0.0) -> None:
        self.running: dict[str, str] = {}
        self.cleanup = cleanup
        self.cancelled: list[str] = []
        self._client = client

    def pool(self, name: str, client: Client | None = None, **options: Any) -> WorkerPool:
        async def worker(resource: str) -> None:
            assert resource not in self.running, f"two workers of {resource}"
            self.running[resource] = name
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(resource)
                await asyncio.sleep(self.cleanup)
                raise
            finally:
                del self.running[resource]

        given: dict[str, Any] = {"group_id": "g", "resources": RESOURCES, "worker": worker}
        return WorkerPool(client or self._client, **given | OPTIONS | options)

    def counts(self) -> dict[str, int]:
        names = list(self.running.values())
        return {name: names.count(name) for name in sorted(set(names))}

    async def until(self, condition: Callable[[], bool], limit: float = 60) -> None:
        async with asyncio.timeout(limit):
            while not condition():  # noqa: ASYNC110  # virtual time
                await asyncio.sleep(0.01)


async def test_resources_are_spread_and_return_when_members_leave(client: Client) -> None:
    work = Work(client)
    async with work.pool("first") as first:
        await work.until(lambda: work.counts() == {"first": 4})
        assert first.held == frozenset(RESOURCES)
        async with work.pool("second"):
            await work.until(lambda: work.counts() == {"first": 2, "second": 2})
            assert len(work.cancelled) == 2
        await work.until(lambda: work.counts() == {"first": 4})
    assert work.running == {}


async def test_resource_moves_once_its_worker_has_ended(client: Client) -> None:
    work = Work(client, cleanup=20.0)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(work.pool("first"))
        await work.until(lambda: work.counts() == {"first": 4})
        await stack.enter_async_context(work.pool("second"))
        await work.until(lambda: len(work.cancelled) == 2)
        await asyncio.sleep(19)
        assert work.counts() == {"first": 4}
        await work.until(lambda: work.counts() == {"first": 2, "second": 2})


async def test_worker_of_unmoved_resource_continues(client: Client) -> None:
    work = Work(client)
    async with work.pool("first"):
        await work.until(lambda: work.counts() == {"first": 4})
        before = set(work.running)
        async with work.pool("second"):
            await work.until(lambda: work.counts() == {"first": 2, "second": 2})
            kept = {r for r, name in work.running.items() if name == "first"}
            assert kept == before - set(work.cancelled)


async def test_failover_takes_session_and_heartbeat_interval_at_most(
    memory: InMemory, client: Client
) -> None:
    loop = asyncio.get_running_loop()
    work = Work(client)
    async with memory.client(client_id="other") as other, work.pool("first"):
        # Requests take time, so that the session ends for the member before the coordinator's.
        way = memory.cluster.faults.add(
            when=lambda context, _: context.client_id == "other", delay=0.01, count=None
        )
        second = work.pool("second", other)
        await second.start()
        await work.until(lambda: work.counts() == {"first": 2, "second": 2})
        way.remove()
        silenced_at = loop.time()
        silence(memory, "other")
        await work.until(lambda: work.counts() == {"first": 4})
        assert loop.time() - silenced_at <= SESSION + HEARTBEAT + 0.1
        await second.stop()


async def test_workers_are_cancelled_when_session_ends_without_response(
    memory: InMemory, client: Client
) -> None:
    loop = asyncio.get_running_loop()
    work = Work(client)
    async with work.pool("first"):
        await work.until(lambda: work.counts() == {"first": 4})
        hanging = memory.hang()
        hung_at = loop.time()
        await work.until(lambda: not work.running)
        assert loop.time() - hung_at <= SESSION + 0.1
        hanging.remove()
        await work.until(lambda: work.counts() == {"first": 4})


async def test_finished_worker_is_not_started_again(client: Client) -> None:
    started: list[str] = []

    async def worker(resource: str) -> None:
        started.append(resource)

    work = Work(client)
    async with work.pool("first", worker=worker, resources=["a", "b"]):
        await work.until(lambda: len(started) == 2)
        async with work.pool("second", resources=["c"]):
            await work.until(lambda: work.counts() == {"second": 1})
        await asyncio.sleep(10)
    assert sorted(started) == ["a", "b"]


async def test_error_of_worker_ends_pool_and_is_raised(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka_async.app")
    work = Work(client)

    async def fail(resource: str) -> None:
        await asyncio.sleep(5)
        raise LookupError(resource)

    pool = work.pool("first", worker=fail, resources=["a"])
    with pytest.raises(ClientClosedError, match="was not started"):
        await pool.wait()
    await pool.start()
    with pytest.raises(LookupError, match="a"):
        await pool.wait()
    assert pool.health().state == "failed"
    assert pool.health().last_error == "LookupError: a"
    with pytest.raises(LookupError):
        await pool.stop()


async def test_error_of_worker_is_raised_at_end_of_block(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka_async.app")
    work = Work(client)

    async def fail(resource: str) -> None:
        raise LookupError(resource)

    with pytest.raises(LookupError):
        async with work.pool("first", worker=fail):
            await asyncio.sleep(10)

    async def fail_too() -> None:
        async with work.pool("first", worker=fail):
            await asyncio.sleep(10)
            raise KeyError

    with pytest.raises(KeyError) as raised:
        await fail_too()
    assert "the pool has failed too: LookupError" in raised.value.__notes__[0]


async def test_rejection_by_group_is_raised(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka_async.app")
    work = Work(client)
    consumer_like = work.pool("first", resources=["a"])
    consumer_like._member._protocol_type = "other"  # pyright: ignore[reportPrivateUsage]
    async with consumer_like:
        await work.until(lambda: work.counts() == {"first": 1})
        second = work.pool("second")
        await second.start()
        with pytest.raises(InconsistentGroupProtocolError):
            await second.wait()
        with pytest.raises(InconsistentGroupProtocolError):
            await second.stop()


async def test_stop_waits_for_workers_and_limits_the_wait(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    work = Work(client, cleanup=3.0)
    pool = work.pool("first", resources=["a"])
    await pool.stop()
    await pool.start()
    await work.until(lambda: work.counts() == {"first": 1})
    stopped_at = loop.time()
    await pool.stop()
    await pool.stop()
    await pool.wait()
    assert loop.time() - stopped_at == pytest.approx(3.0, abs=0.1)
    work.cleanup = 100.0
    stubborn = work.pool("first", resources=["a"])
    await stubborn.start()
    await work.until(lambda: work.counts() == {"first": 1})
    stopped_at = loop.time()
    await stubborn.stop(timeout=2.0)
    assert loop.time() - stopped_at <= 2.1
    assert "1 cancelled workers have not ended" in caplog.text
    await work.until(lambda: not work.running, 200)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"resources": "abc"}, TypeError, "resources must be a list of names"),
        ({"resources": [5]}, TypeError, "each of resources must be str"),
        ({"worker": 5}, TypeError, "worker must be callable"),
    ],
)
async def test_wrong_arguments_are_named(
    client: Client, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Work(client).pool("first", **options)


async def test_worker_that_is_not_async_is_named(client: Client) -> None:
    def work(resource: str) -> None:
        """Return at once."""

    with pytest.raises(
        TypeError, match=r"^worker must be `async def`: <function .* returned NoneType$"
    ):
        async with Work(client).pool("first", worker=work) as pool:
            await pool.wait()
