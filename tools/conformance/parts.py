"""What `make conformance` runs: a list of parts, functions from options to an outcome."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS: Final = {
    "messages": "tools.conformance.messages:run",
    "refusals": "tools.conformance.refusals:run",
}
"""Every part by name: `module:function`, loaded when it runs."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for.

    Attributes:
        count: how many random things of each kind and version.
        seed: the dice of the whole run.
        only: names to be looked at, as NAME or NAME:VERSION; empty for all.
    """

    count: int = 200
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**32))
    only: tuple[str, ...] = ()

    def wants(self, name: str, version: int) -> bool:
        """Whether a message, or another thing with a name and versions, is asked for."""
        return not self.only or name in self.only or f"{name}:{version}" in self.only


@dataclass
class Outcome:
    """What a part has found.

    Attributes:
        summary: one line for people: how much was compared.
        differences: each a text of one or more lines that begins with the command that replays it.
    """

    summary: str
    differences: list[str] = field(default_factory=list[str])


def load(name: str) -> Callable[[Options], Outcome]:
    """The function of a part."""
    module, _, function = PARTS[name].partition(":")
    return getattr(import_module(module), function)
