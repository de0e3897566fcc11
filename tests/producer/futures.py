"""A future for modules that take a factory of futures; no task awaits it here."""

from __future__ import annotations

from typing import Any


class FakeFuture:
    """Records whether it was completed; that may happen once."""

    def __init__(self) -> None:
        self.completed = False
        self.cancelled = False

    def done(self) -> bool:
        return self.completed or self.cancelled

    def set_result(self, result: Any, /) -> None:
        assert not self.done()
        self.completed = True

    def add_done_callback(self, callback: Any, /) -> None:
        raise AssertionError("there is no loop to call it")

    def __await__(self) -> Any:
        raise AssertionError("nothing waits here")
