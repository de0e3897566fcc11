"""Threads of jobs, with a test double of a Spark session."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from kafka_async.errors import IllegalStateError, InvalidConfigurationError
from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator import threads
from kafka_async.spark.orchestrator.context import JobContext
from kafka_async.spark.orchestrator.threads import JobThreads

pytestmark = pytest.mark.asyncio


class Session:
    """A session whose interruption ends the job that waits in `action`."""

    def __init__(self) -> None:
        self.tags: dict[threading.Thread, list[str]] = {}
        self.interrupted: list[str] = []
        self.interruption = threading.Event()
        self.in_action = threading.Event()

    @property
    def sparkContext(self) -> Any:
        return self

    def addJobTag(self, tag: str) -> None:
        self.tags.setdefault(threading.current_thread(), []).append(tag)

    def cancelJobsWithTag(self, tag: str) -> None:
        self.interrupted.append(tag)
        self.interruption.set()

    def action(self) -> None:
        self.interruption.clear()
        self.in_action.set()
        assert self.interruption.wait(30)


def context_of(spark: Any = None) -> JobContext:
    return JobContext(
        spark=spark,
        servers="h:1",
        job="job",
        job_id="1",
        ranges=(OffsetRange("a", 0, 0, 1),),
        params={},
        attempt=1,
    )


def resumed() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def call(jobs: JobThreads, function: Any, context: JobContext, **options: Any) -> Any:
    options = {"tags": ("t",), "pool": None, "resumed": resumed(), **options}
    return await jobs.call(function, context, **options)


async def until(event: threading.Event) -> None:
    while not event.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_calls_the_function_in_a_tagged_thread_with_the_callers_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("caller")
    session = Session()

    def function(context: JobContext) -> tuple[str, bool]:
        return variable.get(), threading.current_thread() is threading.main_thread()

    jobs = JobThreads(session, 1)
    result = await call(jobs, function, context_of(), tags=("a", "b"))
    assert result == ("caller", False)
    assert list(session.tags.values()) == [["a", "b"]]


async def test_raises_the_functions_error() -> None:
    def function(_: JobContext) -> None:
        raise ValueError("bad row")

    with pytest.raises(ValueError, match="bad row"):
        await call(JobThreads(None, 1), function, context_of())


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()],
    ids=repr,
)
async def test_exception_that_asyncio_interprets_becomes_an_ordinary_error(
    error: BaseException,
) -> None:
    def function(_: JobContext) -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await call(JobThreads(None, 1), function, context_of())


async def test_interrupts_every_action_until_the_thread_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "INTERRUPT_INTERVAL", 0.001)
    session = Session()

    def function(context: JobContext) -> None:
        for _ in range(3):
            session.action()
        assert context.stop_requested

    jobs = JobThreads(session, 1)
    running = asyncio.create_task(call(jobs, function, context_of()))
    await until(session.in_action)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert set(session.interrupted) == {"t"}
    assert len(session.interrupted) >= 3
    assert jobs.running == 0


async def test_thread_that_does_not_stop_keeps_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STOP_TIMEOUT", 0.01)
    started, may_end = threading.Event(), threading.Event()

    def stubborn(_: JobContext) -> None:
        started.set()
        assert may_end.wait(30)

    jobs = JobThreads(None, 1)
    running = asyncio.create_task(call(jobs, stubborn, context_of()))
    await until(started)
    running.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await running
    assert "occupies one of max_concurrency" in caught.value.__notes__[0]
    waiting = asyncio.create_task(call(jobs, lambda _: "next", context_of()))  # pyright: ignore
    await asyncio.sleep(0)
    assert jobs.running == 1
    may_end.set()
    assert await waiting == "next"


async def test_pause_holds_calls_back_that_wait_for_a_slot() -> None:
    started, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def first(_: JobContext) -> None:
        started.set()
        assert may_end.wait(30)

    jobs, switch = JobThreads(None, 1), resumed()
    one = asyncio.create_task(call(jobs, first, context_of()))
    await until(started)
    two = asyncio.create_task(
        call(jobs, lambda _: order.append("two"), context_of(), resumed=switch)  # pyright: ignore
    )
    await asyncio.sleep(0)
    switch.clear()
    may_end.set()
    await one
    await call(jobs, lambda _: order.append("other"), context_of())  # pyright: ignore
    assert order == ["other"]
    switch.set()
    await two
    assert order == ["other", "two"]


class Connect(Session):
    """A session of Spark Connect, which has no SparkContext and tags that every thread can use."""

    @property
    def sparkContext(self) -> Any:
        raise AttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED")

    def addTag(self, tag: str) -> None:
        super().addJobTag(tag)

    def interruptTag(self, tag: str) -> None:
        super().cancelJobsWithTag(tag)


@pytest.mark.parametrize("session", [Session(), Connect()], ids=["classic", "connect"])
async def test_cancellation_ends_an_action_of_either_kind_of_session(session: Session) -> None:
    jobs = JobThreads(session, 1)
    running = asyncio.create_task(call(jobs, lambda _: session.action(), context_of()))  # pyright: ignore
    await until(session.in_action)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert set(session.interrupted) == {"t"}
    assert jobs.running == 0


async def test_pool_needs_a_session_with_a_spark_context() -> None:
    with pytest.raises(InvalidConfigurationError, match="Spark Connect has no scheduler pools"):
        await call(JobThreads(Connect(), 1), lambda _: None, context_of(), pool="p")  # pyright: ignore


async def test_refuses_events_after_the_call() -> None:
    context = context_of()
    context.emit("out", b"v")
    assert [record.value for record in context.close()] == [b"v"]
    with pytest.raises(IllegalStateError, match="has ended"):
        context.emit("out", b"late")
