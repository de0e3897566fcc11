"""`enqueue` and `enqueue_nowait` of the kernel: an awaitable that appends, and a call that does."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import inspect
import pickle
import sys
import time
import warnings
import weakref
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.kernel import kernels

pytestmark = pytest.mark.asyncio

TIME = 1_700_000_000_000
LONG_WAY = "the long way"


def writer(kernel: ModuleType, capacity: int = 1 << 16) -> Any:
    """Return an appender of the topic "clicks", which returns LONG_WAY where it cannot append."""
    return writer_class(kernel)(capacity)


def writer_class(kernel: Any) -> Any:
    appender: Any = kernel.RecordAppender

    class Writer(appender):
        def __init__(self, capacity: int) -> None:
            self.now = 0.0
            self.asked = 0
            self.batch = kernel.OpenBatch(None, capacity)
            self.batches = kernel.TopicOpenBatches()
            self.batches.partitions, self.batches.sticky = 2, 0
            self.batches.open(0, self.batch)
            self._set_clock(lambda: self.now)
            self._fast_until = self._nowait_until = 1.0
            self._stamp = TIME
            self._add_topic("clicks", self.batches)

        async def _enqueue(self, *arguments: Any) -> Any:
            self.asked += 1
            await asyncio.sleep(0)
            return self._enqueue_nowait(*arguments)

        def _enqueue_nowait(self, *arguments: Any) -> Any:
            topic, value, key, headers, _, timestamp = arguments
            self.asked += 1
            if self.now < 1.0 and self._batches(topic) is not None:
                stamp = TIME if timestamp is None else timestamp
                kernel.OpenBatch(None, 1 << 16).append(stamp, key, value, headers)  # its error
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


async def test_records_of_many_topics_find_their_batches(kernel: ModuleType) -> None:
    taker = writer(kernel)
    other, batches = kernel.OpenBatch(None, 1 << 16), kernel.TopicOpenBatches()
    batches.partitions = 1
    batches.open(0, other)
    taker._add_topic("views", batches)
    for _ in range(3):
        await taker.enqueue("clicks", b"v")
        await taker.enqueue("".join(["view", "s"]), b"v", b"key")
        await taker.enqueue("".join(["cli", "cks"]), b"v")
    batches.sticky = 0
    taker.enqueue_nowait("views", b"v")
    assert (taker.batch.count, other.count, taker.asked) == (6, 4, 0)
    taker._add_topic("clicks", batches)
    await taker.enqueue("clicks", b"v")
    assert (taker.batch.count, other.count) == (6, 5)


async def test_sticky_partition_and_its_batch_may_change_in_any_order(kernel: ModuleType) -> None:
    taker = writer(kernel)
    second = kernel.OpenBatch(None, 1 << 16)
    taker.batches.sticky = 1
    assert await taker.enqueue("clicks", b"v") == LONG_WAY
    taker.batches.open(1, second)
    await taker.enqueue("clicks", b"v")
    taker.batches.close(1)
    assert await taker.enqueue("clicks", b"v") == LONG_WAY
    taker.batches.sticky = 0
    await taker.enqueue("clicks", b"v")
    taker.batches.partitions = 0
    assert await taker.enqueue("clicks", b"v") == LONG_WAY
    assert (taker.batch.count, second.count) == (1, 1)


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
    (lambda call: call(), "argument"),
    (lambda call: call(value=b"v"), "argument"),
    (lambda call: call("clicks", topic="clicks"), "multiple values for .*argument 'topic'"),
    (lambda call: call("clicks", b"v", time=1), "unexpected keyword argument 'time'"),
    (lambda call: call("clicks", 1, 2, 3, 4, 5, 6), "positional arguments"),
]


@pytest.mark.parametrize("method", ["enqueue", "enqueue_nowait"])
@pytest.mark.parametrize(("call", "words"), WRONG)
async def test_wrong_arguments_are_refused_at_the_call(
    kernel: ModuleType, method: str, call: Callable[[Any], Any], words: str
) -> None:
    taker = writer(kernel)
    with pytest.raises(TypeError, match=rf"{method}\(\) .*{words}"):
        call(getattr(taker, method))
    assert taker.asked == 0


def late(taker: Any) -> None:
    taker.now = 1.0


def closed(taker: Any) -> None:
    taker.batches.close(0)


def shut(taker: Any) -> None:
    taker._disable_fast_path()


@pytest.mark.parametrize("change", [late, closed, shut])
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
async def test_an_invalid_record_raises_when_its_call_is_awaited(
    kernel: ModuleType, arguments: dict[str, Any], error: type[Exception]
) -> None:
    taker = writer(kernel)
    pending = taker.enqueue(**{"topic": "clicks", "value": b"v", **arguments})
    with pytest.raises(error):
        await pending
    with pytest.raises(error):
        taker.enqueue_nowait(**{"topic": "clicks", "value": b"v", **arguments})
    assert taker.batch.count == 0


@pytest.mark.parametrize("stamp", [-2, (1 << 63) - 1])
async def test_a_clock_that_is_no_timestamp_goes_the_long_way(
    kernel: ModuleType, stamp: int
) -> None:
    taker = writer(kernel)
    taker._stamp = stamp
    assert await taker.enqueue("clicks", b"v") == LONG_WAY
    assert taker.enqueue_nowait("clicks", b"v") == LONG_WAY
    assert (await taker.enqueue("clicks", b"v", timestamp=0)).timestamp == 0


async def test_a_sealed_batch_takes_nothing(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.batch.seal()
    with pytest.raises(Exception, match="the batch is sealed"):
        taker.batches.append(TIME, b"k", b"v")
    assert await taker.enqueue("clicks", b"v", partition=0) == LONG_WAY


# -- without waiting ------------------------------------------------------------------------------


async def test_nowait_appends_at_the_call(kernel: ModuleType) -> None:
    taker = writer(kernel)
    deliveries = [taker.enqueue_nowait("clicks", b"v"), taker.enqueue_nowait("clicks", *FULL)]
    assert [delivery.index for delivery in deliveries] == [0, 1]
    alone = kernel.OpenBatch(None, 1 << 16)
    alone.append(TIME, None, b"v")
    alone.append(77, b"key", b"value", HEADERS)
    assert taker.batch.seal() == alone.seal()
    assert taker.asked == 0


@pytest.mark.parametrize("change", [late, closed, shut])
async def test_nowait_leaves_the_rest_to_its_subclass(
    kernel: ModuleType, change: Callable[[Any], None]
) -> None:
    taker = writer(kernel)
    taker.enqueue_nowait("clicks", b"v")
    change(taker)
    assert taker.enqueue_nowait("clicks", b"v") == LONG_WAY
    assert (taker.batch.count, taker.asked) == (1, 1)


async def test_each_call_has_its_own_time_limit(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker._nowait_until = -1.0
    assert taker.enqueue_nowait("clicks", b"v") == LONG_WAY
    assert (await taker.enqueue("clicks", b"v")).index == 0
    taker._fast_until, taker._nowait_until = -1.0, 1.0
    assert taker.enqueue_nowait("clicks", b"v").index == 1
    assert await taker.enqueue("clicks", b"v") == LONG_WAY


def writer_on_monotonic_time(kernel: ModuleType) -> Any:
    """Return an appender whose windows are open for an hour of the machine's time."""
    taker = writer(kernel)
    taker._set_clock(time.monotonic)
    taker._add_topic("clicks", taker.batches)
    taker._fast_until = taker._nowait_until = time.monotonic() + 3600
    return taker


CALLS_PER_READ = 16
CLOCK_MONOTONIC_COARSE = 6  # of Linux; elsewhere each call reads the clock


async def test_reads_the_monotonic_clock_within_sixteen_calls(kernel: ModuleType) -> None:
    taker = writer_on_monotonic_time(kernel)
    await taker.enqueue("clicks", b"v")
    taker.enqueue_nowait("clicks", b"v")
    taker._fast_until = taker._nowait_until = time.monotonic()
    awaited = [await taker.enqueue("clicks", b"v") for _ in range(CALLS_PER_READ)]
    assert awaited[-1] == LONG_WAY
    at_once = [taker.enqueue_nowait("clicks", b"v") for _ in range(CALLS_PER_READ)]
    assert at_once[-1] == LONG_WAY
    assert 2 <= taker.batch.count <= 2 + 2 * CALLS_PER_READ


async def test_reads_the_monotonic_clock_after_a_tick_of_the_timer(kernel: ModuleType) -> None:
    taker = writer_on_monotonic_time(kernel)
    await taker.enqueue("clicks", b"v")
    taker._fast_until = taker._nowait_until = time.monotonic()
    if sys.platform == "linux":
        tick = time.clock_gettime(CLOCK_MONOTONIC_COARSE)
        while time.clock_gettime(CLOCK_MONOTONIC_COARSE) == tick:
            pass
    assert await taker.enqueue("clicks", b"v") == LONG_WAY
    assert taker.enqueue_nowait("clicks", b"v") == LONG_WAY
    assert taker.batch.count == 1


async def test_closing_the_window_needs_no_reading_of_the_clock(kernel: ModuleType) -> None:
    taker = writer_on_monotonic_time(kernel)
    await taker.enqueue("clicks", b"v")
    taker._disable_fast_path()
    assert await taker.enqueue("clicks", b"v") == LONG_WAY
    assert taker.enqueue_nowait("clicks", b"v") == LONG_WAY
    assert taker.batch.count == 1


# -- an awaitable ---------------------------------------------------------------------------------

WAYS = pytest.mark.parametrize("now", [0.0, 1.0], ids=["now", "the long way"])


async def test_it_is_an_ordinary_awaitable(kernel: ModuleType) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    assert inspect.isawaitable(pending)
    assert isinstance(pending, Awaitable)
    assert not inspect.iscoroutine(pending)
    assert not asyncio.iscoroutine(pending)
    assert type(pending).__name__ == "EnqueueCall"
    assert pending.__class__ is type(pending)
    await pending


@WAYS
async def test_it_can_be_awaited_once(kernel: ModuleType, now: float) -> None:
    taker = writer(kernel)
    taker.now = now
    pending = taker.enqueue("clicks", b"v")
    await pending
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        await pending
    assert taker.batch.count == (1 if now == 0.0 else 0)


async def test_never_awaiting_it_is_warned_of(kernel: ModuleType) -> None:
    taker = writer(kernel)
    await taker.enqueue("clicks", b"v")
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="enqueue.* was never awaited"):
            taker.enqueue("clicks", b"v")
    assert taker.batch.count == 1


async def test_a_warning_that_is_an_error_is_not_raised_where_a_call_is_dropped(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[Any] = []

    def note(failure: Any) -> None:
        unraisable.append(failure.exc_type)

    monkeypatch.setattr(sys, "unraisablehook", note)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer(kernel).enqueue("clicks", b"v")
    assert unraisable == [RuntimeWarning]


async def test_its_iterator_ends_with_the_handle(kernel: ModuleType) -> None:
    taker = writer(kernel)
    ends: list[StopIteration] = []
    for index in range(3):
        iterator = taker.enqueue("clicks", b"v").__await__()
        with pytest.raises(StopIteration) as end:
            next(iterator)
        ends.append(end.value)
        assert end.value.value.index == index
        with pytest.raises((StopIteration, RuntimeError)):
            next(iterator)
    assert [end.value.index for end in ends] == [0, 1, 2]


async def test_it_suspends_where_its_coroutine_does(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.now = 1.0
    iterator = taker.enqueue("clicks", b"v").__await__()
    assert next(iterator) is None
    with pytest.raises(StopIteration) as end:
        next(iterator)
    assert end.value.value == LONG_WAY


async def test_an_exception_thrown_into_it_reaches_its_coroutine(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.now = 1.0
    iterator: Any = taker.enqueue("clicks", b"v").__await__()
    next(iterator)
    with pytest.raises(LookupError, match="thrown") as caught:
        iterator.throw(LookupError("thrown"))
    assert "sleep" in {entry.name for entry in caught.traceback}


async def test_many_calls_may_be_pending_at_a_time(kernel: ModuleType) -> None:
    taker = writer(kernel)
    calls = [taker.enqueue("clicks", b"%d" % number) for number in range(50)]
    indexes = [(await call).index for call in calls]
    del calls
    assert indexes == list(range(50))
    assert (await taker.enqueue("clicks", b"v")).index == 50


async def test_a_call_outlives_its_appender(kernel: ModuleType) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    gc.collect()
    assert (await pending).index == 0


def kind_of(it: object) -> Any:
    return type(it)


async def test_it_is_neither_copied_nor_pickled_nor_made(kernel: ModuleType) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="pickle"):
            attempt(pending)
    await pending
    kind: Any = kind_of(pending)
    with pytest.raises(TypeError):
        kind()


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
        taker.enqueue_nowait("clicks", value, value, 0, 1, [("h", value)])
        with pytest.warns(RuntimeWarning):
            taker.enqueue("clicks", value, key=value)
        taker.now = 1.0
        await taker.enqueue("clicks", value)
        taker.now = 0.0
    value = None
    assert [sys.getrefcount(value) for value in values] == before


@WAYS
async def test_it_lets_go_of_its_appender_and_its_handle(kernel: ModuleType, now: float) -> None:
    class Outcome:
        done = True

    taker = writer(kernel)
    outcome = Outcome()
    taker.batches.open(0, kernel.OpenBatch(outcome, 1 << 16))
    gone = weakref.ref(outcome)
    for _ in range(3):
        await taker.enqueue("clicks", b"v")
    taker.now = now
    await taker.enqueue("clicks", b"v")
    taker.batches.close(0)
    del outcome
    gc.collect()
    assert gone() is None
    appender = weakref.ref(taker)
    del taker
    gc.collect()
    assert appender() is None


@WAYS
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


async def as_future(call: Awaitable[Any]) -> Any:
    return await asyncio.ensure_future(call)


async def gathered(call: Awaitable[Any]) -> Any:
    (result,) = await asyncio.gather(call)
    return result


async def in_time(call: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(call, 5)


async def shielded(call: Awaitable[Any]) -> Any:
    return await asyncio.shield(call)


async def one_of_many(call: Awaitable[Any]) -> Any:
    (first,) = asyncio.as_completed([call])
    return await first


async def delegated(call: Awaitable[Any]) -> Any:
    class Waiter:
        def __await__(self) -> Any:
            return (yield from call.__await__())

    return await Waiter()


async def in_a_group(call: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await call

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run())
    return task.result()


@WAYS
@pytest.mark.parametrize(
    "runner", [as_future, gathered, in_time, shielded, one_of_many, delegated, in_a_group]
)
async def test_every_way_to_await_runs_it(
    kernel: ModuleType, runner: Callable[[Any], Any], now: float
) -> None:
    taker = writer(kernel)
    taker.now = now
    result = await runner(taker.enqueue("clicks", b"v"))
    assert (result == LONG_WAY) == (now == 1.0)
    assert taker.batch.count == (1 if now == 0.0 else 0)


async def test_create_task_wants_a_coroutine_and_says_so(kernel: ModuleType) -> None:
    call: Any = writer(kernel).enqueue("clicks", b"v")
    with pytest.raises(TypeError, match=r"a coroutine was expected, got .*EnqueueCall"):
        await asyncio.create_task(call)
    await call


@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
async def test_a_task_cancelled_before_its_first_step_has_appended_nothing(
    kernel: ModuleType,
) -> None:
    taker = writer(kernel)
    task = asyncio.ensure_future(taker.enqueue("clicks", b"v"))
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), taker.batch.count) == (True, 0)


async def test_a_task_cancelled_on_the_long_way_ends_there(kernel: ModuleType) -> None:
    taker = writer(kernel)
    taker.now = 1.0
    task = asyncio.ensure_future(taker.enqueue("clicks", b"v"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), taker.asked) == (True, 1)


# -- a method -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["enqueue", "enqueue_nowait"])
async def test_the_method_says_what_it_takes(kernel: ModuleType, name: str) -> None:
    method = getattr(writer_class(kernel), name)
    parameters = inspect.signature(method).parameters
    assert list(parameters) == [
        "self",
        "topic",
        "value",
        "key",
        "partition",
        "timestamp",
        "headers",
    ]
    assert parameters["headers"].default == ()
    assert (inspect.getdoc(method) or "").startswith("Append a record to its batch; ")
    assert not inspect.iscoroutinefunction(method)


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
