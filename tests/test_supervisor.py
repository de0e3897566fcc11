"""Tests of the supervisor of a client's tasks."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio

from kafka_async.errors import ClientClosedError, IllegalStateError, KafkaError, TaskDiedError
from kafka_async.foundation.supervisor import SupervisedTask, Supervisor, wait_shielded
from kafka_async.hooks import Hooks, TaskDied, emit_task_died

pytestmark = pytest.mark.asyncio


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest_asyncio.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    started = Supervisor("test")
    await started.start()
    yield started
    await started.stop()


async def test_can_be_stopped_by_another_task() -> None:
    supervisor = Supervisor("test")
    await asyncio.create_task(supervisor.start())
    task = supervisor.spawn(forever, name="waits")
    await asyncio.create_task(supervisor.stop())
    assert task.ended
    with pytest.raises(ClientClosedError, match="test is closed"):
        supervisor.check()


@pytest.mark.parametrize("raised", [None, ValueError("broken")], ids=["spawn", "error"])
async def test_task_that_runs_on_after_the_end_died_only_of_another_error(
    caplog: pytest.LogCaptureFixture, raised: Exception | None
) -> None:
    """Its result arrives before it is cancelled, and then it cannot spawn another task."""
    supervisor = Supervisor("test")
    await supervisor.start()
    result = asyncio.get_running_loop().create_future()
    refused: list[ClientClosedError] = []

    async def spawn_after_result() -> None:
        await result
        if raised is not None:
            raise raised
        try:
            supervisor.spawn(forever, name="never starts")
        except ClientClosedError as error:
            refused.append(error)
            raise

    task = supervisor.spawn(spawn_after_result, name="runs on")
    await asyncio.sleep(0)  # The task waits for the result.
    result.set_result(None)
    await supervisor.stop()
    assert task.ended
    assert len(refused) == (raised is None)
    assert ("died" in caplog.text) == (raised is not None)
    assert (supervisor.failure is None) == (raised is None)


async def test_check_before_start_raises() -> None:
    with pytest.raises(ClientClosedError, match="async with"):
        Supervisor("test").check()


async def test_died_task_notifies_listeners_and_cancels_other_tasks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = Hooks()
    observed: list[TaskDied] = []
    hooks.listen(TaskDied, observed.append)
    supervisor = Supervisor("test", partial(emit_task_died, hooks))
    await supervisor.start()
    failures: list[KafkaError] = []
    supervisor.on_failure(failures.append)
    other = supervisor.spawn(forever, name="other")

    async def dies() -> None:
        raise ValueError("why")

    supervisor.spawn(dies, name="dies")
    await other.wait()
    with pytest.raises(TaskDiedError, match="test dies died") as raised:
        supervisor.check()
    assert isinstance(raised.value.__cause__, ValueError)
    assert failures == [supervisor.failure]
    assert [(event.task, str(event.error)) for event in observed] == [("test dies", "why")]
    assert "test dies died: why" in caplog.text
    await supervisor.stop()


async def test_task_can_be_cancelled_before_its_first_step(supervisor: Supervisor) -> None:
    started = False

    async def body() -> None:
        nonlocal started
        await asyncio.sleep(0)
        started = True

    task = supervisor.spawn(body, name="never")
    task.cancel()
    await task.wait()
    assert not started
    supervisor.check()


async def test_tasks_do_not_inherit_the_callers_context(supervisor: Supervisor) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("request")
    variable.set("the caller's")
    seen: list[str] = []

    async def body() -> None:
        seen.append(variable.get("nothing"))

    await supervisor.spawn(body, name="reads").wait()
    await supervisor.stop()
    assert seen == ["nothing"]


async def test_check_raises_in_another_event_loop(supervisor: Supervisor) -> None:
    errors: list[Exception] = []

    async def elsewhere() -> None:
        try:
            supervisor.check()
        except IllegalStateError as error:
            errors.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    await asyncio.get_running_loop().run_in_executor(None, thread.join)
    await supervisor.stop()
    assert len(errors) == 1
    assert "belongs to the event loop" in str(errors[0])


async def test_check_raises_in_forked_process(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(IllegalStateError, match="its fork 1"):
            supervisor.check()


@pytest.mark.parametrize(
    ("library", "module", "function"),
    [
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ],
)
@pytest.mark.parametrize("patched", ["socket", "thread", "time"])
async def test_start_names_the_library_that_patched_sockets_or_threads(
    monkeypatch: pytest.MonkeyPatch, library: str, module: str, function: str, patched: str
) -> None:
    """The stage of the environments tests this with the libraries themselves."""
    stand_in = SimpleNamespace(**{function: patched.__eq__})
    monkeypatch.setitem(sys.modules, module, cast("Any", stand_in))
    supervisor = Supervisor("test")
    if patched == "time":
        await supervisor.start()
        await supervisor.stop()
    else:
        with pytest.raises(IllegalStateError, match=f"^{library} has replaced"):
            await supervisor.start()


async def test_offload_runs_in_threads_of_the_client(supervisor: Supervisor) -> None:
    thread = await supervisor.offload(threading.current_thread)
    assert thread.name.startswith("test pool")


async def test_hanging_functions_for_credentials_do_not_delay_others(
    supervisor: Supervisor,
) -> None:
    release = threading.Event()
    hanging = [
        asyncio.create_task(supervisor.offload_credentials(release.wait, 60)) for _ in range(5)
    ]
    await asyncio.sleep(0)  # The tasks start.
    thread = await supervisor.offload(threading.current_thread)
    assert thread.name.startswith("test pool")
    assert not any(task.done() for task in hanging)
    release.set()
    assert await asyncio.gather(*hanging) == [True] * 5


async def test_cannot_be_started_twice(supervisor: Supervisor) -> None:
    with pytest.raises(IllegalStateError, match="make a new one"):
        await supervisor.start()
    await supervisor.stop()


async def test_runs_no_task_but_those_spawned() -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert supervisor.hosting
    await supervisor.stop()
    assert not supervisor.hosting


async def test_callback_of_the_event_loop_can_spawn_and_cancel(supervisor: Supervisor) -> None:
    """Protocols do so; there anyio knows no current task, which the suite requires of it."""
    loop = asyncio.get_running_loop()
    spawned: asyncio.Future[SupervisedTask] = loop.create_future()
    loop.call_soon(lambda: spawned.set_result(supervisor.spawn(forever, name="from a callback")))
    task = await spawned
    await asyncio.sleep(0)  # The task begins.
    loop.call_soon(task.cancel)
    await task.wait()
    supervisor.check()


async def test_task_cancelled_by_asyncio_before_its_first_step_ends(
    supervisor: Supervisor,
) -> None:
    """As asyncio.run does with all tasks at its end."""
    before = asyncio.all_tasks()
    spawned = supervisor.spawn(forever, name="never begins")
    (task,) = asyncio.all_tasks() - before
    task.cancel()
    await spawned.wait()
    assert spawned.ended


async def test_wait_shielded_continues_after_cancellations() -> None:
    finish = asyncio.Event()
    work = asyncio.ensure_future(finish.wait())
    waiting = asyncio.create_task(wait_shielded(work))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    finish.set()
    assert isinstance(await waiting, asyncio.CancelledError)
    assert work.done()
    assert await wait_shielded(work) is None


@pytest.mark.virtual_clock
async def test_wait_shielded_ends_at_deadline() -> None:
    work = asyncio.ensure_future(forever())
    loop = asyncio.get_running_loop()
    assert await wait_shielded(work, loop.time() + 3) is None
    assert loop.time() == 3
    assert not work.done()
    work.cancel()
