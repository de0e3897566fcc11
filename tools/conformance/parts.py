"""What `make conformance` runs: a list of parts, functions from options to an outcome."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS: Final = {
    "apis": "tools.conformance.apis:run",
    "messages": "tools.conformance.messages:run",
    "refusals": "tools.conformance.refusals:run",
    "records": "tools.conformance.records:run",
}
"""Every part by name: `module:function`, loaded when it runs."""

SHOWN: Final = 20
"""Differences of one part that are printed; the rest are counted."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for.

    Attributes:
        count: how many random things of each kind and version.
        seed: the dice of the whole run.
        only: names to be looked at, as NAME or NAME:VERSION; empty for all.
        found: those of them that there were.
    """

    count: int = 200
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**32))
    only: tuple[str, ...] = ()
    found: set[str] = field(default_factory=set[str], compare=False)

    def wants(self, name: str, version: int) -> bool:
        """Whether a message, or another thing with a name and versions, is asked for."""
        asked = {name, f"{name}:{version}"}.intersection(self.only)
        self.found.update(asked)
        return not self.only or bool(asked)

    def replay(self, *only: str) -> str:
        """The command that runs everything, or one thing only, again with the same dice."""
        words = [f"--seed {self.seed} --count {self.count}"]
        words += [f"--only {name}" for name in only or self.only]
        return f'make conformance CONFORMANCE_ARGS="{" ".join(words)}"'


@dataclass
class Outcome:
    """What a part has found.

    Attributes:
        summary: one line for people: how much was compared.
        differences: how many there are.
        shown: the first of them, each with the command that replays it.
    """

    summary: str = ""
    differences: int = 0
    shown: list[str] = field(default_factory=list[str])

    def differ(self, options: Options, name: str, what: str) -> None:
        """Note a difference in the thing called `name`, such as FetchRequest:12."""
        self.differences += 1
        if len(self.shown) < SHOWN:
            self.shown.append(f"{name} {what}\n  again: {options.replay(name)}")


def load(part: str) -> Callable[[Options], Outcome]:
    """The function of a part."""
    module, _, function = PARTS[part].partition(":")
    return getattr(import_module(module), function)
