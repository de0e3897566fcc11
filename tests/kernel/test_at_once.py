"""A method that appends at once: a coroutine function, for all that anybody can see."""

from __future__ import annotations

import asyncio
import collections.abc
import copy
import functools
import gc
import inspect
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import anyio
import pytest

from tests.kernel import kernels

pytestmark = pytest.mark.asyncio

TIME = 1_700_000_000_000
LONG_WAY = "the long way"


def writer(kernel: ModuleType, capacity: int = 1 << 16) -> Any:
    """What takes records of the topic "clicks", and answers LONG_WAY where it cannot at once."""
    return writer_class(kernel)(capacity)


def writer_class(kernel: Any) -> Any:
    intake: Any = kernel.Intake

    class Writer(intake):
        def __init__(self, capacity: int) -> None:
            self.now = 0.0
            self.asked = 0
            self.batch = kernel.OpenBatch(None, capacity)
            self.batches = kernel.OpenBatches()
            self.batches.partitions, self.batches.sticky = 2, 0
            self.batches.open(0, self.batch)
            self._now = lambda: self.now
            self._fast_until = 1.0
            self._stamp = TIME
            self._open = {"clicks": self.batches}

        @kernel.at_once
        async def enqueue(
            self,
            topic: str,
            value: Any = None,
            key: Any = None,
            partition: int | None = None,
            timestamp: int | None = None,
            headers: Any = (),
        ) -> Any:
            """Append a record."""
            self.asked += 1
            batches = self._open.get(topic)
            if batches is not None and self._now() < self._fast_until:
                stamp = self._stamp if timestamp is None else timestamp
                delivery = batches.append(stamp, key, value, headers, partition)
                if delivery is not None:
                    return delivery
            await asyncio.sleep(0)
            return LONG_WAY

    return Writer


# -- appending ------------------------------------------------------------------------------------


async def test_a_record_is_appended_when_it_is_awaited_not_before(kernel: ModuleType) -> None:
    taker = writer(kernel)
    first, second = taker.enqueue("clicks", b"1"), taker.enqueue("clicks", b"2")
    assert taker.batch.count == 0
    assert [(await second).index, (await first).index] == [0, 1]
    alone = kernel.OpenBatch(None, 1 << 16)
    alone.append(TIME, None, b"2")
    alone.append(TIME, None, b"1")
    assert taker.batch.seal() == alone.seal()


async def test_the_compiled_kernel_needs_no_coroutine_for_it() -> None:
    taker = writer(kernels.load("c"))
    for _ in range(100):
        await taker.enqueue("clicks", b"value", key=None)
    assert (taker.batch.count, taker.asked) == (100, 0)


HEADERS = [("name", b"x")]
FULL = (b"value", b"key", 0, 77, HEADERS)
CALLS: dict[str, Callable[[Any], Any]] = {
    "by place": lambda call: call("clicks", *FULL),
    "by name": lambda call: call(
        headers=HEADERS, timestamp=77, partition=0, key=b"key", value=b"value", topic="clicks"
    ),
    "by both": lambda call: call(
        "clicks", b"value", headers=HEADERS, timestamp=77, key=b"key", partition=0
    ),
    "by a name made at run time": lambda call: call(
        "clicks", *FULL[:4], **{"".join(["head", "ers"]): HEADERS}
    ),
    "by a partial": lambda call: functools.partial(call, "clicks", key=b"key")(
        b"value", partition=0, timestamp=77, headers=HEADERS
    ),
}


@pytest.mark.parametrize("how", CALLS)
async def test_arguments_find_their_place(kernel: ModuleType, how: str) -> None:
    taker = writer(kernel)
    assert (await CALLS[how](taker.enqueue)).timestamp == 77
    alone = kernel.OpenBatch(None, 1 << 16)
    alone.append(77, b"key", b"value", HEADERS)
    assert taker.batch.seal() == alone.seal()


@pytest.mark.parametrize("given", range(1, 7))
async def test_arguments_that_are_left_out_have_their_defaults(
    kernel: ModuleType, given: int
) -> None:
    taker = writer(kernel)
    values: Any = ("clicks", b"value", b"key", 0, 77, HEADERS)
    unlike: Any = (None, None, None, 0, TIME, ())
    topic, value, key, partition, timestamp, headers = values[:given] + unlike[given:]
    if given < 4:  # the key chooses then
        taker.batches.partitions = 1
    await taker.enqueue(*values[:given])
    alone = kernel.OpenBatch(None, 1 << 16)
    alone.append(timestamp, key, value, headers)
    assert (topic, partition, taker.batch.seal()) == ("clicks", 0, alone.seal())


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda call: call(), "missing 1 required positional argument: 'topic'"),
    (lambda call: call(value=b"v"), "missing 1 required positional argument: 'topic'"),
    (lambda call: call("clicks", topic="clicks"), "multiple values for argument 'topic'"),
    (lambda call: call("clicks", b"v", self=1), "multiple values for argument 'self'"),
    (lambda call: call("clicks", b"v", time=1), "unexpected keyword argument 'time'"),
    (lambda call: call("clicks", 1, 2, 3, 4, 5, 6), "takes from 2 to 7 positional arguments"),
]


@pytest.mark.parametrize(("call", "words"), WRONG)
async def test_wrong_arguments_are_refused_at_the_call(
    kernel: ModuleType, call: Callable[[Any], Any], words: str
) -> None:
    taker = writer(kernel)
    with pytest.raises(TypeError, match=rf"Writer\.enqueue\(\) .*{words}"):
        call(taker.enqueue)
    assert taker.asked == 0


def late(taker: Any) -> None:
    taker.now = 1.0


def closed(taker: Any) -> None:
    taker.batches.close(0)


def unknown(taker: Any) -> None:
    del taker._open["clicks"]  # the writer's own


@pytest.mark.parametrize("change", [late, closed, unknown])
async def test_what_cannot_be_at_once_goes_the_long_way(
    kernel: ModuleType, change: Callable[[Any], None]
) -> None:
    taker = writer(kernel)
    await taker.enqueue("clicks", b"v")
    pending = taker.enqueue("clicks", b"v")
    change(taker)
    assert (await pending, taker.batch.count) == (LONG_WAY, 1)


async def test_a_record_for_which_there_is_no_room_goes_the_long_way(kernel: ModuleType) -> None:
    taker = writer(kernel, capacity=20)
    await taker.enqueue("clicks", b"v" * 10)
    assert (await taker.enqueue("clicks", b"v" * 10), taker.batch.count) == (LONG_WAY, 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": 7}, TypeError),
        ({"key": "text"}, TypeError),
        ({"timestamp": 1.5}, TypeError),
        ({"timestamp": -2}, ValueError),
        ({"headers": 7}, TypeError),
        ({"topic": []}, TypeError),
    ],
)
async def test_what_cannot_be_appended_raises_when_it_is_awaited(
    kernel: ModuleType, arguments: dict[str, Any], error: type[Exception]
) -> None:
    taker = writer(kernel)
    pending = taker.enqueue(**{"topic": "clicks", "value": b"v", **arguments})
    with pytest.raises(error):
        await pending
    assert (taker.batch.count, taker.asked) == (0, 1)


@pytest.mark.parametrize("stamp", [-2, (1 << 63) - 1])
async def test_a_clock_that_is_no_timestamp_is_refused(kernel: ModuleType, stamp: int) -> None:
    taker = writer(kernel)
    taker._stamp = stamp
    with pytest.raises(ValueError, match="a timestamp is"):
        await taker.enqueue("clicks", b"v")
    assert (await taker.enqueue("clicks", b"v", timestamp=0)).timestamp == 0


async def test_a_sealed_batch_takes_nothing(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.batch.seal()
    with pytest.raises(Exception, match="the batch is sealed"):
        await taker.enqueue("clicks", b"v")


async def test_who_is_no_intake_gets_the_coroutine(kernel: ModuleType) -> None:
    stranger, taker = types.SimpleNamespace(asked=0, _open={}), writer(kernel)
    assert await taker.__class__.enqueue(stranger, "clicks", b"v") == LONG_WAY


# -- a coroutine ----------------------------------------------------------------------------------


async def test_it_is_a_coroutine_to_all_who_ask(kernel: ModuleType) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    assert (pending.__name__, pending.cr_running, pending.cr_await) == ("enqueue", False, None)
    assert pending.__qualname__.endswith("Writer.enqueue")
    assert repr(pending).startswith("<coroutine object ")
    asked: list[Callable[[Any], bool]] = [
        inspect.iscoroutine,
        inspect.isawaitable,
        asyncio.iscoroutine,
        lambda it: isinstance(it, collections.abc.Coroutine),
    ]
    assert all(ask(pending) for ask in asked)
    await pending


@pytest.mark.parametrize("now", [0.0, 1.0], ids=["at once", "the long way"])
async def test_its_state_can_be_asked(kernel: ModuleType, now: float) -> None:
    taker = writer(kernel)
    taker.now = now
    pending = taker.enqueue("clicks", b"v")
    assert inspect.getcoroutinestate(pending) == inspect.CORO_CREATED
    await pending
    assert inspect.getcoroutinestate(pending) == inspect.CORO_CLOSED
    unseen = taker.enqueue("clicks", b"v")
    await unseen
    assert inspect.getcoroutinestate(unseen) == inspect.CORO_CLOSED


async def test_it_is_suspended_where_its_function_is(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.now = 1.0
    pending = taker.enqueue("clicks", b"v")
    assert pending.send(None) is None
    assert inspect.getcoroutinestate(pending) == inspect.CORO_SUSPENDED
    with pytest.raises(StopIteration) as end:
        pending.send(None)
    assert end.value.value == LONG_WAY


async def test_sending_gives_the_handle_as_a_return_does(kernel: ModuleType) -> None:
    taker = writer(kernel)
    with pytest.raises(StopIteration) as end:
        taker.enqueue("clicks", b"v").send(None)
    assert end.value.value.index == 0
    with pytest.raises(StopIteration):
        next(taker.enqueue("clicks", b"v").__await__())
    assert taker.batch.count == 2


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_the_first_thing_sent_is_none(kernel: ModuleType) -> None:
    taker = writer(kernel)
    with pytest.raises(TypeError, match="can't send non-None value"):
        taker.enqueue("clicks", b"v").send(1)
    assert taker.batch.count == 0


@pytest.mark.parametrize("now", [0.0, 1.0], ids=["at once", "the long way"])
async def test_it_can_be_awaited_once(kernel: ModuleType, now: float) -> None:
    taker = writer(kernel)
    taker.now = now
    pending = taker.enqueue("clicks", b"v")
    await pending
    for again in (lambda: pending.send(None), lambda: pending.throw(LookupError())):
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            again()
    pending.close()
    assert taker.batch.count == (1 if now == 0.0 else 0)


async def test_never_awaiting_it_is_warned_of(kernel: ModuleType) -> None:
    taker = writer(kernel)
    with pytest.warns(RuntimeWarning, match=r"coroutine '.*Writer\.enqueue' was never awaited"):
        taker.enqueue("clicks", b"v")
    assert taker.batch.count == 0


async def test_closing_it_before_it_began_appends_nothing(kernel: ModuleType) -> None:
    taker = writer(kernel)
    pending = taker.enqueue("clicks", b"v")
    pending.close()
    with pytest.raises(RuntimeError, match="cannot reuse"):
        await pending
    assert taker.batch.count == 0


async def test_what_is_thrown_into_it_before_it_began_is_raised(kernel: ModuleType) -> None:
    taker = writer(kernel)
    pending = taker.enqueue("clicks", b"v")
    with pytest.raises(LookupError, match="thrown"):
        pending.throw(LookupError("thrown"))
    with pytest.raises(RuntimeError, match="cannot reuse"):
        await pending
    assert taker.batch.count == 0


async def test_what_is_thrown_into_it_reaches_where_it_waits(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.now = 1.0
    pending = taker.enqueue("clicks", b"v")
    pending.send(None)
    with pytest.raises(LookupError, match="thrown") as caught:
        pending.throw(LookupError("thrown"))
    assert "sleep" in {entry.name for entry in caught.traceback}


async def test_it_is_neither_copied_nor_pickled(kernel: ModuleType) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="pickle"):
            attempt(pending)
    await pending


def kind_of(it: object) -> Any:
    return type(it)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "called": lambda kind: kind(),
    "called with arguments": lambda kind: kind("clicks", b"v"),
}


@pytest.mark.parametrize("maker", MAKERS)
async def test_only_the_method_makes_one(kernel: ModuleType, maker: str) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    with pytest.raises(TypeError):
        MAKERS[maker](kind_of(pending))
    pending.close()


METHODS: dict[str, Callable[[Any], Any]] = {
    "send": lambda it: it.send(None),
    "next": lambda it: next(it.__await__()),
    "throw": lambda it: it.throw(LookupError()),
    "close": lambda it: it.close(),
    "an attribute": lambda it: it.cr_frame,
    "begin": lambda it: it.__init__(),
}


@pytest.mark.parametrize("method", METHODS)
async def test_one_without_a_call_refuses_everything(method: str) -> None:
    pending = writer(kernels.load("c")).enqueue("clicks", b"v")
    kind = kind_of(pending)
    pending.close()
    with pytest.raises(TypeError):
        METHODS[method](kind.__new__(kind))


async def test_awaiting_one_without_a_call_is_refused() -> None:
    pending = writer(kernels.load("c")).enqueue("clicks", b"v")
    kind = kind_of(pending)
    pending.close()
    with pytest.raises(TypeError, match="cannot create 'coroutine' instances"):
        await kind.__new__(kind)


async def test_a_traced_call_does_the_same(kernel: ModuleType) -> None:
    """The interpreter takes another way then."""
    taker = writer(kernel)

    def ignore(*_: object) -> None:
        pass

    sys.setprofile(ignore)
    try:
        assert (await taker.enqueue("clicks", b"v")).index == 0
        taker.now = 1.0
        assert await taker.enqueue("clicks", b"v") == LONG_WAY
    finally:
        sys.setprofile(None)


async def test_it_lets_go_of_what_it_was_given(kernel: ModuleType) -> None:
    taker = writer(kernel)
    values = [bytes([number]) * 50 for number in range(4)]
    before = [sys.getrefcount(value) for value in values]
    for value in values:
        await taker.enqueue("clicks", value, value, 0, 1, [("h", value)])
        taker.enqueue("clicks", value, key=value).close()
        taker.now = 1.0
        await taker.enqueue("clicks", value)
        taker.now = 0.0
    value = None
    assert [sys.getrefcount(value) for value in values] == before


@pytest.mark.parametrize("now", [0.0, 1.0], ids=["at once", "the long way"])
async def test_a_circle_through_it_is_collected(kernel: ModuleType, now: float) -> None:
    class Headers(list[Any]):
        pass

    taker = writer(kernel)
    taker.now = now
    headers = Headers()
    pending = taker.enqueue("clicks", b"v", headers=headers)
    headers.extend([("h", b"x")])
    setattr(headers, "owner", pending)  # noqa: B010  # a circle
    await pending
    gone = weakref.ref(headers)
    del headers, pending
    gc.collect()
    assert gone() is None


# -- in the hands of others -----------------------------------------------------------------------


async def as_task(call: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.create_task(call)


async def gathered(call: Coroutine[Any, Any, Any]) -> Any:
    (result,) = await asyncio.gather(call)
    return result


async def in_time(call: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.wait_for(call, 5)


async def in_a_group(call: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(call)
    return task.result()


async def shielded(call: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.shield(call)


async def one_of_many(call: Coroutine[Any, Any, Any]) -> Any:
    (first,) = asyncio.as_completed([call])
    return await first


async def delegated(call: Coroutine[Any, Any, Any]) -> Any:
    class Waiter:
        def __await__(self) -> Any:
            return (yield from call.__await__())

    return await Waiter()


async def from_another_thread(call: Coroutine[Any, Any, Any]) -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, loop))


@pytest.mark.parametrize("now", [0.0, 1.0], ids=["at once", "the long way"])
@pytest.mark.parametrize(
    "runner",
    [
        as_task,
        gathered,
        in_time,
        in_a_group,
        shielded,
        one_of_many,
        delegated,
        from_another_thread,
    ],
)
async def test_whatever_runs_coroutines_runs_it(
    kernel: ModuleType, runner: Callable[[Any], Any], now: float
) -> None:
    taker = writer(kernel)
    taker.now = now
    result = await runner(taker.enqueue("clicks", b"v"))
    assert (result == LONG_WAY) == (now == 1.0)
    assert taker.batch.count == (1 if now == 0.0 else 0)


@pytest.mark.parametrize("now", [0.0, 1.0], ids=["at once", "the long way"])
async def test_anyio_starts_it(kernel: ModuleType, now: float) -> None:
    taker = writer(kernel)
    taker.now = now
    async with anyio.create_task_group() as group:
        group.start_soon(taker.enqueue, "clicks", b"v")
        group.start_soon(functools.partial(taker.enqueue, "clicks", value=b"v"))
    assert taker.batch.count == (2 if now == 0.0 else 0)


async def test_a_task_cancelled_before_its_first_step_has_appended_nothing(
    kernel: ModuleType,
) -> None:
    taker = writer(kernel)
    task = asyncio.create_task(taker.enqueue("clicks", b"v"))
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), taker.batch.count) == (True, 0)


async def test_a_task_cancelled_on_the_long_way_ends_there(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.now = 1.0
    task = asyncio.create_task(taker.enqueue("clicks", b"v"))
    await asyncio.sleep(0)
    assert "Writer.enqueue() running at" in repr(task)
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), taker.asked) == (True, 1)


# -- a method -------------------------------------------------------------------------------------


async def test_the_method_is_a_coroutine_function_to_all_who_ask(kernel: ModuleType) -> None:
    kind = writer_class(kernel)
    method: Any
    for method in (kind(0).enqueue, kind.enqueue):
        assert inspect.iscoroutinefunction(method)
        assert asyncio.iscoroutinefunction(method)  # pyright: ignore[reportDeprecated] who asks
        assert inspect.getdoc(method) == "Append a record."
        assert method.__name__ == "enqueue"
        assert method.__qualname__.endswith("Writer.enqueue")
        assert method.__module__ == __name__
    assert inspect.isfunction(kind.enqueue)
    assert inspect.ismethod(kind(0).enqueue)
    assert list(inspect.signature(kind(0).enqueue).parameters) == [
        "topic",
        "value",
        "key",
        "partition",
        "timestamp",
        "headers",
    ]
    assert inspect.signature(kind.enqueue).parameters["headers"].default == ()


@pytest.mark.parametrize("instance", [True, False])
async def test_a_mock_of_the_class_can_be_awaited(kernel: ModuleType, instance: bool) -> None:
    kind = writer_class(kernel)
    mock: Any = create_autospec(kind, instance=True) if instance else create_autospec(kind)(0)
    assert isinstance(mock.enqueue, AsyncMock)
    mock.enqueue.return_value = 7
    assert await mock.enqueue("clicks", b"v") == 7
    with pytest.raises(TypeError, match="missing a required argument: 'topic'"):
        mock.enqueue()


async def test_a_subclass_may_have_its_own(kernel: ModuleType) -> None:
    quiet: Any = writer_class(kernel)

    class Loud(quiet):
        async def enqueue(self, topic: str, value: Any = None, **rest: Any) -> Any:
            parent: Any = super()
            return await parent.enqueue(topic, value and value.upper(), **rest)

    taker: Any = Loud(1 << 16)
    await taker.enqueue("clicks", b"v", key=None)
    assert b"V" in taker.batch.seal()


async def test_an_instance_may_have_its_own(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.enqueue = AsyncMock(return_value=7)
    assert await taker.enqueue("clicks") == 7
