"""`stop()` ends a start in every event loop iteration, on virtual time; no lifespan hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

from kafka_async.app import WorkerPool
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.errors import BootstrapError, ClientClosedError, IllegalStateError
from kafka_async.group.group_member import GroupMember
from tests.embedded_client import InMemory, settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from kafka_async.types import Health

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


class Startable(Protocol):
    """A client that is started and stopped."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: Any) -> None: ...


def member(cluster: InMemory) -> GroupMember:
    return GroupMember(
        cluster.cluster.bootstrap_servers,
        group_id="g",
        protocol_type="t",
        protocols={"p": lambda members: {}},
        dialer=cluster.network,
    )


def share_consumer(cluster: InMemory) -> ShareConsumer:
    servers = cluster.cluster.bootstrap_servers
    return ShareConsumer(servers, topics=["t"], group_id="s", dialer=cluster.network)


def worker_pool(cluster: InMemory) -> WorkerPool:
    async def work(_: str) -> None:
        await asyncio.Event().wait()

    pool = WorkerPool(cluster.cluster.bootstrap_servers, group_id="w", resources=["a"], worker=work)
    pool.client._dialer = cluster.network  # pyright: ignore[reportPrivateUsage]
    return pool


CLIENTS: Final[dict[str, Callable[[InMemory], Any]]] = {
    "client": lambda cluster: cluster.client(),
    "producer": lambda cluster: cluster.producer(),
    "transactional": lambda cluster: cluster.producer(transactional_id="x"),
    "consumer": lambda cluster: cluster.consumer("t", group_id="c"),
    "auto": lambda cluster: cluster.consumer("t", group_id="c", group_protocol="auto"),
    "share": share_consumer,
    "member": member,
    "admin": lambda cluster: cluster.admin(),
    "pool": worker_pool,
}


@pytest.fixture(params=CLIENTS)
def make(request: pytest.FixtureRequest) -> Callable[[InMemory], Any]:
    return CLIENTS[request.param]


async def use(client: Startable, entered: asyncio.Event) -> None:
    """Run a lifespan that would never end by itself."""
    async with client:
        entered.set()
        await asyncio.Event().wait()


async def test_stop_ends_start_in_every_event_loop_iteration(
    make: Callable[[InMemory], Startable],
) -> None:
    async with InMemory() as cluster:
        others = asyncio.all_tasks()
        iterations = 0
        for iterations in range(1, 10_000):
            client, entered = make(cluster), asyncio.Event()
            lifespan = asyncio.create_task(use(client, entered))
            for _ in range(iterations):
                await asyncio.sleep(0)
            if entered.is_set():
                lifespan.cancel()
                await asyncio.wait({lifespan})
                break
            await client.stop()
            await settle()
            if not lifespan.done():
                lifespan.cancel()
                await asyncio.wait({lifespan})
            assert not lifespan.cancelled(), f"the start goes on after {iterations} iterations"
            with pytest.raises(ClientClosedError, match="was stopped while it started"):
                await lifespan
            assert asyncio.all_tasks() == others, f"tasks are left after {iterations} iterations"
            assert state_of(client) == "closed"
        assert iterations > 2, "the start has no iterations to stop it in"


def state_of(client: Any) -> str:
    health: Health = client.health()
    return health.state


async def test_stop_ends_start_of_a_task_that_was_created_before(
    make: Callable[[InMemory], Startable],
) -> None:
    async with InMemory() as cluster:
        client = make(cluster)
        starting = asyncio.create_task(client.start())
        await client.stop()
        with pytest.raises(ClientClosedError, match="was stopped while it started"):
            await starting
        assert state_of(client) == "closed"


async def test_stop_before_start_has_no_effect(make: Callable[[InMemory], Startable]) -> None:
    async with InMemory() as cluster:
        client = make(cluster)
        await client.stop()
        await client.stop()
        await client.start()
        await client.stop()
        assert state_of(client) == "closed"


async def test_start_after_stop_raises(make: Callable[[InMemory], Startable]) -> None:
    async with InMemory() as cluster:
        client = make(cluster)
        await client.start()
        await client.stop()
        with pytest.raises(IllegalStateError, match="started before"):
            await client.start()


async def test_stop_ends_start_that_reaches_no_broker(
    make: Callable[[InMemory], Startable],
) -> None:
    async with InMemory() as cluster:
        client = make(cluster)
        cluster.hang()
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(5)
        assert state_of(client) == "starting"
        before = asyncio.get_running_loop().time()
        await client.stop()
        assert asyncio.get_running_loop().time() - before <= 5
        await settle()
        assert starting.done()
        with pytest.raises(ClientClosedError, match="was stopped while it started"):
            await starting
        assert state_of(client) == "closed"


async def test_state_after_failed_start_is_closed(make: Callable[[InMemory], Startable]) -> None:
    async with InMemory() as cluster:
        client = make(cluster)
        await cluster.cut_off(1)
        with pytest.raises(Exception) as raised:  # noqa: PT011  # the cause is checked
            await client.start()
        assert BootstrapError in {type(raised.value), type(raised.value.__cause__)}
        assert state_of(client) == "closed"
        await client.stop()


async def test_cancelled_stop_leaves_nothing_running(
    make: Callable[[InMemory], Startable],
) -> None:
    async with InMemory() as cluster:
        others = asyncio.all_tasks()
        client = make(cluster)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(0)
        stopping = asyncio.create_task(client.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait({starting, stopping})
        assert stopping.cancelled()
        assert isinstance(starting.exception(), ClientClosedError)
        assert asyncio.all_tasks() == others


async def test_process_ends_if_consumer_is_stopped_while_it_starts() -> None:
    async def handle(_: object) -> None: ...

    async with InMemory() as cluster:
        consumer = cluster.consumer("t", group_id="c")
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        await consumer.stop()
        with pytest.raises(ClientClosedError, match="closed"):
            await consumer.process(handle, concurrency=1)
        with pytest.raises(ClientClosedError):
            await starting


async def test_cancellation_of_start_is_not_taken_for_a_stop() -> None:
    async with InMemory() as cluster:
        client = cluster.client()
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()


async def test_two_stops_wait_for_the_end_of_the_start() -> None:
    async with InMemory() as cluster:
        client = cluster.client()
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(0)
        await asyncio.gather(client.stop(), client.stop())
        assert client.health().state == "closed"
        with pytest.raises(ClientClosedError):
            await starting
