"""Functions that are called at an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVarTuple

Args = TypeVarTuple("Args")


class Listeners(Generic[*Args]):
    """Functions that are called at an event, in the order in which they were added."""

    __slots__ = ("_functions",)

    def __init__(self) -> None:
        self._functions: list[Callable[[*Args], object]] = []

    def add(self, function: Callable[[*Args], object]) -> Callable[[], None]:
        """Add a function; return a function that removes it, which may be called again."""
        self._functions.append(function)

        def remove() -> None:
            if function in self._functions:
                self._functions.remove(function)

        return remove

    def notify(self, *args: *Args) -> None:
        """Call the functions; those that one of them adds are called the next time."""
        for function in list(self._functions):
            function(*args)
