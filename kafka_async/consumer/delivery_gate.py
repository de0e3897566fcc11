"""Between the application, which takes records, and the group, which takes partitions away.

Records that were handed out are in the application's hands until it asks for more or commits them.
Only then may their partition go: so whoever asks, works and commits before it asks again never
finds that a partition has left under its hands. The group holds the gate, waits for that moment,
tells the listener, and releases the gate. An application that does not come back within
max_poll_interval_ms has lost its place.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from anyio import move_on_after

from kafka_async.errors import IllegalStateError
from kafka_async.group.membership import QuietError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Gate:
    """Who may go on: the application or the group.

    `in_hand` says whether the application has records that it was neither seen to be done with nor
    has committed; `progress` changes whenever it takes one more.
    """

    def __init__(
        self, in_hand: Callable[[], bool], progress: Callable[[], object], patience: float
    ) -> None:
        self._in_hand = in_hand
        self._progress = progress
        self._patience = patience
        self._seen: object = None
        self._asking: asyncio.Task[object] | None = None
        self._telling: asyncio.Task[object] | None = None
        self._holders = 0
        self._closed = False
        self.on_hold: Callable[[], None] = _nothing
        """Called when nothing more may be handed out."""
        self._last_asked = asyncio.get_running_loop().time()
        self._ever_asked = False
        self._moved = asyncio.Event()
        self.arrived = asyncio.Event()
        """Set whenever there may be something new for who asks."""

    # -- the application's side -------------------------------------------------------------------

    @property
    def asking(self) -> bool:
        """Whether the application waits for records right now."""
        return self._asking is not None

    @property
    def held(self) -> bool:
        """Whether nothing may be handed out for now."""
        return self._holders > 0

    def __enter__(self) -> None:
        """The application asks for records, and is done with those it had."""
        task = asyncio.current_task()
        if task is not None and task is self._telling:
            raise IllegalStateError("a rebalance listener cannot ask its consumer for records")
        if self._asking is not None:
            raise IllegalStateError(
                "another task waits for this consumer's records: poll, poll_batches and async for "
                "exclude each other"
            )
        self._asking = task
        self._ever_asked = True
        self._stamp()
        self._moved.set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """It has what it gets."""
        self._asking = None
        self._stamp()

    async def wait(self, deadline: float | None) -> bool:
        """Wait until there may be something new; False at the deadline (the loop's time)."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.arrived.wait()
        except TimeoutError:
            return False
        self.arrived.clear()
        return True

    def moved(self) -> None:
        """What is in hand may have changed."""
        self._moved.set()

    def close(self) -> None:
        """The application is gone: nothing is in its hands."""
        self._closed = True
        self._moved.set()
        self.arrived.set()

    # -- the group's side -------------------------------------------------------------------------

    def last_asked(self) -> float:
        """When the application was last seen to ask, in the loop's time."""
        if self._asking is not None or self._seen != self._progress():
            self._stamp()
        return self._last_asked

    def asked_at(self) -> float | None:
        """Return the loop's time when the application last asked for records; None before."""
        return self.last_asked() if self._ever_asked else None

    def hold(self) -> None:
        """Hand nothing out until `release`."""
        self._holders += 1
        self.on_hold()

    def release(self) -> None:
        """Undo `hold`."""
        self._holders -= 1
        self.arrived.set()

    def telling(self, task: asyncio.Task[object] | None) -> None:
        """This task runs the application's listener now; None: nobody does."""
        self._telling = task

    async def at_rest(self, *, patient: bool = False) -> None:
        """Wait until nothing is in the application's hands, or it asks for more.

        Raises:
            QuietError: it has not asked for max_poll_interval_ms, unless this is `patient`.
        """
        while not (self._closed or self._asking is not None or not self._in_hand()):
            left = self.last_asked() + self._patience - self._now()
            if left <= 0 and not patient:
                raise QuietError
            self._moved.clear()
            with move_on_after(None if patient else left):
                await self._moved.wait()

    def _stamp(self) -> None:
        self._last_asked = self._now()
        self._seen = self._progress()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _nothing() -> None:
    pass
