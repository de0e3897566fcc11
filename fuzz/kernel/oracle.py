"""Checks that both kernels return the same and raise only documented exceptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, cast

from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from kafka_async.kernel import Record

MAX_REPR_LENGTH = 300
# Enough for a message with topic, partition and offset, but not for the input.
MAX_MESSAGE_LENGTH = 300

fields: Callable[[Record], tuple[object, ...]] = attrgetter(
    *("topic", "partition", "offset", "timestamp", "timestamp_type"),
    *("key", "value", "headers", "leader_epoch"),
)
"""Returns all fields of a record, for comparison between the kernels."""


class Finding(AssertionError):
    """Raised for a broken promise of the kernel."""


class RaisedError(NamedTuple):
    """Holds an exception as a result; both kernels must raise the same."""

    kind: str
    message: str
    place: tuple[object, ...]


def result_of(function: Callable[[], object], *also: type[Exception]) -> object:
    """Return the result of a function, or the KafkaError or `also` that it raised."""
    try:
        return function()
    except (KafkaError, *also) as error:
        if not isinstance(error, KafkaError):
            return RaisedError(type(error).__name__, "", ())  # messages of Python and Cython differ
        message = str(error)
        if len(message) > MAX_MESSAGE_LENGTH:
            raise Finding(f"an error of {len(message)} characters") from error
        names = ("topic", "partition", "offset")
        place = tuple(getattr(error, name, None) for name in names)
        return RaisedError(type(error).__name__, message, place)


def all_fields(records: Iterable[Record]) -> list[tuple[object, ...]]:
    """Return the fields of each record."""
    return list(map(fields, records))


def require_equal(what: str, compiled: object, pure: object) -> None:
    """Raise Finding unless both kernels have the same result."""
    if compiled != pure:
        ours, theirs = compiled, pure
        if isinstance(compiled, list) and isinstance(pure, list):
            lists = cast("list[object]", compiled), cast("list[object]", pure)
            ours, theirs = _first_difference(*lists)
        left, right = repr(ours)[:MAX_REPR_LENGTH], repr(theirs)[:MAX_REPR_LENGTH]
        raise Finding(f"the kernels differ on {what}:\n  compiled: {left}\n  python:   {right}")


def _first_difference(compiled: list[object], pure: list[object]) -> tuple[object, object]:
    for ours, theirs in zip(compiled, pure, strict=False):
        if ours != theirs:
            return ours, theirs
    return f"{len(compiled)} of them", f"{len(pure)} of them"


def require(condition: bool, message: str) -> None:
    """Raise Finding unless the condition is true."""
    if not condition:
        raise Finding(message)
