"""What can be fuzzed: a name, a function over bytes, and what it starts from."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Final

from fuzz.oracle import MEMORY_FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NAMES: Final = ("batches", "responses", "frames", "compression")
"""Every target; each is the module of its name."""


@dataclass(frozen=True)
class Target:
    """One function over bytes, with all that a fuzzer has to know of it.

    Attributes:
        run: gives an input to the product and holds every promise against what it does.
        subject: the product's part alone, made ready for an input: call what it gives to measure.
        size: how many bytes an input counts for: its own, or those that it decompresses to.
        seeds: inputs to begin with, by name.
        functions: what is instrumented, so that coverage guides the fuzzer.
        overhead: bytes of memory that any input may cost: buffers of a fixed size.
        factor: bytes of memory that a byte of input may cost above that.
    """

    name: str
    run: Callable[[bytes], None]
    subject: Callable[[bytes], Callable[[], object]]
    size: Callable[[bytes], int]
    seeds: Callable[[], Iterator[tuple[str, bytes]]]
    functions: Callable[[], Iterable[FunctionType]]
    overhead: int
    factor: int = MEMORY_FACTOR


def load(name: str) -> Target:
    """The target of that name, or of a module with dots in its name. Imports the product."""
    target = importlib.import_module(name if "." in name else f"fuzz.{name}").TARGET
    assert isinstance(target, Target)
    return target


def functions_of(*modules: ModuleType) -> Iterator[FunctionType]:
    """Every function and method that these modules define."""
    for module in modules:
        for value in vars(module).values():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            yield from _functions(value)
            if isinstance(value, type):
                for member in vars(value).values():
                    yield from _functions(member)


def _functions(value: object) -> Iterator[FunctionType]:
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)  # of what a class or nothing is bound to
    if isinstance(value, FunctionType):
        yield value
