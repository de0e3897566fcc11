"""A future for those who ask pure modules for one: nothing waits for it here."""

from __future__ import annotations

from typing import Any


class FakePromise:
    """Says whether it was fulfilled, once."""

    def __init__(self) -> None:
        self.fulfilled = False
        self.cancelled = False

    def done(self) -> bool:
        return self.fulfilled or self.cancelled

    def set_result(self, result: Any, /) -> None:
        assert not self.done()
        self.fulfilled = True

    def add_done_callback(self, callback: Any, /) -> None:
        raise AssertionError("there is no loop to call it")

    def __await__(self) -> Any:
        raise AssertionError("nothing waits here")
