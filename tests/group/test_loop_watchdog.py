"""The watchdog logs what blocks an event loop, in one thread that ends with the last member."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async import GroupMember, ShareConsumer
from kafka_async.group import loop_watchdog
from kafka_async.group.loop_watchdog import LoopAction, LoopCheck, LoopWatchdog
from tests.embedded_client import InMemory
from tests.programs import output_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

WAIT, REQUEST, WARN = LoopAction.WAIT, LoopAction.REQUEST_CALLBACK, LoopAction.WARN


def test_loop_that_does_not_run_for_the_limit_is_reported_once() -> None:
    check = LoopCheck(8.0, now=100.0)
    actions = [check.check(now) for now in (100.9, 101.0, 108.9, 109.0, 110.0, 500.0)]
    assert actions == [WAIT, REQUEST, WAIT, WARN, WAIT, WAIT]
    assert check.on_run(501.0) == 400.0


def test_running_loop_is_not_reported() -> None:
    check = LoopCheck(8.0, now=0.0)
    for now in range(1, 100):
        assert check.check(now) is REQUEST
        assert check.check(now + 0.5) is WAIT
        assert check.on_run(now) is None


def test_loop_that_was_blocked_is_watched_again() -> None:
    check = LoopCheck(8.0, now=0.0)
    assert [check.check(now) for now in (1.0, 9.0)] == [REQUEST, WARN]
    check.on_run(20.0)
    assert [check.check(now) for now in (20.5, 21.0, 28.9, 29.0)] == [WAIT, REQUEST, WAIT, WARN]


def test_next_check_is_at_the_next_action() -> None:
    check = LoopCheck(8.0, now=0.0)
    times = [check.next_check_at()]
    for now in (1.0, 9.0):
        check.check(now)
        times.append(check.next_check_at())
    assert times == [1.0, 9.0, None]


class SteppedClock:
    """Stands still until `run`; then each wait of the watchdog takes its time-out, at once."""

    def __init__(self) -> None:
        self._time = 0.0
        self._running = False
        self._changed: threading.Condition | None = None

    def now(self) -> float:
        return self._time

    def wait(self, changed: threading.Condition, timeout: float | None) -> None:
        self._changed = changed
        if self._running and timeout is not None:
            self._time += timeout
        else:
            changed.wait()

    def run(self) -> None:
        self._running = True
        if self._changed is not None:
            with self._changed:
                self._changed.notify_all()

    def stop(self) -> None:
        self._running = False


class Warnings(logging.Handler):
    """Collects warnings, and stops the clock at each."""

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self.error: BaseException | None = None
        self._clock = clock
        self._logged = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self._clock.stop()
        self.messages.append(record.getMessage())
        self._logged.set()
        if self.error is not None:
            raise self.error

    def block_the_loop(self) -> None:
        """Block the caller until a warning is logged."""
        self._logged.clear()
        self._clock.run()
        assert self._logged.wait(60)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def warnings_logged(clock: SteppedClock) -> Iterator[Warnings]:
    handler = Warnings(clock)
    loop_watchdog.logger.addHandler(handler)
    yield handler
    loop_watchdog.logger.removeHandler(handler)


@pytest.fixture
def process_watchdog(clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watchdog, "_process_watchdog", LoopWatchdog(clock))


def watchdog_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if "watchdog" in each.name]


def all_have_ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(60)
    return not any(thread.is_alive() for thread in threads)


@pytest.mark.asyncio
@pytest.mark.may_block  # The test blocks its event loop, which the watchdog reports.
async def test_logs_the_stack_of_what_blocks_the_loop(
    clock: SteppedClock, warnings_logged: Warnings, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog = LoopWatchdog(clock)
    end = watchdog.watch("group slow", 10.0)
    end_second = watchdog.watch("group quick", 3.0)
    (thread,) = watchdog_threads()
    warnings_logged.block_the_loop()
    (message,) = warnings_logged.messages
    assert "has not run for 3.0 s, so group quick, group slow sends" in message
    assert "in block_the_loop" in message
    caplog.set_level(logging.INFO, "kafka_async.group")
    await asyncio.sleep(0)
    assert "the event loop runs again after 3.0 s" in caplog.text
    end_second()
    warnings_logged.block_the_loop()
    assert "has not run for 10.0 s, so group slow sends" in warnings_logged.messages[1]
    end()
    assert all_have_ended([thread])


@pytest.mark.asyncio
@pytest.mark.may_block
async def test_watches_on_after_a_log_handler_has_raised(
    clock: SteppedClock, warnings_logged: Warnings, capsys: pytest.CaptureFixture[str]
) -> None:
    watchdog = LoopWatchdog(clock)
    warnings_logged.error = OSError("disk full")
    end = watchdog.watch("group g", 3.0)
    (thread,) = watchdog_threads()
    for _ in range(2):
        warnings_logged.block_the_loop()
        await asyncio.sleep(0)
    end()
    assert all_have_ended([thread])
    assert len(warnings_logged.messages) == 2
    assert capsys.readouterr().err.count("OSError: disk full") == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.asyncio
@pytest.mark.may_block
async def test_starts_another_thread_after_a_log_handler_has_ended_the_first(
    clock: SteppedClock, warnings_logged: Warnings
) -> None:
    watchdog = LoopWatchdog(clock)
    warnings_logged.error = SystemExit()
    end = watchdog.watch("group g", 3.0)
    threads = watchdog_threads()
    warnings_logged.block_the_loop()
    assert all_have_ended(threads)
    end_second = watchdog.watch("group h", 3.0)
    threads = watchdog_threads()
    assert len(threads) == 1
    end()
    end_second()
    assert all_have_ended(threads)


@pytest.mark.may_block  # The thread is waited for.
def test_thread_ends_although_a_closed_loop_was_not_released(clock: SteppedClock) -> None:
    watchdog = LoopWatchdog(clock)

    async def watch() -> None:
        watchdog.watch("group g", 5.0)

    asyncio.run(watch())
    threads = watchdog_threads()
    clock.run()
    assert all_have_ended(threads)


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with InMemory() as cluster:
        await cluster.cluster.create_topic("t", 1)
        yield cluster


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.may_block
@pytest.mark.parametrize("kind", ["classic", "consumer", "share", "member"])
async def test_members_are_watched_for_half_of_their_session(
    memory: InMemory, kind: str, process_watchdog: None, warnings_logged: Warnings
) -> None:
    limits = {"classic": "3.0", "consumer": "22.5", "share": "22.5", "member": "2.0"}
    member: Any
    if kind == "member":
        member = GroupMember(
            memory.cluster.bootstrap_servers,
            group_id="g",
            protocol_type="test",
            protocols={"p": lambda members: {each.member_id: b"" for each in members}},
            dialer=memory.network,
            session_timeout_ms=4_000,
            loop_watchdog=True,
        )
    elif kind == "share":
        member = ShareConsumer(
            memory.cluster.bootstrap_servers,
            topics=["t"],
            group_id="g",
            dialer=memory.network,
            loop_watchdog=True,
        )
    elif kind == "consumer":
        member = memory.consumer("t", group_id="g", group_protocol=kind, loop_watchdog=True)
    else:
        member = memory.consumer("t", group_id="g", session_timeout_ms=6_000, loop_watchdog=True)
    async with member:
        async with memory.consumer("t", group_id="other", loop_watchdog=True):
            await asyncio.sleep(10)
            threads = watchdog_threads()
            assert len(threads) == 1
        warnings_logged.block_the_loop()
        (message,) = warnings_logged.messages
        assert f"has not run for {limits[kind]} s, so group g sends no heartbeats" in message
        assert "in block_the_loop" in message
    assert all_have_ended(threads)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_there_is_no_watchdog_by_default(memory: InMemory) -> None:
    async with memory.consumer("t", group_id="g"):
        await asyncio.sleep(10)
        assert watchdog_threads() == []


FORKING_PROGRAM = """
import asyncio, os, threading
from kafka_async.group.loop_watchdog import watch_loop

def threads():
    return [each for each in threading.enumerate() if "watchdog" in each.name]

async def watch(name):
    return watch_loop(name, 60.0)

with asyncio.Runner() as runner:
    end = runner.run(watch("parent"))
    (parents,) = threads()
    child = os.fork()
    if child == 0:
        before = threads()
        end_childs = asyncio.run(watch("child"))
        (of_child,) = threads()
        end_childs()
        of_child.join(60)
        os._exit(0 if before == [] and not of_child.is_alive() else 1)
    status = os.waitpid(child, 0)[1]
    alive = parents.is_alive()
    end()
    parents.join(60)
    print(status, alive, parents.is_alive())
"""


def test_fork_has_a_watchdog_of_its_members_only() -> None:
    assert output_of("-W", "ignore", "-c", FORKING_PROGRAM).split() == ["0", "True", "False"]
