"""`kafka_async.run`: its result, and the orderly shutdown on signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import pytest

import kafka_async

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(params=["uvloop", "asyncio"], autouse=True)
def loop_of_choice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    return request.param


@contextmanager
def ends_with(number: signal.Signals) -> Generator[None]:
    """Check that the program ends by a signal, and that the signal's handler is the former one."""
    before = signal.getsignal(number)
    kind, text = (KeyboardInterrupt, "") if number is signal.SIGINT else (SystemExit, "143")
    with pytest.raises(kind) as caught:
        yield
    assert str(caught.value) == text
    assert signal.getsignal(number) is before


async def kill_and_wait(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    await asyncio.sleep(3600)


def test_returns_the_result_of_main() -> None:
    async def main() -> int:
        await asyncio.sleep(0)
        return 7

    assert kafka_async.run(main()) == 7


def test_is_refused_where_an_event_loop_runs() -> None:
    async def main() -> None:
        raise AssertionError

    async def notebook() -> None:
        with pytest.raises(RuntimeError, match=r"one runs already .*: await the coroutine there"):
            kafka_async.run(main())  # The coroutine is closed: "never awaited" would be an error.

    kafka_async.run(notebook())


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_cancels_main_and_runs_its_cleanup(number: signal.Signals) -> None:
    steps: list[str] = []

    async def main() -> None:
        try:
            await kill_and_wait(number)
        finally:
            await asyncio.sleep(0)
            steps.append("closed")

    with ends_with(number):
        kafka_async.run(main())
    assert steps == ["closed"]


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_before_the_first_event_loop_iteration_prevents_main_from_starting(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    run = asyncio.Runner.run

    def run_after_a_signal(runner: asyncio.Runner, *arguments: Any) -> object:
        os.kill(os.getpid(), number)
        return run(runner, *arguments)

    async def main() -> None:
        steps.append("started")
        async with asyncio.timeout(10):  # Ends the test if the signal is lost.
            await asyncio.sleep(3600)

    monkeypatch.setattr(asyncio.Runner, "run", run_after_a_signal)
    with ends_with(number):
        kafka_async.run(main())
    assert steps == []


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("ended", [False, True], ids=["in its last step", "after its end"])
def test_signal_after_the_last_step_of_main_ends_the_program(
    number: signal.Signals, ended: bool
) -> None:
    def kill(_: object) -> None:
        os.kill(os.getpid(), number)

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        if ended:
            task.add_done_callback(kill)
        else:
            kill(task)
        return 7

    with ends_with(number):
        kafka_async.run(main())


@pytest.mark.parametrize("number", SIGNALS)
def test_returns_the_result_of_main_that_catches_the_cancellation(number: signal.Signals) -> None:
    async def main() -> str:
        try:
            await kill_and_wait(number)
        except asyncio.CancelledError:
            return "in order"
        return "not cancelled"

    assert kafka_async.run(main()) == "in order"


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_in_another_thread_wakes_the_event_loop(number: signal.Signals) -> None:
    """Delivers the signal to a thread other than the one with the event loop's system call."""
    outcomes: list[bool] = []

    def kill() -> None:
        threading.Event().wait(0.05)  # The event loop should wait by then; it need not.
        signal.pthread_kill(threading.get_ident(), number)

    async def main() -> None:
        thread = threading.Thread(target=kill)
        thread.start()
        timeout = asyncio.timeout(10)
        try:
            async with timeout:
                await asyncio.sleep(3600)
        finally:
            thread.join()
            outcomes.append(timeout.expired())

    with ends_with(number):
        kafka_async.run(main())
    assert outcomes == [False]


def test_logs_errors_of_closing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        try:
            await kill_and_wait(signal.SIGTERM)
        except asyncio.CancelledError as error:
            error.add_note("Stopping the producer: 3 records were not delivered")
            raise

    with caplog.at_level(logging.WARNING), pytest.raises(SystemExit):
        kafka_async.run(main())
    assert "SIGTERM: Stopping the producer: 3 records were not delivered" in caplog.text


def test_raises_a_cancellation_without_a_signal() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        kafka_async.run(main())


def test_does_not_replace_a_handler_of_the_application() -> None:
    received: list[int] = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))

    async def main() -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        return "not cancelled"

    try:
        assert kafka_async.run(main()) == "not cancelled"
    finally:
        signal.signal(signal.SIGTERM, former)
    assert received == [signal.SIGTERM]


def test_does_not_handle_signals_in_another_thread() -> None:
    async def main() -> Callable[..., object] | int | None:
        return signal.getsignal(signal.SIGTERM)

    async def outside() -> Callable[..., object] | int | None:
        return await asyncio.to_thread(kafka_async.run, main())

    assert asyncio.run(outside()) is signal.SIG_DFL


STUCK = """
import asyncio, sys, os, signal
if sys.argv[1] == "asyncio":
    sys.modules["uvloop"] = None
import kafka_async

async def main():
    try:
        print("ready", flush=True)
        await asyncio.sleep(3600)
    finally:
        print("closing", flush=True)
        {stuck}

kafka_async.run(main())
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("stuck", ["await asyncio.sleep(3600)", "while True: pass"])
def test_second_signal_kills_the_process(
    number: signal.Signals, stuck: str, loop_of_choice: str
) -> None:
    """Sends it while closing hangs, and while closing blocks the event loop."""
    program = [sys.executable, "-c", STUCK.format(stuck=stuck), loop_of_choice]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.stdout.readline() == "closing\n"
            process.send_signal(number)
            assert process.wait(timeout=60) == -number
        finally:
            process.kill()


def test_error_for_a_function_says_to_call_it() -> None:
    async def serve() -> None:
        """Is not called."""

    program: Any = serve
    with pytest.raises(TypeError, match=r"call it, as run\(serve\(\)\)"):
        kafka_async.run(program)
    with pytest.raises(TypeError, match=r"not int: write run\(main\(\)\)"):
        kafka_async.run(cast("Any", 7))
