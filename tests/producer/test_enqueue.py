"""`enqueue` and `enqueue_nowait` of a producer and of a transaction."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kafka_async import Producer
from kafka_async.client.client import services_of
from kafka_async.errors import ClientClosedError, IllegalStateError
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.producer.transactions.transaction import Transaction
from tests.embedded_client import IterationCounter
from tests.producer.bench import Bench, advance_with_each_reading

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

TOPICS = {"clicks": [1]}
WRITERS = [Producer, Transaction]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("name", ["enqueue", "enqueue_nowait"])
async def test_has_a_docstring_and_a_signature(kind: Any, name: str) -> None:
    method = getattr(kind, name)
    assert (inspect.getdoc(method) or "").startswith("Append a record to its batch")
    parameters = list(inspect.signature(method).parameters)
    assert parameters[1:] == ["topic", "value", "key", "partition", "timestamp", "headers"]


async def test_enqueue_runs_in_a_task(bench: Bench) -> None:
    enqueue = bench.producer.enqueue
    await enqueue("clicks", b"0")
    await asyncio.ensure_future(enqueue("clicks", b"1"))
    await asyncio.gather(enqueue("clicks", b"2"), enqueue("clicks", value=b"3"))
    await asyncio.wait_for(enqueue("clicks", b"4"), 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.producer.send("clicks", b"5"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.producer.send, "clicks", b"6")
    await bench.producer.flush()
    assert bench.values("clicks") == [b"%d" % number for number in range(7)]


@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
async def test_task_cancelled_before_it_runs_appends_nothing() -> None:
    async with Bench(TOPICS, linger_ms=1000) as bench:
        await bench.producer.enqueue("clicks", b"0")
        task = asyncio.ensure_future(bench.producer.enqueue("clicks", b"1"))
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await bench.producer.flush()
        assert bench.values("clicks") == [b"0"]


async def test_warns_of_a_call_that_is_never_awaited() -> None:
    async with Bench(TOPICS, linger_ms=1000) as bench:
        await bench.producer.enqueue("clicks", b"0")
        with pytest.warns(RuntimeWarning, match="enqueue.* was never awaited"):
            bench.producer.enqueue("clicks", b"1")
        await bench.producer.flush()
        assert bench.values("clicks") == [b"0"]


async def test_nowait_records_have_the_time_of_their_call() -> None:
    async with Bench(TOPICS, linger_ms=1000) as bench:
        stamps: list[int] = []
        for _ in range(3):
            deliveries = [bench.producer.enqueue_nowait("clicks", b"v") for _ in range(3)]
            now = int(services_of(bench.producer.client).clock.wall() * 1000)
            assert all(abs(delivery.timestamp - now) <= 2 for delivery in deliveries)
            stamps.append(deliveries[0].timestamp)
            await asyncio.sleep(0.01)
        assert len(set(stamps)) == 3


async def test_nowait_does_not_keep_enqueue_from_yielding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that alternates both calls yields as often as one that awaits `enqueue` alone."""
    advance_with_each_reading(0.0006, monkeypatch)
    async with Bench(TOPICS, linger_ms=10_000) as bench, IterationCounter() as iterations:
        for _ in range(100):
            await bench.producer.enqueue("clicks", b"v")
            bench.producer.enqueue_nowait("clicks", b"v")
    assert iterations.count >= 40


async def test_nowait_raises_errors_of_a_record() -> None:
    enqueue: Any
    async with Bench(TOPICS, linger_ms=1000) as bench:
        enqueue = bench.producer.enqueue_nowait
        for _ in ("to a batch that is opened", "to one that is open"):
            with pytest.raises(TypeError):
                enqueue("clicks", 7)
            with pytest.raises(ValueError, match="partition must be 0 to 2147483647, not -1"):
                enqueue("clicks", b"v", partition=-1)
            enqueue("clicks", b"v")
        await bench.producer.stop()
        with pytest.raises(ClientClosedError):
            enqueue("clicks", b"v")


class CustomProducer(Producer):
    """A producer that overrides `enqueue`."""

    async def enqueue(
        self, topic: str, value: bytes | None = None, *rest: Any, **named: Any
    ) -> Any:
        return await super().enqueue(topic, (value or b"").upper(), *rest, **named)


async def test_send_uses_the_enqueue_of_a_subclass(bench: Bench) -> None:
    bench.producer.__class__ = CustomProducer
    await bench.producer.enqueue("clicks", b"a")
    await bench.producer.send("clicks", b"b", key=b"k")
    assert bench.values("clicks") == [b"A", b"B"]


@pytest.mark.skipif(IMPLEMENTATION == "python", reason="plain Python has nothing quicker")
async def test_compiled_enqueue_runs_no_python_for_an_open_batch() -> None:
    """The kernel and the writer agree on the names of attributes and arguments."""
    seen: list[str] = []

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_qualname)

    async with Bench(TOPICS, linger_ms=1000) as bench:
        await bench.producer.send("clicks", b"0")
        await bench.producer.enqueue("clicks", b"opens the batch")
        bench.producer.enqueue_nowait("clicks", b"opens its window")
        sys.setprofile(note)
        try:
            await bench.producer.enqueue("clicks", b"1")
            bench.producer.enqueue_nowait("clicks", b"1", key=b"k")
            await bench.producer.enqueue("clicks", value=b"2", partition=0, headers=[("h", b"x")])
        finally:
            sys.setprofile(None)
    assert {name for name in seen if name.startswith(("RecordWriter", "Accumulator"))} == set()
    assert seen


# -- other threads --------------------------------------------------------------------------------


def in_thread(function: Callable[[], object]) -> BaseException | None:
    """Call a function in a thread; return what it raised."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  # returned
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("name", ["enqueue", "enqueue_nowait"])
@pytest.mark.parametrize("topic", ["clicks", "unknown"])
async def test_other_thread_is_refused(bench: Bench, name: str, topic: str) -> None:
    """As if a framework calls it, which takes it for a function that may block."""
    await bench.producer.enqueue("clicks", b"0")  # the fast path is open
    call: Any = functools.partial(getattr(bench.producer, name), topic)
    errors = [in_thread(functools.partial(call, b"1")), in_thread(lambda: call(value=b"1"))]
    for error in errors:
        assert isinstance(error, IllegalStateError)
        assert f"{name} was called in a thread without an event loop" in str(error)
    await bench.producer.flush()
    assert bench.values("clicks") == [b"0"]


@pytest.mark.parametrize("name", ["enqueue", "send", "send_many"])
async def test_event_loop_of_another_thread_is_refused(bench: Bench, name: str) -> None:
    await bench.producer.enqueue("clicks", b"0")

    async def call() -> None:
        await getattr(bench.producer, name)("clicks", [b"1"] if name == "send_many" else b"1")

    error = in_thread(lambda: asyncio.run(call()))
    assert isinstance(error, IllegalStateError)
    assert "belongs to the event loop it was started in" in str(error)


async def test_thread_before_the_start_is_refused() -> None:
    producer = Producer("localhost:1")
    error = in_thread(lambda: producer.enqueue("clicks", b"1"))
    assert isinstance(error, ClientClosedError)
    assert "was not started" in str(error)
