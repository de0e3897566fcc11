"""Tests of `RecordAppender`: `enqueue`, an awaitable that appends, and `enqueue_nowait`."""

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
from tests.kernel.kernels import closed_batch
from tests.rows import row

pytestmark = pytest.mark.asyncio

TIME = 1_700_000_000_000
SLOW_PATH = "slow path"


def writer(kernel: ModuleType, capacity: int = 1 << 16) -> Any:
    """Return an appender of the topic "clicks" whose slow path returns SLOW_PATH."""
    return writer_class(kernel)(capacity)


def writer_class(kernel: Any) -> Any:
    base: Any = kernel.RecordAppender

    class Writer(base):
        def __init__(self, capacity: int) -> None:
            self.now = 0.0
            self.slow_calls = 0
            self.batch = kernel.OpenBatch(None, capacity)
            self.batches = kernel.TopicOpenBatches()
            self.batches.partitions, self.batches.sticky_partition = 2, 0
            self.batches.add(0, self.batch)
            self._set_clock(lambda: self.now)
            self._fast_until = self._nowait_until = 1.0
            self._default_timestamp = TIME
            self._add_topic("clicks", self.batches)

        async def _enqueue(self, *arguments: Any) -> Any:
            self.slow_calls += 1
            await asyncio.sleep(0)
            return self._enqueue_nowait(*arguments)

        def _enqueue_nowait(self, *arguments: Any) -> Any:
            topic, value, key, headers, _, timestamp = arguments
            self.slow_calls += 1
            if self.now < 1.0 and self._batches(topic) is not None:
                stamp = TIME if timestamp is None else timestamp
                kernel.OpenBatch(None, 1 << 16).append(stamp, key, value, headers)  # its error
            return SLOW_PATH

    return Writer


async def assert_slow_path(appender: Any) -> None:
    """Check that both calls use the slow path."""
    assert await appender.enqueue("clicks", b"v") == SLOW_PATH
    assert appender.enqueue_nowait("clicks", b"v") == SLOW_PATH


# -- appending ------------------------------------------------------------------------------------


async def test_enqueue_appends_when_awaited(kernel: ModuleType) -> None:
    appender = writer(kernel)
    first, second = appender.enqueue("clicks", b"1"), appender.enqueue("clicks", b"2")
    assert appender.batch.count == 0
    assert [(await second).index, (await first).index] == [0, 1]
    assert appender.batch.close() == closed_batch(kernel, (TIME, None, b"2"), (TIME, None, b"1"))


async def test_compiled_kernel_appends_without_coroutine() -> None:
    appender = writer(kernels.load("c"))
    for _ in range(100):
        await appender.enqueue("clicks", b"value", key=None)
    assert (appender.batch.count, appender.slow_calls) == (100, 0)


async def test_records_of_several_topics_go_to_their_batches(kernel: ModuleType) -> None:
    appender = writer(kernel)
    other, batches = kernel.OpenBatch(None, 1 << 16), kernel.TopicOpenBatches()
    batches.partitions = 1
    batches.add(0, other)
    appender._add_topic("views", batches)
    for _ in range(3):
        await appender.enqueue("clicks", b"v")
        await appender.enqueue("".join(["view", "s"]), b"v", b"key")
        await appender.enqueue("".join(["cli", "cks"]), b"v")
    batches.sticky_partition = 0
    appender.enqueue_nowait("views", b"v")
    assert (appender.batch.count, other.count, appender.slow_calls) == (6, 4, 0)
    appender._add_topic("clicks", batches)
    await appender.enqueue("clicks", b"v")
    assert (appender.batch.count, other.count) == (6, 5)


async def test_sticky_partition_and_its_batch_may_change_in_any_order(kernel: ModuleType) -> None:
    appender = writer(kernel)
    second = kernel.OpenBatch(None, 1 << 16)
    appender.batches.sticky_partition = 1
    assert await appender.enqueue("clicks", b"v") == SLOW_PATH
    appender.batches.add(1, second)
    await appender.enqueue("clicks", b"v")
    appender.batches.remove(1)
    assert await appender.enqueue("clicks", b"v") == SLOW_PATH
    appender.batches.sticky_partition = 0
    await appender.enqueue("clicks", b"v")
    appender.batches.partitions = 0
    assert await appender.enqueue("clicks", b"v") == SLOW_PATH
    assert (appender.batch.count, second.count) == (1, 1)


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
async def test_accepts_positional_and_keyword_arguments(kernel: ModuleType, how: str) -> None:
    appender = writer(kernel)
    assert (await CALLS[how](appender.enqueue)).timestamp == 77
    assert appender.batch.close() == closed_batch(kernel, (77, b"key", b"value", HEADERS))


@pytest.mark.parametrize("given", range(1, 7))
async def test_omitted_arguments_have_defaults(kernel: ModuleType, given: int) -> None:
    appender = writer(kernel)
    values: Any = ("clicks", *FULL)
    defaults: Any = (None, None, None, 0, TIME, ())
    _, value, key, _, timestamp, headers = values[:given] + defaults[given:]
    if given < 4:  # without a partition the key selects one
        appender.batches.partitions = 1
    await appender.enqueue(*values[:given])
    assert appender.batch.close() == closed_batch(kernel, (timestamp, key, value, headers))


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda call: call(), "argument"),
    (lambda call: call(value=b"v"), "argument"),
    (lambda call: call("clicks", topic="clicks"), "multiple values for .*argument 'topic'"),
    (lambda call: call("clicks", b"v", time=1), "unexpected keyword argument 'time'"),
    (lambda call: call("clicks", 1, 2, 3, 4, 5, 6), "positional arguments"),
]


async def test_wrong_arguments_raise_at_the_call(kernel: ModuleType) -> None:
    for call, words in WRONG:
        for method in ["enqueue", "enqueue_nowait"]:
            with row(call, words, method):
                appender = writer(kernel)
                with pytest.raises(TypeError, match=rf"{method}\(\) .*{words}"):
                    call(getattr(appender, method))
                assert appender.slow_calls == 0


CLOSED: dict[str, Callable[[Any], object]] = {
    "time limit passed": lambda appender: setattr(appender, "now", 1.0),
    "batch removed": lambda appender: appender.batches.remove(0),
    "fast path disabled": lambda appender: appender._disable_fast_path(),
}


@pytest.mark.parametrize("why", CLOSED)
async def test_uses_slow_path_if_fast_path_is_closed(kernel: ModuleType, why: str) -> None:
    appender = writer(kernel)
    await appender.enqueue("clicks", b"v")
    appender.enqueue_nowait("clicks", b"v")
    pending = appender.enqueue("clicks", b"v")
    CLOSED[why](appender)
    assert await pending == SLOW_PATH
    assert appender.enqueue_nowait("clicks", b"v") == SLOW_PATH
    assert (appender.batch.count, appender.slow_calls) == (2, 3)


async def test_record_that_does_not_fit_uses_slow_path(kernel: ModuleType) -> None:
    appender = writer(kernel, capacity=20)
    await appender.enqueue("clicks", b"v" * 10)
    assert (await appender.enqueue("clicks", b"v" * 10), appender.batch.count) == (SLOW_PATH, 1)


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
async def test_invalid_record_raises_when_awaited(
    kernel: ModuleType, arguments: dict[str, Any], error: type[Exception]
) -> None:
    appender = writer(kernel)
    pending = appender.enqueue(**{"topic": "clicks", "value": b"v", **arguments})
    with pytest.raises(error):
        await pending
    with pytest.raises(error):
        appender.enqueue_nowait(**{"topic": "clicks", "value": b"v", **arguments})
    assert appender.batch.count == 0


@pytest.mark.parametrize("stamp", [-2, (1 << 63) - 1])
async def test_invalid_clock_timestamp_uses_slow_path(kernel: ModuleType, stamp: int) -> None:
    appender = writer(kernel)
    appender._default_timestamp = stamp
    await assert_slow_path(appender)
    assert (await appender.enqueue("clicks", b"v", timestamp=0)).timestamp == 0


async def test_closed_batch_accepts_no_record(kernel: ModuleType) -> None:
    appender = writer(kernel)
    appender.batch.close()
    with pytest.raises(Exception, match="the batch is closed"):
        appender.batches.append(TIME, b"k", b"v")
    assert await appender.enqueue("clicks", b"v", partition=0) == SLOW_PATH


# -- without waiting ------------------------------------------------------------------------------


async def test_enqueue_nowait_appends_at_the_call(kernel: ModuleType) -> None:
    appender = writer(kernel)
    deliveries = [appender.enqueue_nowait("clicks", b"v"), appender.enqueue_nowait("clicks", *FULL)]
    assert [delivery.index for delivery in deliveries] == [0, 1]
    expected = closed_batch(kernel, (TIME, None, b"v"), (77, b"key", b"value", HEADERS))
    assert appender.batch.close() == expected
    assert appender.slow_calls == 0


async def test_enqueue_and_enqueue_nowait_have_separate_time_limits(kernel: ModuleType) -> None:
    appender = writer(kernel)
    appender._nowait_until = -1.0
    assert appender.enqueue_nowait("clicks", b"v") == SLOW_PATH
    assert (await appender.enqueue("clicks", b"v")).index == 0
    appender._fast_until, appender._nowait_until = -1.0, 1.0
    assert appender.enqueue_nowait("clicks", b"v").index == 1
    assert await appender.enqueue("clicks", b"v") == SLOW_PATH


def writer_on_monotonic_time(kernel: ModuleType) -> Any:
    """Return an appender with the machine's clock and the fast path open for an hour."""
    appender = writer(kernel)
    appender._set_clock(time.monotonic)
    appender._add_topic("clicks", appender.batches)
    appender._fast_until = appender._nowait_until = time.monotonic() + 3600
    return appender


CALLS_PER_READ = 16
CLOCK_MONOTONIC_COARSE = 6  # of Linux; elsewhere each call reads the clock


async def test_reads_the_monotonic_clock_within_sixteen_calls(kernel: ModuleType) -> None:
    appender = writer_on_monotonic_time(kernel)
    await appender.enqueue("clicks", b"v")
    appender.enqueue_nowait("clicks", b"v")
    appender._fast_until = appender._nowait_until = time.monotonic()
    awaited = [await appender.enqueue("clicks", b"v") for _ in range(CALLS_PER_READ)]
    assert awaited[-1] == SLOW_PATH
    at_once = [appender.enqueue_nowait("clicks", b"v") for _ in range(CALLS_PER_READ)]
    assert at_once[-1] == SLOW_PATH
    assert 2 <= appender.batch.count <= 2 + 2 * CALLS_PER_READ


async def test_reads_the_monotonic_clock_after_a_tick_of_the_timer(kernel: ModuleType) -> None:
    appender = writer_on_monotonic_time(kernel)
    await appender.enqueue("clicks", b"v")
    appender._fast_until = appender._nowait_until = time.monotonic()
    if sys.platform == "linux":
        tick = time.clock_gettime(CLOCK_MONOTONIC_COARSE)
        while time.clock_gettime(CLOCK_MONOTONIC_COARSE) == tick:
            pass
    await assert_slow_path(appender)
    assert appender.batch.count == 1


async def test_disabling_fast_path_takes_effect_without_reading_the_clock(
    kernel: ModuleType,
) -> None:
    appender = writer_on_monotonic_time(kernel)
    await appender.enqueue("clicks", b"v")
    appender._disable_fast_path()
    await assert_slow_path(appender)
    assert appender.batch.count == 1


# -- an awaitable ---------------------------------------------------------------------------------

BOTH_PATHS = pytest.mark.parametrize("now", [0.0, 1.0], ids=["fast path", "slow path"])


async def test_enqueue_returns_an_awaitable(kernel: ModuleType) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    assert inspect.isawaitable(pending)
    assert isinstance(pending, Awaitable)
    assert not inspect.iscoroutine(pending)
    assert not asyncio.iscoroutine(pending)
    assert type(pending).__name__ == "EnqueueCall"
    assert pending.__class__ is type(pending)
    await pending


@BOTH_PATHS
async def test_call_can_be_awaited_once(kernel: ModuleType, now: float) -> None:
    appender = writer(kernel)
    appender.now = now
    pending = appender.enqueue("clicks", b"v")
    await pending
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        await pending
    assert appender.batch.count == (1 if now == 0.0 else 0)


async def test_call_that_is_never_awaited_warns(kernel: ModuleType) -> None:
    appender = writer(kernel)
    await appender.enqueue("clicks", b"v")
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="enqueue.* was never awaited"):
            appender.enqueue("clicks", b"v")
    assert appender.batch.count == 1


async def test_warning_as_error_is_reported_as_unraisable(
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


async def test_iterator_ends_with_the_delivery(kernel: ModuleType) -> None:
    appender = writer(kernel)
    ends: list[StopIteration] = []
    for _ in range(3):
        iterator = appender.enqueue("clicks", b"v").__await__()
        with pytest.raises(StopIteration) as end:
            next(iterator)
        ends.append(end.value)
        with pytest.raises((StopIteration, RuntimeError)):
            next(iterator)
    assert [end.value.index for end in ends] == [0, 1, 2]


async def test_call_suspends_with_its_coroutine(kernel: ModuleType) -> None:
    appender = writer(kernel)
    appender.now = 1.0
    iterator = appender.enqueue("clicks", b"v").__await__()
    assert next(iterator) is None
    with pytest.raises(StopIteration) as end:
        next(iterator)
    assert end.value.value == SLOW_PATH


async def test_exception_thrown_into_call_reaches_its_coroutine(kernel: ModuleType) -> None:
    appender = writer(kernel)
    appender.now = 1.0
    iterator: Any = appender.enqueue("clicks", b"v").__await__()
    next(iterator)
    with pytest.raises(LookupError, match="thrown") as caught:
        iterator.throw(LookupError("thrown"))
    assert "sleep" in {entry.name for entry in caught.traceback}


async def test_many_calls_may_be_pending(kernel: ModuleType) -> None:
    appender = writer(kernel)
    calls = [appender.enqueue("clicks", b"%d" % number) for number in range(50)]
    indexes = [(await call).index for call in calls]
    del calls
    assert indexes == list(range(50))
    assert (await appender.enqueue("clicks", b"v")).index == 50


async def test_call_keeps_its_appender_alive(kernel: ModuleType) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    gc.collect()
    assert (await pending).index == 0


async def test_call_cannot_be_copied_pickled_or_instantiated(kernel: ModuleType) -> None:
    pending = writer(kernel).enqueue("clicks", b"v")
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="pickle"):
            attempt(pending)
    await pending
    with pytest.raises(TypeError):
        pending.__class__()


async def test_call_under_profiler_appends(kernel: ModuleType) -> None:
    """The interpreter calls `__next__` instead of the slot am_send under a profiler."""
    appender = writer(kernel)

    def ignore(*_: object) -> None:
        pass

    sys.setprofile(ignore)
    try:
        assert (await appender.enqueue("clicks", b"v")).index == 0
        appender.now = 1.0
        assert await appender.enqueue("clicks", b"v") == SLOW_PATH
    finally:
        sys.setprofile(None)


async def test_call_releases_its_arguments(kernel: ModuleType) -> None:
    appender = writer(kernel)
    values = [bytes([number]) * 50 for number in range(4)]
    before = [sys.getrefcount(value) for value in values]
    for value in values:
        await appender.enqueue("clicks", value, value, 0, 1, [("h", value)])
        appender.enqueue_nowait("clicks", value, value, 0, 1, [("h", value)])
        with pytest.warns(RuntimeWarning):
            appender.enqueue("clicks", value, key=value)
        appender.now = 1.0
        await appender.enqueue("clicks", value)
        appender.now = 0.0
    value = None
    assert [sys.getrefcount(value) for value in values] == before


@BOTH_PATHS
async def test_call_releases_its_appender_and_delivery(kernel: ModuleType, now: float) -> None:
    class Outcome:
        done = True

    appender = writer(kernel)
    outcome = Outcome()
    appender.batches.add(0, kernel.OpenBatch(outcome, 1 << 16))
    gone = weakref.ref(outcome)
    for _ in range(3):
        await appender.enqueue("clicks", b"v")
    appender.now = now
    await appender.enqueue("clicks", b"v")
    appender.batches.remove(0)
    del outcome
    gc.collect()
    assert gone() is None
    reference = weakref.ref(appender)
    del appender
    gc.collect()
    assert reference() is None


@BOTH_PATHS
async def test_reference_cycle_through_call_is_collected(kernel: ModuleType, now: float) -> None:
    class Headers(list[Any]):
        pass

    appender = writer(kernel)
    appender.now = now
    headers = Headers()
    pending = appender.enqueue("clicks", b"v", headers=headers)
    headers.extend([("h", b"x")])
    setattr(headers, "owner", pending)  # noqa: B010  # a circle
    await pending
    gone = weakref.ref(headers)
    del headers, pending
    gc.collect()
    assert gone() is None


# -- awaited by others ----------------------------------------------------------------------------


async def as_future(call: Awaitable[Any]) -> Any:
    return await asyncio.ensure_future(call)


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


@BOTH_PATHS
@pytest.mark.parametrize("runner", [as_future, delegated, in_a_group])
async def test_call_can_be_awaited_in_every_way(
    kernel: ModuleType, runner: Callable[[Any], Any], now: float
) -> None:
    appender = writer(kernel)
    appender.now = now
    result = await runner(appender.enqueue("clicks", b"v"))
    assert (result == SLOW_PATH) == (now == 1.0)
    assert appender.batch.count == (1 if now == 0.0 else 0)


async def test_create_task_with_call_raises_type_error(kernel: ModuleType) -> None:
    call: Any = writer(kernel).enqueue("clicks", b"v")
    with pytest.raises(TypeError, match=r"a coroutine was expected, got .*EnqueueCall"):
        await asyncio.create_task(call)
    await call


@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
async def test_task_cancelled_before_it_starts_appends_nothing(kernel: ModuleType) -> None:
    appender = writer(kernel)
    task = asyncio.ensure_future(appender.enqueue("clicks", b"v"))
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), appender.batch.count) == (True, 0)


async def test_task_cancelled_on_slow_path_ends(kernel: ModuleType) -> None:
    appender = writer(kernel)
    appender.now = 1.0
    task = asyncio.ensure_future(appender.enqueue("clicks", b"v"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), appender.slow_calls) == (True, 1)


# -- the method -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["enqueue", "enqueue_nowait"])
async def test_method_has_signature_and_docstring(kernel: ModuleType, name: str) -> None:
    method = getattr(writer_class(kernel), name)
    parameters = inspect.signature(method).parameters
    assert " ".join(parameters) == "self topic value key partition timestamp headers"
    assert parameters["headers"].default == ()
    assert (inspect.getdoc(method) or "").startswith("Append a record to its batch")
    assert not inspect.iscoroutinefunction(method)


async def test_subclass_may_override_enqueue(kernel: ModuleType) -> None:
    base: Any = writer_class(kernel)

    class UppercaseWriter(base):
        async def enqueue(self, topic: str, value: Any = None, **rest: Any) -> Any:
            parent: Any = super()
            return await parent.enqueue(topic, value and value.upper(), **rest)

    appender: Any = UppercaseWriter(1 << 16)
    await appender.enqueue("clicks", b"v", key=None)
    assert b"V" in appender.batch.close()


async def test_instance_may_override_enqueue(kernel: ModuleType) -> None:
    appender = writer(kernel)
    appender.enqueue = AsyncMock(return_value=7)
    assert await appender.enqueue("clicks") == 7
