"""The promises that must hold for every input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kafka_async.errors import CorruptRecordError, IllegalStateError
from kafka_async.protocol.spec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.kernel import Record
    from kafka_async.protocol.message import Message

MEMORY_FACTOR: Final = 32
"""Bytes of memory per byte of input, or per byte of decompressed input."""

MESSAGE_FACTOR: Final = 64
"""The same for a message, whose shortest strings become objects of 80 bytes."""

MEMORY_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of memory that no input may exceed, whatever its size."""

CPU_SECONDS: Final = 0.050
CPU_BYTES: Final = 64 * 1024
"""Maximum CPU seconds per this number of input bytes, or of decompressed bytes."""

CPU_FLOOR: Final = 0.002
"""CPU seconds that any input may take: the fixed cost of a call."""

MAX_ERROR_TEXT: Final = 300
"""Maximum characters of an error's text."""

MAX_CARRIED: Final = 64
"""Maximum consecutive bytes of the input that an error may contain."""

_MAX_SHOWN: Final = 300  # characters of a value in a finding

fields: Callable[[Record], tuple[object, ...]] = attrgetter(
    *("topic", "partition", "offset", "timestamp", "timestamp_type"),
    *("key", "value", "headers", "leader_epoch"),
)
"""Returns all fields of a record, for comparison between the kernels."""


class Finding(AssertionError):
    """Raised for a broken promise."""


class RaisedError(NamedTuple):
    """Holds an exception as a result; both kernels must raise the same."""

    kind: str
    message: str
    place: tuple[object, ...]


def require(condition: object, message: str) -> None:
    """Raise Finding unless the condition is true."""
    if not condition:
        raise Finding(message)


def result_of(function: Callable[[], object], *also: type[Exception], data: bytes = b"") -> object:
    """Return the result of a function, or the documented error or `also` that it raised.

    The error may not contain the input `data`.
    """
    try:
        return function()
    except (CorruptRecordError, IllegalStateError) as error:
        check_error_message(error, data)
        place = tuple(getattr(error, name, None) for name in ("topic", "partition", "offset"))
        return RaisedError(type(error).__name__, str(error), place)
    except also as error:
        return RaisedError(type(error).__name__, "", ())  # messages of Python and Cython differ


def check_error_message(error: Exception, data: bytes) -> None:
    """Require that the error for an input is short and does not contain the input."""
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    require(len(text) <= MAX_ERROR_TEXT, f"an error of {len(text)} characters")
    if len(data) <= MAX_CARRIED:
        return
    for text_of_input, width in ((data.decode("latin-1"), 1), (data.hex(), 2)):
        size = width * (MAX_CARRIED + 1)
        runs = (text[at : at + size] for at in range(len(text) - size + 1))
        require(
            not any(run in text_of_input for run in runs),
            f"an error that carries its input: {text}",
        )


def all_fields(records: Iterable[Record]) -> list[tuple[object, ...]]:
    """Return the fields of each record."""
    return list(map(fields, records))


def require_equal(what: str, one: object, other: object) -> None:
    """Raise Finding unless both are equal: the results of both kernels, or before and after."""
    if one != other:
        values: tuple[object, object] = (one, other)
        if isinstance(one, list) and isinstance(other, list):
            values = _first_difference(cast("list[object]", one), cast("list[object]", other))
        shown = "\n".join(f"  {repr(value)[:_MAX_SHOWN]}" for value in values)
        raise Finding(f"{what} differ:\n{shown}")


def _first_difference(one: list[object], other: list[object]) -> tuple[object, object]:
    for left, right in zip(one, other, strict=False):
        if left != right:
            return left, right
    return f"{len(one)} of them", f"{len(other)} of them"


def check_round_trip(message: Message, version: int) -> None:
    """Require that a decoded message can be encoded and decodes to the same."""
    written = message.encode(version)
    again = type(message).decode(written, version)
    name = f"{type(message).__name__} version {version}"
    require(same(again, message), f"{name} does not come back the same")
    require(again.encode(version) == written, f"{name} is not written the same again")


def same(one: object, other: object) -> bool:
    """Return True if two values are equal; NaN equals NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    if isinstance(one, Struct) and type(one) is type(other):
        fields = [*(field.name for field in one.SPEC.fields), "unknown_tagged_fields"]
        return all(same(getattr(one, name), getattr(other, name)) for name in fields)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        ones, others = cast("Sequence[object]", one), cast("Sequence[object]", other)
        return len(ones) == len(others) and all(map(same, ones, others))
    return one == other


def allowed_memory(size: int, overhead: int, factor: int = MEMORY_FACTOR) -> int:
    """Return the bytes of memory that an input of `size` bytes may take."""
    return min(factor * size + overhead, MEMORY_LIMIT)


def allowed_cpu(size: int) -> float:
    """Return the CPU seconds that an input of `size` bytes may take."""
    return max(CPU_FLOOR, CPU_SECONDS * size / CPU_BYTES)
