"""An event loop whose time jumps: time-outs, back-offs and sessions are tested without waiting.

The loop's clock stands still while anything can run, and jumps to the next timer when nothing can.
So a test of a 45 s session takes as long as its Python does, and always runs in the same order.
What would make time real again is refused: sockets, files and processes. Executors run in place, as
`Supervisor.offload` does under this loop.

A test that would hang fails at once, with the tasks that wait: when there is no timer left, and
when a day of virtual time has passed (periodic timers never run out).

    def test_session_expires():
        run_virtual(my_coroutine())

With pytest-asyncio, name the loop in your conftest.py, for all tests or for those with a marker:

    def pytest_asyncio_loop_factories(config, item):
        return {"virtual": VirtualClockEventLoop}
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
DAY = 86_400.0


class VirtualTimeError(RuntimeError):
    """The code under test would never go on, or asked for what virtual time cannot give."""


class VirtualClockEventLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop on virtual time, which starts at `start` and may reach `start + limit`.

    Both are seconds. It never opens a socket: connect through `kafka_async.clock.MemoryNetwork`.
    """

    virtual_time = True

    def __init__(self, start: float = 0.0, limit: float = DAY) -> None:
        self._now = start
        self._end = start + limit
        super().__init__(_JumpingSelector(self._advance))

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call `func(*args)` in place: a thread would bring real time back."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # it is the caller's, who awaits the future
            future.set_exception(error)
        return future

    def _advance(self, seconds: float | None) -> None:
        if seconds is None:
            raise VirtualTimeError(f"nothing will ever happen again; {self._waiting()}")
        if self._now + seconds > self._end:
            raise VirtualTimeError(f"virtual time ran out at {self._now:g} s; {self._waiting()}")
        self._now += seconds

    def _waiting(self) -> str:
        tasks = [task for task in asyncio.all_tasks(self) if not task.done()]
        lines = sorted(f"\n  {task.get_name()}: {_place(task)}" for task in tasks)
        return f"waiting:{''.join(lines)}"


class _JumpingSelector(selectors.BaseSelector):
    """What the loop sleeps in. It looks for a wake-up from another thread, and else moves time."""

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        self._real = selectors.DefaultSelector()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(0)
        if not events and (timeout is None or timeout > 0):
            self._advance(timeout)
        return events

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


def _place(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack(limit=1)
    if not stack:
        return "not started"
    code = stack[0].f_code
    return f"{code.co_qualname} ({code.co_filename}:{stack[0].f_lineno})"


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise VirtualTimeError(
            f"loop.{name}() works in real time, which a virtual clock does not have: "
            "connect through kafka_async.clock.MemoryNetwork, or use an ordinary event loop"
        )

    return refuse


REFUSED = (
    *("create_connection", "create_server", "create_datagram_endpoint", "create_unix_connection"),
    *("create_unix_server", "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe"),
    *("sock_connect", "sock_accept", "sock_recv", "sock_recv_into", "sock_sendall", "sendfile"),
    *("getaddrinfo", "getnameinfo", "subprocess_exec", "subprocess_shell"),
    *("add_reader", "add_writer"),
)
for _name in REFUSED:
    setattr(VirtualClockEventLoop, _name, _refusal(_name))


def run_virtual(main: Coroutine[Any, Any, T], *, start: float = 0.0, limit: float = DAY) -> T:
    """Run a coroutine to its end on a virtual clock, and return what it returns.

    Raises:
        VirtualTimeError: it would have waited for ever, or beyond `limit` virtual seconds.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualClockEventLoop(start, limit)) as runner:
        return runner.run(main)
