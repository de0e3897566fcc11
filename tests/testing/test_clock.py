"""The event loop on virtual time: waiting takes no time, and a hang raises."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from kafka_async.foundation.clock import LoopClock, keeps_virtual_time
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.testing.clock import VirtualClockEventLoop, VirtualTimeError, run_virtual


def test_a_long_sleep_takes_no_time() -> None:
    async def sleeper() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - begun

    assert run_virtual(sleeper()) == pytest.approx(3600)


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        for delay in (5.0, 0.5, 45.0, 1.0):
            loop.call_later(delay, lambda: fired.append(loop.time()))
        await asyncio.sleep(100)
        return fired

    assert run_virtual(main(), start=10.0) == pytest.approx([10.5, 11.0, 15.0, 55.0])


def test_no_timer_fires_while_a_call_blocks_the_loop() -> None:
    async def main() -> tuple[float, list[float]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualClockEventLoop)
        fired: list[float] = []
        loop.call_later(5, lambda: fired.append(loop.time()))
        loop.block(60)
        assert fired == []
        await asyncio.sleep(0)
        return loop.time(), fired

    assert run_virtual(main()) == (60, [60])


def test_time_stands_still_while_callbacks_are_ready() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(0.001, lambda: None)
        begun = loop.time()
        for _ in range(1000):
            await asyncio.sleep(0)
        return loop.time() - begun

    assert run_virtual(main()) == 0


@pytest.mark.virtual_clock
@pytest.mark.asyncio
async def test_time_outs_of_asyncio_and_anyio_expire() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.Event().wait()
    with anyio.move_on_after(12) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert loop.time() == pytest.approx(42)


def test_a_hang_raises_with_the_waiting_tasks() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(
        VirtualTimeError, match=r"no callback or timer is left; waiting:\n.*stuck"
    ) as caught:
        run_virtual(stuck())
    assert "test_clock.py" in str(caught.value)


def test_a_hang_with_periodic_timers_raises_at_the_limit() -> None:
    async def stuck() -> None:
        loop = asyncio.get_running_loop()

        def heartbeat() -> None:
            loop.call_later(3, heartbeat)

        heartbeat()
        await asyncio.Event().wait()

    with pytest.raises(VirtualTimeError, match="virtual time ran out at 60"):
        run_virtual(stuck(), limit=60)


@pytest.mark.virtual_clock
@pytest.mark.asyncio
async def test_sockets_raise() -> None:
    with pytest.raises(VirtualTimeError, match=r"create_connection.*MemoryNetwork"):
        await asyncio.open_connection("127.0.0.1", 9)
    with pytest.raises(VirtualTimeError, match="getaddrinfo"):
        await asyncio.get_running_loop().getaddrinfo("localhost", 9)


@pytest.mark.virtual_clock
@pytest.mark.asyncio
async def test_connections_in_memory_work() -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data[::-1])

    class Client(asyncio.Protocol):
        def __init__(self) -> None:
            self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def data_received(self, data: bytes) -> None:
            self.response.set_result(data)

    network = MemoryNetwork()
    host, port = network.listen(Echo, "broker")
    transport, client = await network.dial(Client, host, port)
    transport.write(b"abc")
    assert await client.response == b"cba"
    transport.close()


@pytest.mark.virtual_clock
@pytest.mark.asyncio
async def test_wall_clock_advances_with_virtual_time() -> None:
    clock = LoopClock(asyncio.get_running_loop())
    begun = clock.wall()
    await asyncio.sleep(86_000)
    assert clock.wall() - begun == pytest.approx(86_000)


@pytest.mark.virtual_clock
@pytest.mark.asyncio
async def test_executors_and_offloaded_work_run_in_place() -> None:
    def fail() -> None:
        raise LookupError("from the function")

    loop = asyncio.get_running_loop()
    assert keeps_virtual_time(loop)
    assert await loop.run_in_executor(None, sum, (1, 2)) == 3
    with pytest.raises(LookupError, match="from the function"):
        await loop.run_in_executor(None, fail)
    supervisor = Supervisor("test")
    await supervisor.start()
    assert await supervisor.offload(max, 3, 4) == 4
    await supervisor.stop()


def test_raises_the_exception_of_the_coroutine() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise LookupError("after a second")

    with pytest.raises(LookupError, match="after a second"):
        run_virtual(fail())


def test_the_loop_can_be_closed_after_a_hang() -> None:
    cleaned: list[str] = []

    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("yes")

    with pytest.raises(VirtualTimeError):
        run_virtual(stuck())
    assert cleaned == ["yes"]
