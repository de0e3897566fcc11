"""Random messages of any class and version, made from the class's own SPEC and a seed."""

from __future__ import annotations

import random
import struct
import uuid
from typing import TYPE_CHECKING

from kafka_async.protocol import api
from kafka_async.protocol.message import Message
from kafka_async.protocol.registry import Api
from kafka_async.protocol.spec import BOOL, FLOAT64, RECORDS, STRING, UUID, Array, Fixed, Sized

if TYPE_CHECKING:
    from kafka_async.protocol.message import Struct
    from kafka_async.protocol.spec import Field, FieldType

ALPHABET = "ab-.09 \u00e9\u6f22\U0001f600"
UNKNOWN_TAG = 10_000
"""No schema has a tag this high."""


def class_of(name: str) -> type[Message]:
    """The class of that name."""
    found = api.lookup(name)
    if not isinstance(found, Api):
        return found
    return found.response if name.endswith("Response") else found.request


def all_classes() -> list[type[Message]]:
    """Every message of the protocol."""
    kept = [each.name for each in api.APIS if not each.removed]
    with_key = [name + kind for name in kept for kind in ("Request", "Response")]
    return [*map(class_of, with_key), *map(class_of, api.KEYLESS)]


def all_versions() -> list[tuple[type[Message], int]]:
    """Every message of the protocol in every version, unreleased ones as well."""
    return [(each, version) for each in all_classes() for version in versions(each)]


def versions(message: type[Message]) -> range:
    """Every version of one message."""
    return range(message.VERSIONS.min, message.VERSIONS.max + 1)


def label(value: object) -> str:
    """How pytest shows a class in a test's name."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


def sample(
    message: type[Message], version: int, seed: object = 0, *, plausible: bool = False
) -> Message:
    """A message that has something in every field that the version carries.

    A plausible one has error codes that exist, times of this age and no tags that nobody knows.
    """
    rng = random.Random(f"{message.__name__} {version} {seed}")
    flexible = message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM
    made = _Sampler(version, rng, flexible, plausible).struct(message)
    assert isinstance(made, Message)
    return made


class _Sampler:
    def __init__(self, version: int, rng: random.Random, flexible: bool, plausible: bool) -> None:
        self.version = version
        self.rng = rng
        self.flexible = flexible
        self.plausible = plausible

    def struct(self, kind: type[Struct]) -> Struct:
        made = kind()
        for field in kind.SPEC.fields:
            if field.versions.contains(self.version):
                setattr(made, field.name, self.field(field))
        if self.flexible and not self.plausible and self.rng.random() < 0.25:
            made.unknown_tagged_fields = ((UNKNOWN_TAG, self.rng.randbytes(3)),)
        return made

    def field(self, field: Field) -> object:
        if field.nullable.contains(self.version) and self.rng.random() < 0.25:
            return None
        if field.tag is not None and self.rng.random() < 0.25:
            return field.default
        if self.plausible and isinstance(field.type, Fixed) and field.type.size > 1:
            if field.name.endswith("error_code"):
                return self.rng.randrange(-1, 100)
            if "time" in field.name or field.name.endswith("_ms"):
                return self.rng.randrange(1_000_000)
        return self.value(field.type)

    def value(self, kind: FieldType) -> object:
        if isinstance(kind, Fixed):
            return self.fixed(kind)
        if isinstance(kind, Sized):
            return self.sized(kind)
        if isinstance(kind, Array):
            return [self.value(kind.element) for _ in range(self.rng.choice((0, 1, 1, 2, 3)))]
        return self.struct(kind)

    def fixed(self, kind: Fixed) -> object:
        edges = (bytes(kind.size), b"\xff" * kind.size)
        raw = self.rng.choice((*edges, self.rng.randbytes(kind.size)))
        if kind is UUID:
            return uuid.UUID(bytes=raw)
        if kind is BOOL:
            return raw[0] > 0x7F
        if kind is FLOAT64:
            return self.rng.uniform(-1e9, 1e9)
        return struct.unpack(f">{kind.format}", raw)[0]

    def sized(self, kind: Sized) -> object:
        if kind is STRING:
            return "".join(self.rng.choices(ALPHABET, k=self.rng.choice((0, 1, 7, 20, 130))))
        largest = 20_000 if kind is RECORDS else 300
        return self.rng.randbytes(self.rng.choice((0, 1, 126, 127, 128, largest)))
