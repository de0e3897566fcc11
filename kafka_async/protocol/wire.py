"""Primitives of Kafka's wire format that codecs lean on: varints, tagged sections, limits.

Everything here raises plain `ValueError` or `IndexError` on bytes that make no sense; `message.py`
turns those into `DecodeError` or `EncodeError` in one place, where the message's name is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""What a buffer may be: anything else is refused rather than guessed at.

A field of records may also be given as a tuple of these, to be written one behind the other.
"""

TaggedFields: TypeAlias = tuple[tuple[int, bytes], ...]
"""Tagged fields this package's schema does not know, as (tag, payload) in the order of arrival."""

ZERO_UUID: Final = UUID(int=0)
"""Kafka's "no id": what a uuid field holds when nobody has set it."""

MAX_ELEMENTS: Final = 1_000_000
"""Elements one array may claim to hold, whatever its frame's size."""

MAX_TAGS: Final = 10_000
"""Tagged fields one structure may claim to hold."""

MAX_STRING: Final = 0x7FFF
"""Bytes of UTF-8 in a string; a compact length could say more, but Kafka refuses it."""

_MAX_TAG: Final = 0x7FFF_FFFF
_MAX_UVARINT: Final = 0xFFFF_FFFF


INT8: Final = (*range(128), *range(-128, 0))
"""`INT8[byte]` is a byte as int8: shared numbers, where each its own would cost 28 bytes."""


class _Varints(dict[int, bytes]):
    """Encoded unsigned varints by value: the common small ones kept, others made when asked for.

    Subscripting is the fastest way from a length to its bytes without a branch in generated code.
    """

    def __init__(self, limit: int) -> None:
        super().__init__((n, bytes([n])) for n in range(128))
        self._limit = limit

    def __missing__(self, value: int) -> bytes:
        if not 0 <= value <= self._limit:
            raise ValueError(f"length {value} is out of range")
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)


UVARINT: Final = _Varints(_MAX_UVARINT)
"""`UVARINT[n]` is `n` as an unsigned varint."""

STRING_LENGTH: Final = _Varints(MAX_STRING + 1)
"""`STRING_LENGTH[n + 1]` is the compact length of a string of `n` bytes."""


def read_uvarint(buffer: BytesLike, position: int) -> tuple[int, int]:
    """The unsigned varint at `position`, and the position after it.

    Raises:
        ValueError: more than 32 bits, or more than five bytes.
        IndexError: the buffer ends first.
    """
    value = shift = 0
    while shift < 35:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MAX_UVARINT:
                break
            return value, position
        shift += 7
    raise ValueError("unsigned varint is longer than 32 bits")


def write_tagged(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """A whole tagged section: count, then each (tag, payload) in ascending order of tags.

    Raises:
        ValueError: the same tag twice.
    """
    ordered = sorted(fields)
    parts = [UVARINT[len(ordered)]]
    last = -1
    for tag, payload in ordered:
        if tag == last:
            raise ValueError(f"tag {tag} is given twice")
        last = tag
        parts += (UVARINT[tag], UVARINT[len(payload)], payload)
    return b"".join(parts)


def read_tag_count(buffer: BytesLike, position: int) -> tuple[int, int]:
    """The number of tagged fields that follow, and the position of the first."""
    count, position = read_uvarint(buffer, position)
    # The smallest tagged field has two bytes: its tag and a size of zero.
    if count > MAX_TAGS or count * 2 > len(buffer) - position:
        raise ValueError(f"{count} tagged fields in {len(buffer) - position} bytes")
    return count, position


def read_tag(buffer: BytesLike, position: int, last: int) -> tuple[int, int, int]:
    """One tagged field's tag, where its payload begins and where it ends.

    Args:
        buffer: what is being read.
        position: where the tag stands.
        last: the tag before it, -1 for the first; KIP-482 wants them in ascending order.
    """
    tag, position = read_uvarint(buffer, position)
    if tag <= last:
        raise ValueError(f"tag {tag} comes after tag {last}")
    if tag > _MAX_TAG:
        raise ValueError(f"tag {tag} is beyond 31 bits")
    size, position = read_uvarint(buffer, position)
    end = position + size
    if end > len(buffer):
        raise ValueError(f"tag {tag} claims {size} bytes of {len(buffer) - position}")
    return tag, position, end


def skip_tags(buffer: BytesLike, position: int) -> int:
    """The position after a tagged section of which nothing is wanted."""
    count, position = read_tag_count(buffer, position)
    tag = -1
    for _ in range(count):
        tag, _start, position = read_tag(buffer, position, tag)
    return position


def read_unknown_tags(buffer: BytesLike, position: int, count: int) -> tuple[TaggedFields, int]:
    """`count` tagged fields of which none is known, raw, and the position after them."""
    fields: list[tuple[int, bytes]] = []
    tag = -1
    for _ in range(count):
        tag, position, end = read_tag(buffer, position, tag)
        fields.append((tag, bytes(buffer[position:end])))
        position = end
    return tuple(fields), position


def octets(value: BytesLike) -> BytesLike:
    """`value` as something whose `len` is its size in bytes, without copying it.

    Raises:
        TypeError: not bytes, bytearray or memoryview (or another buffer).
    """
    return value if isinstance(value, bytes | bytearray) else memoryview(value).cast("B")


def pieces(value: BytesLike | tuple[BytesLike, ...]) -> tuple[BytesLike, ...]:
    """The buffers that records lie in, one behind the other, each as `octets` gives it.

    Raises:
        TypeError: as `octets`.
    """
    return tuple(map(octets, value)) if isinstance(value, tuple) else (octets(value),)


def too_large(size: int) -> ValueError:
    """The complaint about a message whose objects would take too much memory."""
    return ValueError(f"{size} bytes would take more memory than a message of that size may")


def bad_length(field: str, length: int, remaining: int) -> ValueError:
    """The complaint about a length prefix that cannot be true."""
    if length == -1:
        return ValueError(f"{field} is null, which this version does not allow")
    return ValueError(f"{field} claims {length} bytes or elements with {remaining} bytes left")
