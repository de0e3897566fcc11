"""Cancelling a call at every one of its awaits, at several moments of each.

A call is cancelled at its n-th await: some loop turns after it has begun to wait, or (`LATE`) in
the very turn in which what it waits for is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

MOMENTS = (0, 1, 2, 3, 5, 8)
LATE = -1


class Interrupted:
    """A call that cancels its own task at an await; `reached` says whether it got there."""

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
                self._arm(task, waits_for)
            count += 1
            sent = thrown = None
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001  # passed on, to where the call waits
                thrown = error

    def _arm(self, task: asyncio.Task[Any], waits_for: Any) -> None:
        if self._moment == LATE and waits_for is not None:

            def too_late(_: object) -> None:
                task.cancel()

            waits_for.add_done_callback(too_late)
        else:
            after_turns(max(0, self._moment), task.cancel)


def after_turns(turns: int, call: Callable[[], object]) -> None:
    """Call it so many loop turns from now."""
    loop = asyncio.get_running_loop()
    if turns == 0:
        loop.call_soon(call)
    else:
        loop.call_soon(after_turns, turns - 1, call)


async def interrupt_everywhere(
    scene: Callable[[Callable[[Awaitable[Any]], Awaitable[bool]]], Awaitable[None]],
) -> int:
    """Play a scene again and again, its call cancelled elsewhere each time, until it is not.

    `scene(run)` must `await run(call)` once: whether the call was cancelled. The number of awaits.
    """
    for at in range(1000):
        reached = False
        for moment in (*MOMENTS, LATE):

            async def run(call: Awaitable[Any]) -> bool:
                nonlocal reached
                interrupted = Interrupted(call, at, moment)  # noqa: B023  # used within the turn

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
    raise AssertionError("the call never comes to an end")
