"""Primitives of Kafka's wire format: varints, tagged sections and limits.

The functions raise `ValueError` or `IndexError` on invalid bytes; `message.py` turns these into
`DecodeError` or `EncodeError` with the message's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Types of buffers. A field of records may also be a tuple of buffers, which are concatenated."""

TaggedFields: TypeAlias = tuple[tuple[int, bytes], ...]
"""Tagged fields that are not in the schema, as (tag, payload) in the order of the message."""

ZERO_UUID: Final = UUID(int=0)
"""Kafka's value for "no id", the default of uuid fields."""

MAX_ELEMENTS: Final = 1_000_000
"""Maximum number of elements of an array, for a frame of any size."""

MAX_TAGS: Final = 10_000
"""Maximum number of tagged fields of a structure."""

MAX_STRING: Final = 0x7FFF
"""Maximum bytes of a string in UTF-8; Kafka refuses longer ones in the compact encoding too."""

_MAX_TAG: Final = 0x7FFF_FFFF
_MAX_UVARINT: Final = 0xFFFF_FFFF

INT8: Final = (*range(128), *range(-128, 0))
"""`INT8[byte]` is a byte as int8; new int objects would take 28 bytes each."""


class _Varints(dict[int, bytes]):
    """Maps values to encoded unsigned varints: those below 128 are stored, others computed.

    Generated code uses a subscript because it is faster than a call or a branch.
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
    """Read the unsigned varint at `position`; return it and the position after it."""
    value = shift = 0
    # Five bytes hold 35 bits: the value is checked too.
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
    """Encode a tagged section: the count, then the fields in ascending order of tags."""
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
    """Read the number of tagged fields; return it and the position of the first field."""
    count, position = read_uvarint(buffer, position)
    # A tagged field has at least two bytes: its tag and a size of zero.
    if count > MAX_TAGS or count * 2 > len(buffer) - position:
        raise ValueError(f"{count} tagged fields in {len(buffer) - position} bytes")
    return count, position


def read_tag(buffer: BytesLike, position: int, last: int) -> tuple[int, int, int]:
    """Read a tag and a size; return the tag and the positions of the payload's begin and end.

    `last` is the previous tag, -1 for the first: KIP-482 requires ascending order.
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
    """Return the position after a tagged section, ignoring its fields."""
    count, position = read_tag_count(buffer, position)
    tag = -1
    for _ in range(count):
        tag, _start, position = read_tag(buffer, position, tag)
    return position


def read_unknown_tags(buffer: BytesLike, position: int, count: int) -> tuple[TaggedFields, int]:
    """Read `count` tagged fields; return them undecoded, and the position after them."""
    fields: list[tuple[int, bytes]] = []
    tag = -1
    for _ in range(count):
        tag, position, end = read_tag(buffer, position, tag)
        fields.append((tag, bytes(buffer[position:end])))
        position = end
    return tuple(fields), position


def as_buffer(value: BytesLike) -> BytesLike:
    """Return `value` as a buffer whose `len` is its size in bytes, without a copy."""
    return value if isinstance(value, bytes | bytearray) else memoryview(value).cast("B")


def as_buffers(value: BytesLike | tuple[BytesLike, ...]) -> tuple[BytesLike, ...]:
    """Return the buffers of a field of records, each as `as_buffer` returns it."""
    return tuple(map(as_buffer, value)) if isinstance(value, tuple) else (as_buffer(value),)


def too_large(size: int) -> ValueError:
    """Return the error for a message that would take too much memory."""
    return ValueError(f"{size} bytes would take more memory than a message of that size may")


def invalid_length(field: str, length: int, remaining: int) -> ValueError:
    """Return the error for a length prefix that is negative or exceeds the buffer."""
    if length == -1:
        return ValueError(f"{field} is null, which this version does not allow")
    return ValueError(f"{field} claims {length} bytes or elements with {remaining} bytes left")
