"""What must hold of every input: the promises that a fuzzer tries to break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kafka_async.protocol.message import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.protocol.message import Message

MEMORY_FACTOR: Final = 32
"""Bytes of memory that a byte of input, or a byte that it decompresses to, may cost."""

MESSAGE_FACTOR: Final = 64
"""The same for a message, whose shortest texts become objects of 80 bytes."""

MEMORY_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of memory that no input may cost, whatever its size."""

CPU_SECONDS: Final = 0.050
CPU_BYTES: Final = 64 * 1024
"""At most so much CPU for so many bytes of input, or bytes that it decompresses to."""

CPU_FLOOR: Final = 0.002
"""Seconds of CPU that any input may take: what a call costs at all is not the input's doing."""

MAX_ERROR_TEXT: Final = 300
"""Characters of an error's text."""

MAX_CARRIED: Final = 64
"""Bytes of the input, in a row, that an error may carry."""


class Finding(AssertionError):
    """A promise is broken."""


def promise(kept: object, sentence: str) -> None:
    """Raise a Finding that says `sentence` unless the promise is kept."""
    if not kept:
        raise Finding(sentence)


def refused_in_few_words(error: Exception, data: bytes) -> None:
    """An input was refused, with an error that is allowed: it must not carry the input along."""
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    promise(len(text) <= MAX_ERROR_TEXT, f"an error of {len(text)} characters")
    for spelt, width in ((data.decode("latin-1"), 1), (data.hex(), 2)):
        size = width * (MAX_CARRIED + 1)
        runs = (text[at : at + size] for at in range(len(text) - size + 1))
        promise(not any(run in spelt for run in runs), f"an error that carries its input: {text}")


def comes_back(message: Message, version: int) -> None:
    """What was decoded can be encoded, and decodes to the same."""
    written = message.encode(version)
    again = type(message).decode(written, version)
    name = f"{type(message).__name__} version {version}"
    promise(same(again, message), f"{name} does not come back the same")
    promise(again.encode(version) == written, f"{name} is not written the same again")


def same(one: object, other: object) -> bool:
    """Whether two values are equal, where a float that is no number equals another such."""
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
    """Return the bytes of memory that an input of `size` bytes may cost."""
    return min(factor * size + overhead, MEMORY_LIMIT)


def allowed_cpu(size: int) -> float:
    """Seconds of CPU that an input of `size` bytes may take."""
    return max(CPU_FLOOR, CPU_SECONDS * size / CPU_BYTES)
