"""What must hold of every input: the promises that a fuzzer tries to break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

MEMORY_FACTOR: Final = 32
"""Bytes of memory that a byte of input, or a byte that it decompresses to, may cost."""

MEMORY_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of memory that no input may cost, whatever its size."""

CPU_SECONDS: Final = 0.050
CPU_BYTES: Final = 64 * 1024
"""At most so much CPU for so many bytes of input, or bytes that it decompresses to."""

CPU_FLOOR: Final = 0.002
"""Seconds of CPU that any input may take: what a call costs at all is not the input's doing."""

MAX_ERROR_TEXT: Final = 300
"""Characters of an error's text: it must not carry the input along."""


class Finding(AssertionError):
    """A promise is broken."""


def promise(kept: object, sentence: str) -> None:
    """Raise a Finding that says `sentence` unless the promise is kept."""
    if not kept:
        raise Finding(sentence)


def refused_in_few_words(error: Exception) -> None:
    """An input was refused, with an error that is allowed: its text must be short."""
    promise(len(str(error)) <= MAX_ERROR_TEXT, f"an error of {len(str(error))} characters")


def comes_back(message: Message, version: int) -> None:
    """What was decoded can be encoded, and decodes to the same."""
    written = message.encode(version)
    again = type(message).decode(written, version)
    name = f"{type(message).__name__} version {version}"
    promise(again == message or "nan" in repr(message), f"{name} does not come back the same")
    promise(again.encode(version) == written, f"{name} is not written the same again")


def allowed_memory(size: int, overhead: int) -> int:
    """Bytes of memory that an input of `size` bytes may cost."""
    return min(MEMORY_FACTOR * size + overhead, MEMORY_LIMIT)


def allowed_cpu(size: int) -> float:
    """Seconds of CPU that an input of `size` bytes may take."""
    return max(CPU_FLOOR, CPU_SECONDS * size / CPU_BYTES)
