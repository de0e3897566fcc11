"""Finds the field of a message that cannot be encoded.

Encoders do not validate values. If one raises, `diagnose` checks each field against the spec, so
that the error includes the field at no cost to valid messages.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID as Uuid

from kafka_async.protocol.spec import BOOL, BYTES, RECORDS, STRING, UUID, Array, Fixed, Sized
from kafka_async.protocol.wire import MAX_STRING

if TYPE_CHECKING:
    from kafka_async.protocol.spec import FieldType, Struct


def diagnose(value: Struct, version: int) -> str | None:
    """Return the first field that cannot be encoded in `version`, with the reason; else None."""
    return _struct(value, version, "")


def _struct(value: Struct, version: int, path: str) -> str | None:
    for field in value.SPEC.fields:
        if not field.versions.contains(version):
            continue
        item = getattr(value, field.name)
        place = f"{path}{field.name}"
        if item is None:
            if not field.nullable.contains(version):
                return f"{place} must not be None"
        elif error := _value(field.type, item, version, place):
            return error
    return None


def _value(kind: FieldType, value: Any, version: int, place: str) -> str | None:
    if isinstance(kind, Fixed):
        return _fixed(kind, value, place)
    if isinstance(kind, Sized):
        return _sized(kind, value, place)
    if isinstance(kind, Array):
        if not isinstance(value, list | tuple):
            return f"{place} must be a list, not {type(value).__name__}"
        for index, item in enumerate(cast("list[Any]", value)):
            if error := _value(kind.element, item, version, f"{place}[{index}]"):
                return error
        return None
    if not isinstance(value, kind):
        return f"{place} must be {kind.__name__}, not {type(value).__name__}"
    return _struct(value, version, f"{place}.")


def _fixed(kind: Fixed, value: Any, place: str) -> str | None:
    if kind is UUID:
        return None if isinstance(value, Uuid) else f"{place} must be a UUID, not {value!r}"
    if kind is BOOL:
        return None
    try:
        struct.pack(f">{kind.format}", value)
    except (struct.error, OverflowError):
        return f"{place} must be {kind.name}, not {value!r}"
    return None


def _sized(kind: Sized, value: Any, place: str) -> str | None:
    if kind is RECORDS and isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)
        return next(filter(None, (_sized(BYTES, part, place) for part in parts)), None)
    if kind is not STRING:
        fits = isinstance(value, bytes | bytearray | memoryview)
        return None if fits else f"{place} must be bytes, not {type(value).__name__}"
    if not isinstance(value, str):
        return f"{place} must be str, not {type(value).__name__}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"{place} holds a lone surrogate"
    return f"{place} has {size} bytes, {MAX_STRING} are allowed" if size > MAX_STRING else None
