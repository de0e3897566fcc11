"""Converts messages to the trees that Kafka's JSON converters read and write, and compares them.

A tree consists of JSON values. It has two additions that the converters do not support and that
Messages.java handles: unknown tagged fields, under a special name, and the bytes of records.
"""

from __future__ import annotations

import base64
import math
from binascii import b2a_base64
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.protocol.spec import STRING, UUID, Array, Fixed, Sized, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID as Uuid

    from kafka_async.protocol.spec import Field, FieldType

UNKNOWN: Final = "_unknownTaggedFields"
SETTERS: Final = "_setters"
"""Name of the values that a structure's setters set: those that no version's JSON can represent."""


def camel(name: str) -> str:
    """Convert a field name to Kafka's name in JSON: `topic_id` to `topicId`."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def tree_of(struct: Struct, version: int) -> dict[str, Any]:
    """Return the tree of a message in a version, without tagged fields that have their default."""
    tree: dict[str, Any] = {}
    for field, name, convert in _fields(type(struct), version):
        value = getattr(struct, field.name)
        if field.tag is None or difference(value, field.default):
            tree[name] = None if value is None else convert(value)
    if struct.unknown_tagged_fields:
        tree[UNKNOWN] = [[tag, _base64(payload)] for tag, payload in struct.unknown_tagged_fields]
    return tree


@cache
def _fields(
    struct: type[Struct], version: int
) -> Sequence[tuple[Field, str, Callable[[Any], Any]]]:
    """Return the fields of a version, their names in JSON and the conversions of their values."""
    return [
        (field, camel(field.name), _converter(field.type, version))
        for field in struct.SPEC.fields
        if field.versions.contains(version)
    ]


def _converter(kind: FieldType, version: int) -> Callable[[Any], Any]:
    if isinstance(kind, Array):
        element = _converter(kind.element, version)
        return list if element is _identity else lambda items: [element(item) for item in items]
    if kind is UUID:
        return _uuid
    if isinstance(kind, Fixed) or kind is STRING:
        return _identity
    if isinstance(kind, Sized):
        return _base64
    return lambda struct: tree_of(struct, version)


def _identity(value: Any) -> Any:
    return value


def _uuid(value: Uuid) -> str:
    return base64.urlsafe_b64encode(value.bytes)[:-2].decode()


def _base64(value: Any) -> str:
    return b2a_base64(value, newline=False).decode()


# -- comparisons ----------------------------------------------------------------------------------


def difference(ours: Any, theirs: Any, path: str = "") -> str | None:
    """Return the path and the values of the first difference of two messages or trees, else None.

    NaN equals NaN, 0.0 does not equal -0.0, and a list equals a tuple with equal elements.
    """
    parts = _parts(ours, theirs)
    if parts is None:
        return None if _equal(ours, theirs) else f"{path or '.'}: {_short(ours)}, {_short(theirs)}"
    if isinstance(parts, str):
        return f"{path or '.'}: {parts}"
    for name, one, other in parts:
        if found := difference(one, other, f"{path}{name}"):
            return found
    return None


def _parts(ours: Any, theirs: Any) -> list[tuple[str, Any, Any]] | str | None:
    """Return the pairs of parts of two values, or how they differ; None for simple values."""
    if isinstance(ours, Struct) and type(ours) is type(theirs):
        names = [*(field.name for field in ours.SPEC.fields), "unknown_tagged_fields"]
        return [(f".{name}", getattr(ours, name), getattr(theirs, name)) for name in names]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        one, other = cast("dict[str, Any]", ours), cast("dict[str, Any]", theirs)
        if unmatched := sorted(one.keys() ^ other.keys()):
            return f"only one of them has {', '.join(unmatched)}"
        return [(f".{name}", one[name], other[name]) for name in one]
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        one, other = cast("Sequence[Any]", ours), cast("Sequence[Any]", theirs)
        if len(one) != len(other):
            return f"{len(one)} elements, {len(other)}"
        pairs = zip(one, other, strict=True)
        return [(f"[{index}]", *pair) for index, pair in enumerate(pairs)]
    return None


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours):
            return math.isnan(theirs)
        return ours == theirs and math.copysign(1, ours) == math.copysign(1, theirs)
    return ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)


def _short(value: Any, limit: int = 60) -> str:
    text = repr(bytes(cast("memoryview", value)) if isinstance(value, memoryview) else value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def byte_difference(ours: bytes, theirs: bytes, around: int = 8) -> str | None:
    """Return the first different byte of two buffers, with adjacent bytes, else None."""
    if ours == theirs:
        return None
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((i for i, (one, other) in pairs if one != other), min(len(ours), len(theirs)))
    cut = slice(max(0, at - around), at + around)
    return (
        f"byte {at} of {len(ours)}, {len(theirs)}: "
        f"{ours[cut].hex(' ') or 'none'}, {theirs[cut].hex(' ') or 'none'} "
        f"(from byte {cut.start})"
    )
