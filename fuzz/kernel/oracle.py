"""What must hold: one answer from both kernels, and no exception that is not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, cast

from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from kafka_async.kernel import Record

SHOWN = 300
# A sentence of ours, a topic, two numbers; it has no room for the input.
LONGEST_MESSAGE = 300

fields: Callable[[Record], tuple[object, ...]] = attrgetter(
    *("topic", "partition", "offset", "timestamp", "timestamp_type"),
    *("key", "value", "headers", "leader_epoch"),
)
"""All of a record, in a form that compares between the kernels."""


class Finding(AssertionError):
    """The kernel did what it must not do."""


class Refusal(NamedTuple):
    """An error as an answer: of both kernels it must be the same."""

    kind: str
    message: str
    place: tuple[object, ...]


def answer(function: Callable[[], object], *also: type[Exception]) -> object:
    """What the function returns, or the error of ours (or of `also`) that it raised."""
    try:
        return function()
    except (KafkaError, *also) as error:
        if not isinstance(error, KafkaError):
            return Refusal(type(error).__name__, "", ())  # Python's own words, which Cython changes
        message = str(error)
        if len(message) > LONGEST_MESSAGE:
            raise Finding(f"an error of {len(message)} characters") from error
        names = ("topic", "partition", "offset")
        place = tuple(getattr(error, name, None) for name in names)
        return Refusal(type(error).__name__, message, place)


def all_fields(records: Iterable[Record]) -> list[tuple[object, ...]]:
    """The fields of each record."""
    return list(map(fields, records))


def same(what: str, compiled: object, pure: object) -> None:
    """Raise Finding unless the kernels say the same."""
    if compiled != pure:
        ours, theirs = compiled, pure
        if isinstance(compiled, list) and isinstance(pure, list):
            lists = cast("list[object]", compiled), cast("list[object]", pure)
            ours, theirs = _first_difference(*lists)
        left, right = repr(ours)[:SHOWN], repr(theirs)[:SHOWN]
        raise Finding(f"the kernels differ on {what}:\n  compiled: {left}\n  python:   {right}")


def _first_difference(compiled: list[object], pure: list[object]) -> tuple[object, object]:
    for ours, theirs in zip(compiled, pure, strict=False):
        if ours != theirs:
            return ours, theirs
    return f"{len(compiled)} of them", f"{len(pure)} of them"


def holds(claim: bool, what: str) -> None:
    """Raise Finding unless the claim is true."""
    if not claim:
        raise Finding(what)
