"""Cancels a call at each of its awaits, at several moments of each.

A call is cancelled at its n-th await: some event loop iterations after it has started to wait, or
(`LATE`) in the iteration in which it would continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

MOMENTS = (0, 1, 2, 3, 5, 8)
LATE = -1


class Interrupted:
    """A call that cancels its own task at an await; `reached` is True if it got there."""

    def __init__(self, call: Awaitable[Any], at: int, moment: int) -> None:
        self.reached = False
        self._call = call
        self._at = at
        self._moment = moment

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._call.__await__()
        sent: Any = None
        thrown: BaseException | None = None
        count = 0
        while True:
            try:
                waits_for = steps.send(sent) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                return end.value
            if count == self._at:
                self.reached = True
                self._schedule_cancel(task, waits_for)
            count += 1
            sent = thrown = None
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001  # thrown into the call
                thrown = error

    def _schedule_cancel(self, task: asyncio.Task[Any], waits_for: Any) -> None:
        if self._moment == LATE and waits_for is not None:

            def cancel_late(_: object) -> None:
                task.cancel()

            waits_for.add_done_callback(cancel_late)
        else:
            after_iterations(max(0, self._moment), task.cancel)


def after_iterations(iterations: int, call: Callable[[], object]) -> None:
    """Call a function after a number of event loop iterations."""
    loop = asyncio.get_running_loop()
    if iterations == 0:
        loop.call_soon(call)
    else:
        loop.call_soon(after_iterations, iterations - 1, call)


async def interrupt_everywhere(
    scene: Callable[[Callable[[Awaitable[Any]], Awaitable[bool]]], Awaitable[None]],
) -> int:
    """Run a scene repeatedly, its call cancelled at another await each time, until it is not.

    `scene(run)` must `await run(call)` once, which returns True if the call was cancelled. Returns
    the number of awaits.
    """
    for at in range(1000):
        reached = False
        for moment in (*MOMENTS, LATE):

            async def run(call: Awaitable[Any]) -> bool:
                nonlocal reached
                interrupted = Interrupted(call, at, moment)  # noqa: B023  # used at once

                async def body() -> None:
                    await interrupted

                task = asyncio.ensure_future(body())
                await asyncio.wait({task})
                reached = reached or interrupted.reached
                if not task.cancelled():
                    task.result()
                return task.cancelled()

            await scene(run)
        if not reached:
            return at
    raise AssertionError("the call never returns")
