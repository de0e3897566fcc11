"""Describes the targets of the fuzzer."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Final

from fuzz.oracle import MEMORY_FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NAMES: Final = ("batches", "responses", "frames", "compression", "sasl")
"""Targets in plain Python, under atheris."""

KERNEL_NAMES: Final = ("sections", "batches", "writing", "responses", "values")
"""Targets of the compiled kernel."""


def _nothing() -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Target:
    """Describes a function of bytes and how it is fuzzed and measured.

    Attributes:
        run: Passes an input to the client and checks every promise.
        subject: Prepares an input and returns a call of the client's code alone, for measurement.
        size: Returns the size of an input, or its decompressed size if that is larger.
        seeds: Yields the first inputs, by name.
        functions: Returns the functions that atheris instruments to guide the fuzzer.
        overhead: Bytes of memory that any input may take, for buffers of a fixed size.
        factor: Bytes of memory per byte of input above that.
        large: Yields inputs of 64 KiB that are measured, not fuzzed.
    """

    run: Callable[[bytes], None]
    subject: Callable[[bytes], Callable[[], object]]
    size: Callable[[bytes], int]
    seeds: Callable[[], Iterable[tuple[str, bytes]]]
    functions: Callable[[], Iterable[FunctionType]] = _nothing
    overhead: int = 256 * 1024
    factor: int = MEMORY_FACTOR
    large: Callable[[], Iterable[bytes]] = _nothing


def load(name: str) -> Target:
    """Return the target of that name, or of a module whose name has dots; import the client."""
    target = importlib.import_module(name if "." in name else f"fuzz.{name}").TARGET
    assert isinstance(target, Target)
    return target


def functions_of(*modules: ModuleType) -> Iterator[FunctionType]:
    """Yield every function and method that these modules define."""
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
    value = getattr(value, "__func__", value)  # of a class method or static method
    if isinstance(value, FunctionType):
        yield value
