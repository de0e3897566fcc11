"""No response costs more than 32 times its bytes: the greediest that each decoder would take.

A message costs most where its elements are smallest, so each array of each message is filled with
elements that have nothing in them. Fuzzing would have to be lucky to find these.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fuzz.codecs import DECODERS
from fuzz.measure import memory_peak
from fuzz.oracle import MEMORY_FACTOR
from kafka_async.protocol.spec import STRING, Array, Field, FieldType, Fixed, Sized
from tests.protocol.samples import label

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message, Struct

NEWEST = list(dict(DECODERS).items())
FIRST_FLEXIBLE = [pair for pair in DECODERS if pair[1] == pair[0].FLEXIBLE_FROM]

MANY = 400
OVERHEAD = 4096
"""Bytes that any message may cost: the message itself, and a list that has room to grow."""


def smallest(kind: type[Struct], version: int) -> Any:
    """A structure that is written in the fewest bytes."""
    made = kind()
    for field in fields(kind, version):
        nullable = field.nullable.contains(version)
        setattr(made, field.name, None if nullable else smallest_value(field.type, version))
    return made


def smallest_value(kind: FieldType, version: int) -> object:
    if isinstance(kind, Fixed):
        return kind.zero
    if isinstance(kind, Sized):
        return "" if kind is STRING else b""
    return [] if isinstance(kind, Array) else smallest(kind, version)


def fields(kind: type[Struct], version: int) -> Iterator[Field]:
    return (each for each in kind.SPEC.fields if each.versions.contains(version))


def greedy(kind: type[Struct], version: int, many: int) -> Iterator[tuple[str, Any]]:
    """The structure with many elements in one of its arrays, or of those inside; by its path."""
    for field in fields(kind, version):
        for path, value in greedy_values(field.type, version, many):
            made = smallest(kind, version)
            setattr(made, field.name, value)
            yield f"{field.name}{path}", made


def greedy_values(kind: FieldType, version: int, many: int) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, Fixed | Sized):
        return
    if not isinstance(kind, Array):
        yield from ((f".{path}", value) for path, value in greedy(kind, version, many))
        return
    element = kind.element
    yield f"[{many}]", [smallest_value(element, version)] * many
    if not isinstance(element, Fixed | Sized):
        for path, value in greedy(element, version, many):
            yield f"[1].{path}", [value]
        for path, value in greedy(element, version, 1):
            yield f"[{many}].{path}", [value] * many


@pytest.mark.parametrize(
    ("message", "version"), dict.fromkeys([*NEWEST, *FIRST_FLEXIBLE]), ids=label
)
def test_the_greediest_messages_cost_what_is_promised(message: type[Message], version: int) -> None:
    written = {path: made.encode(version) for path, made in greedy(message, version, MANY)}
    for raw in written.values():
        message.decode(raw, version)  # whose first use has its price
    tracemalloc.start()
    try:
        peaks = {
            path: memory_peak(lambda raw=raw: message.decode(raw, version))
            for path, raw in written.items()
        }
    finally:
        tracemalloc.stop()
    costs = {path: (peaks[path] - OVERHEAD) / len(raw) for path, raw in written.items()}
    assert {path: cost for path, cost in costs.items() if cost > MEMORY_FACTOR} == {}
    arrays = [each for each in fields(message, version) if isinstance(each.type, Array)]
    assert len(costs) >= len(arrays)
