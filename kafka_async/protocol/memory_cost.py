"""What a message that is read becomes in memory, by estimate: small bytes can be large objects.

A decoder has so many bytes for the objects it makes, by the size of its buffer. Every array takes
its part before it is read, by its count, and every tagged section by its. That costs nothing for an
element, and a message that would become too large is refused before it is. Text and bytes
themselves are not counted: they cost at most four times what they take in the buffer.

The estimates are what CPython on a machine of 64 bits takes, rounded up. The compiled codec
(`kernel/_ccodec.pyx`) goes by the same ones, so that both refuse the same messages.
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

FACTOR: Final = 64
"""Bytes of memory that a byte of the buffer may cost."""

SPARE: Final = 14 * 1024
"""Bytes of memory that any message may cost: short names in few elements take more than most."""

MOST: Final = 192 * 1024 * 1024
"""Bytes that the objects of a message may cost at all; with the text of 16 MiB it is 256 MiB."""

ARRAY: Final = 88
"""A list or tuple that is not empty, without what is in it; a list has room to grow."""

TAGS: Final = 48
"""A tuple of tagged fields that the schema does not know."""

TAG: Final = 140
"""A tagged field: a tuple, its tag and its bytes, in a list and then in a tuple."""

_POINTER: Final = 9  # a list that grows has an eighth more than it needs
_OBJECT: Final = 32  # its header, and that of the garbage collector
_SLOT: Final = 8
_FIXED: Final = {"?": 0, "b": 28, "h": 28, "H": 28, "i": 32, "I": 32, "q": 36, "d": 24}
_UUID: Final = 104
_SIZED: Final = {
    STRING: 76,  # of one character that is not in Latin-1
    BYTES: 34,
    RECORDS: 330,  # a view of a view
}


def element_cost(kind: FieldType, version: int) -> int:
    """Bytes that an element of an array takes, beside text and what arrays in it hold."""
    # An array of small numbers shares them.
    return _POINTER if kind is INT8 else _POINTER + _cost(kind, version)


def _cost(kind: FieldType, version: int) -> int:
    if isinstance(kind, Fixed):
        return _UUID if kind is UUID else _FIXED[kind.format]
    if isinstance(kind, Array):
        return 0  # it takes its part itself, when it is read
    if isinstance(kind, type):
        fields = kind.SPEC.fields
        slots = _OBJECT + _SLOT * (len(fields) + 1)
        return slots + sum(_field_cost(field, version) for field in fields)
    return _SIZED[kind]


def _field_cost(field: Field, version: int) -> int:
    if field.versions.contains(version) and field.tag is None:
        return _cost(field.type, version)
    # A default is shared, unless it is a structure, which is made for each.
    fresh = isinstance(field.type, type) and field.default is not None
    return _cost(field.type, version) if fresh else 0
