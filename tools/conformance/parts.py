"""The parts of `make conformance`: functions from options to a result."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS: Final = ("apis", "messages", "refusals", "records", "compression", "principals", "assignors")
"""Modules of this package with a function `run`; each is imported when it runs."""

MAX_SHOWN: Final = 20
"""Maximum number of differences to print per part; the rest are counted."""


@dataclass(frozen=True)
class Options:
    """Options of the command line; `found` are the names in `only` that exist."""

    count: int = 200
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**32))
    only: tuple[str, ...] = ()
    found: set[str] = field(default_factory=set[str], compare=False)

    def selects(self, name: str, version: int) -> bool:
        """Return True if a version of a message, or of another kind of case, is selected."""
        selected = {name, f"{name}:{version}"}.intersection(self.only)
        self.found.update(selected)
        return not self.only or bool(selected)

    def replay(self, *only: str) -> str:
        """Return the command that repeats the run, or only some cases, with the same seed."""
        words = [f"--seed {self.seed} --count {self.count}"]
        words += [f"--only {name}" for name in only or self.only]
        return f'make conformance CONFORMANCE_ARGS="{" ".join(words)}"'


@dataclass
class PartResult:
    """Result of a part: how much was compared, and the first differences with their number."""

    summary: str = ""
    differences: int = 0
    shown: list[str] = field(default_factory=list[str])

    def add_difference(self, options: Options, name: str, what: str) -> None:
        """Add a difference in the case `name`, for example FetchRequest:12."""
        self.differences += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append(f"{name} {what}\n  again: {options.replay(name)}")


def load(part: str) -> Callable[[Options], PartResult]:
    """Import the function of a part."""
    return import_module(f"tools.conformance.{part}").run
