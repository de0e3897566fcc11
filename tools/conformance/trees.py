"""Messages as the trees that Kafka's generated JSON converters read and write, and comparisons.

A tree has what JSON has. Two things that the converters leave out stand beside theirs: unknown
tagged fields, under a name of their own, and the bytes of records (Judge.java knows both).
"""

from __future__ import annotations

import base64
import math
from binascii import b2a_base64
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafka_async.protocol.message import Struct
from kafka_async.protocol.spec import STRING, UUID, Array, Fixed, Sized

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID as Uuid

    from kafka_async.protocol.spec import Field, FieldType

UNKNOWN: Final = "_unknownTaggedFields"
ASIDE: Final = "_aside"
"""Numbers and nulls to be set by a structure's setters: what the JSON of no version can say."""


def camel(name: str) -> str:
    """Kafka's name in JSON for one of ours: `topic_id` is `topicId`."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def tree_of(struct: Struct, version: int) -> dict[str, Any]:
    """The tree of a message in a version: tagged fields at their default are left out."""
    tree: dict[str, Any] = {}
    for entry in _entries(type(struct), version):
        held = getattr(struct, entry.name)
        if entry.tagged and is_same(held, entry.default):
            continue
        tree[entry.json_name] = None if held is None else entry.convert(held)
    if struct.unknown_tagged_fields:
        tree[UNKNOWN] = [[tag, _text(payload)] for tag, payload in struct.unknown_tagged_fields]
    return tree


class _Entry(NamedTuple):
    name: str
    json_name: str
    tagged: bool
    default: Any
    convert: Callable[[Any], Any]


@cache
def _entries(struct: type[Struct], version: int) -> Sequence[_Entry]:
    fields = [field for field in struct.SPEC.fields if field.versions.contains(version)]
    return [_entry(field, version) for field in fields]


def _entry(field: Field, version: int) -> _Entry:
    tagged = field.tag is not None
    default = field.default if tagged else None
    convert = _converter(field.type, version)
    return _Entry(field.name, camel(field.name), tagged, default, convert)


def _converter(kind: FieldType, version: int) -> Callable[[Any], Any]:
    if isinstance(kind, Array):
        element = _converter(kind.element, version)
        return list if element is _as_it_is else lambda items: [element(item) for item in items]
    if kind is UUID:
        return _uuid
    if isinstance(kind, Fixed) or kind is STRING:
        return _as_it_is
    if isinstance(kind, Sized):
        return _text
    return lambda struct: tree_of(struct, version)


def _as_it_is(value: Any) -> Any:
    return value


def _uuid(value: Uuid) -> str:
    return base64.urlsafe_b64encode(value.bytes)[:-2].decode()


def _text(value: Any) -> str:
    return b2a_base64(value, newline=False).decode()


# -- comparisons ----------------------------------------------------------------------------------


def is_same(ours: Any, theirs: Any) -> bool:
    """Whether two values are equal; an array may be a list or a tuple."""
    return ours == theirs or difference(ours, theirs) is None


def difference(ours: Any, theirs: Any, path: str = "") -> str | None:
    """Where two messages, or two trees, differ first and in what; None where they are equal.

    A number that is no number equals another such; 0.0 and -0.0 are two things.
    """
    parts = _parts(ours, theirs)
    if parts is None:
        return None if _equal(ours, theirs) else f"{path or '.'}: {_short(ours)}, {_short(theirs)}"
    if isinstance(parts, str):
        return f"{path or '.'}: {parts}"
    for name, one, other in parts:
        if fault := difference(one, other, f"{path}{name}"):
            return fault
    return None


def _parts(ours: Any, theirs: Any) -> list[tuple[str, Any, Any]] | str | None:
    """What two values consist of, by name; how their shapes differ; None if they are simple."""
    if isinstance(ours, Struct) and type(ours) is type(theirs):
        names = [*(field.name for field in ours.SPEC.fields), "unknown_tagged_fields"]
        return [(f".{name}", getattr(ours, name), getattr(theirs, name)) for name in names]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        one, other = cast("dict[str, Any]", ours), cast("dict[str, Any]", theirs)
        if odd := sorted(one.keys() ^ other.keys()):
            return f"only one of them has {', '.join(odd)}"
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


def _short(value: Any, most: int = 60) -> str:
    text = repr(bytes(cast("memoryview", value)) if isinstance(value, memoryview) else value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def byte_difference(ours: bytes, theirs: bytes, around: int = 8) -> str | None:
    """The first byte in which two buffers differ, with some around it; None if they are equal."""
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
