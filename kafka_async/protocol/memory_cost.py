"""Estimates the memory of a decoded message, to limit what a malicious message can allocate.

A few bytes on the wire can become large objects, so a decoder has a memory budget that depends on
the size of its buffer. It subtracts the estimate for an array or a tagged section before it reads
the elements: a message that would become too large is refused before the memory is allocated,
without a check per element. The contents of strings and bytes are not counted: they take at most
four times their size in the buffer.

The estimates are the sizes in 64-bit CPython, rounded up. The compiled codec (`kernel/_ccodec.pyx`)
uses the same estimates, so both kernels refuse the same messages.
"""

from __future__ import annotations

from typing import Final

from kafka_async.protocol.spec import (
    BYTES,
    INT8,
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    FieldType,
    Fixed,
)

MEMORY_PER_BYTE: Final = 64
"""Bytes of memory that a message may allocate per byte of its buffer."""

BASE_MEMORY: Final = 14 * 1024
"""Bytes of memory that a message of any size may allocate in addition."""

MAX_MEMORY: Final = 192 * 1024 * 1024
"""Maximum bytes of memory for the objects of a message; 256 MiB with 16 MiB of text."""

ARRAY_COST: Final = 88
"""Bytes of a list or tuple without its elements; a list over-allocates."""

TAGGED_SECTION_COST: Final = 48
"""Bytes of a tuple of unknown tagged fields, without the fields."""

TAGGED_FIELD_COST: Final = 140
"""Bytes of a tagged field: a tuple of its tag and its payload, in a list and then in a tuple."""

_POINTER: Final = 9  # a growing list over-allocates by an eighth
_OBJECT: Final = 32  # the object header and the header of the garbage collector
_SLOT: Final = 8
_FIXED: Final = {"?": 0, "b": 28, "h": 28, "H": 28, "i": 32, "I": 32, "q": 36, "d": 24}
_UUID: Final = 104
_SIZED: Final = {
    STRING: 76,  # one character outside Latin-1
    BYTES: 34,
    RECORDS: 330,  # a memoryview of a memoryview
}


def element_cost(kind: FieldType, version: int) -> int:
    """Return the bytes of an array element, without text and without the arrays in it."""
    # Integers of one byte are shared objects.
    return _POINTER if kind is INT8 else _POINTER + _cost(kind, version)


def _cost(kind: FieldType, version: int) -> int:
    if isinstance(kind, Fixed):
        return _UUID if kind is UUID else _FIXED[kind.format]
    if isinstance(kind, Array):
        return 0  # counted when the array is read
    if isinstance(kind, type):
        fields = kind.SPEC.fields
        slots = _OBJECT + _SLOT * (len(fields) + 1)
        return slots + sum(_field_cost(field, version) for field in fields)
    return _SIZED[kind]


def _field_cost(field: Field, version: int) -> int:
    if field.versions.contains(version) and field.tag is None:
        return _cost(field.type, version)
    # Defaults are shared objects, except structures.
    new_default = isinstance(field.type, type) and field.default is not None
    return _cost(field.type, version) if new_default else 0
