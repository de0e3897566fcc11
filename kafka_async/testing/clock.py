"""An event loop on virtual time, to test time-outs, back-offs and sessions without waiting.

The loop's clock stands still while a callback is ready; otherwise it jumps to the next timer. A
test of a 45 s session takes only the time of its Python code, and always runs in the same order.
Sockets, pipes and processes, which depend on real time, raise. Executors run in place, as
`Supervisor.offload` does under this loop.

A test that would hang fails with the list of waiting tasks: when no timer is left, or after a day
of virtual time (periodic timers never run out).

    def test_session_expires():
        run_virtual(my_coroutine())

With pytest-asyncio, set the loop in your conftest.py, for all tests or for tests with a marker:

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
    """The code under test would wait forever, or used a call that virtual time does not support."""


class VirtualClockEventLoop(asyncio.SelectorEventLoop):
    """Runs callbacks on virtual time, from `start` to at most `start + limit` seconds.

    The loop opens no sockets: connect through `MemoryNetwork`, in `foundation/memory_network.py`.
    """

    virtual_time = True

    def __init__(self, start: float = 0.0, limit: float = DAY) -> None:
        self._now = start
        self._end = start + limit
        super().__init__(_JumpingSelector(self._advance))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def block(self, seconds: float) -> None:
        """Advance the time as during a call that blocks the loop: no callback runs."""
        self._advance(seconds)

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call `func(*args)` in place: a thread would run on real time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # raised where the future is awaited
            future.set_exception(error)
        return future

    def _advance(self, seconds: float | None) -> None:
        if seconds is None:
            raise VirtualTimeError(f"no callback or timer is left; {self._waiting()}")
        if self._now + seconds > self._end:
            raise VirtualTimeError(f"virtual time ran out at {self._now:g} s; {self._waiting()}")
        self._now += seconds

    def _waiting(self) -> str:
        tasks = [task for task in asyncio.all_tasks(self) if not task.done()]
        lines = sorted(f"\n  {task.get_name()}: {_place(task)}" for task in tasks)
        return f"waiting:{''.join(lines)}"


class _JumpingSelector(selectors.BaseSelector):
    """Advances virtual time instead of waiting, unless another thread has woken the loop."""

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


def _unsupported(name: str) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise VirtualTimeError(
            f"loop.{name}() works in real time, which a virtual clock does not have: "
            "connect through kafka_async.testing.MemoryNetwork, or use an ordinary event loop"
        )

    return fail


UNSUPPORTED_METHODS = (
    *("create_connection", "create_server", "create_datagram_endpoint", "create_unix_connection"),
    *("create_unix_server", "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe"),
    *("sock_connect", "sock_accept", "sock_recv", "sock_recv_into", "sock_sendall", "sendfile"),
    *("getaddrinfo", "getnameinfo", "subprocess_exec", "subprocess_shell"),
    *("add_reader", "add_writer"),
)
for _name in UNSUPPORTED_METHODS:
    setattr(VirtualClockEventLoop, _name, _unsupported(_name))


def run_virtual(main: Coroutine[Any, Any, T], *, start: float = 0.0, limit: float = DAY) -> T:
    """Run a coroutine on virtual time.

    Args:
        main: The coroutine.
        start: Virtual time at the start, in seconds.
        limit: Maximum virtual time that may pass, in seconds (default: a day).

    Returns:
        The result of the coroutine.

    Raises:
        VirtualTimeError: The coroutine would wait forever, or longer than `limit`.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualClockEventLoop(start, limit)) as runner:
        return runner.run(main)
