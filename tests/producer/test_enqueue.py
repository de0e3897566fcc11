"""`enqueue` as Python sees it: a coroutine function of the producer and of the transaction."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import types
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import anyio
import pytest

from kafka_async import Producer
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.producer.transaction import Transaction
from tests.producer.scripted import Bench

TOPICS = {"clicks": [1]}
WRITERS = [Producer, Transaction]


@pytest.mark.parametrize("kind", WRITERS)
def test_it_is_a_documented_coroutine_function(kind: Any) -> None:
    assert inspect.iscoroutinefunction(kind.enqueue)
    assert (inspect.getdoc(kind.enqueue) or "").startswith("Append a record to its batch; waits")
    assert str(inspect.signature(kind.enqueue)) == (
        "(self, topic: 'str', value: 'V | None' = None, key: 'K | None' = None, "
        "partition: 'int | None' = None, timestamp: 'int | None' = None, "
        "headers: 'Headers' = ()) -> 'Delivery'"
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", WRITERS)
async def test_a_mock_of_its_class_can_be_awaited(kind: type[Any]) -> None:
    mock: Any = create_autospec(kind, instance=True)
    assert isinstance(mock.enqueue, AsyncMock)
    mock.enqueue.return_value = 7
    assert await mock.enqueue("clicks", b"v") == 7


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_tasks_of_every_kind_may_run_it() -> None:
    async with Bench(TOPICS) as bench:
        enqueue = bench.producer.enqueue
        await enqueue("clicks", b"0")
        await asyncio.create_task(enqueue("clicks", b"1"))
        await asyncio.gather(enqueue("clicks", b"2"), enqueue("clicks", value=b"3"))
        await asyncio.wait_for(enqueue("clicks", b"4"), 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(enqueue("clicks", b"5"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enqueue, "clicks", b"6")
            tasks.start_soon(functools.partial(enqueue, "clicks", value=b"7"))
        await bench.producer.flush()
        assert bench.cluster.log("clicks").values == [b"%d" % number for number in range(8)]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_a_task_cancelled_before_it_began_has_appended_nothing() -> None:
    async with Bench(TOPICS, linger_ms=1000) as bench:
        await bench.producer.enqueue("clicks", b"0")
        task = asyncio.create_task(bench.producer.enqueue("clicks", b"1"))
        task.cancel()
        await asyncio.wait({task})
        await bench.producer.flush()
        assert bench.cluster.log("clicks").values == [b"0"]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_a_call_that_is_never_awaited_is_warned_of() -> None:
    async with Bench(TOPICS, linger_ms=1000) as bench:
        await bench.producer.enqueue("clicks", b"0")
        with pytest.warns(RuntimeWarning, match=r"'RecordWriter\.enqueue' was never awaited"):
            bench.producer.enqueue("clicks", b"1")  # pyright: ignore[reportUnusedCoroutine]
        await bench.producer.flush()
        assert bench.cluster.log("clicks").values == [b"0"]


class Loud(Producer):
    """A producer with its own `enqueue`."""

    async def enqueue(
        self, topic: str, value: bytes | None = None, *rest: Any, **named: Any
    ) -> Any:
        return await super().enqueue(topic, (value or b"").upper(), *rest, **named)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_a_subclass_may_have_its_own_and_send_uses_it() -> None:
    async with Bench(TOPICS) as bench:
        bench.producer.__class__ = Loud
        await bench.producer.enqueue("clicks", b"a")
        await bench.producer.send("clicks", b"b", key=b"k")
        assert bench.cluster.log("clicks").values == [b"A", b"B"]


@pytest.mark.skipif(IMPLEMENTATION == "python", reason="plain Python has nothing quicker")
@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_compiled_a_record_of_an_open_batch_runs_no_python() -> None:
    """So the kernel and the writer agree on the names of attributes and arguments."""
    seen: list[str] = []

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_qualname)

    async with Bench(TOPICS, linger_ms=1000) as bench:
        await bench.producer.send("clicks", b"0")
        await bench.producer.enqueue("clicks", b"opens the batch")
        sys.setprofile(note)
        try:
            await bench.producer.enqueue("clicks", b"1")
            await bench.producer.enqueue("clicks", value=b"2", partition=0, headers=[("h", b"x")])
        finally:
            sys.setprofile(None)
    assert {name for name in seen if name.startswith(("RecordWriter", "Accumulator"))} == set()
    assert seen
