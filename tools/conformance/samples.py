"""Random messages of any class and version, from the class's `SPEC` and a seed.

For tests and `make conformance`. Each message has a profile: most have mixed values, some only
nulls and empty values, some only extreme numbers, and some have arrays, strings and tagged sections
on both sides of the sizes at which a length prefix takes more bytes.
"""

from __future__ import annotations

import random
import struct
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.protocol import api
from kafka_async.protocol.message import Message
from kafka_async.protocol.registry import Api
from kafka_async.protocol.spec import BOOL, FLOAT64, RECORDS, STRING, UUID, Array, Fixed, Sized
from kafka_async.protocol.wire import MAX_STRING, ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.protocol.spec import Field, FieldType, Struct

SURROGATES: Final = range(0xD800, 0xE000)
ALPHABETS: Final[tuple[Sequence[int], ...]] = (
    range(0x20, 0x7F),
    range(0x20, 0x7F),
    range(0x80),
    range(0x800),
    range(SURROGATES.start),
    range(SURROGATES.stop, 0x10000),
    range(0x10000, sys.maxunicode + 1),
    tuple(map(ord, 'a"\\\0\x7f\x80\u07ff\u0800\ud7ff\ue000\ufeff\uffff\U00010000\U0010ffff')),
)
"""Sets of code points for strings: one to four bytes, all planes."""

UNKNOWN_TAGS: Final = (100, 127, 128, 10_000, 16_383, 16_384, 2**21, 2**28 - 1, 2**28, 2**31 - 2)
"""Tags that no schema has; the last is the largest that Java can write."""

DOUBLES: Final = (0.0, -0.0, 5e-324, -1.5, 0.1, sys.float_info.max, float("inf"), float("-inf"))

SMALL: Final = (0, 1, 1, 2, 3)
STRING_SIZES: Final = (0, 1, 7, 20, 130)
BYTES_SIZES: Final = (0, 1, 126, 127, 128, 300)
RECORDS_SIZES: Final = (0, 1, 126, 127, 128, 20_000)
TAGS_SIZES: Final = (0, 3, 127, 128)

LARGE_ARRAYS: Final = (126, 127, 128, 300)
LARGE_PLAIN_ARRAYS: Final = (126, 127, 128, 16_382, 16_383, 16_384)
LARGE_STRINGS: Final = (126, 127, 128, 16_382, 16_383, 16_384, MAX_STRING)
LARGE_BYTES: Final = (16_382, 16_383, 16_384, 70_000)
LARGE_RECORDS: Final = (16_383, 300_000)
LARGEST: Final = 2**21
"""Bytes. The compact length of this size takes four bytes."""


@dataclass(frozen=True)
class Profile:
    """Distribution of the values of a message.

    Attributes:
        weight: relative frequency of the profile.
        null: probability of None in a nullable field.
        unset: probability of the default in a tagged field, which is not encoded then.
        tags: probability of unknown tagged fields in a structure.
        empty: arrays and strings are empty, and numbers zero.
        extreme: numbers are at their limits.
        large: maximum number of large values in a message.
    """

    weight: int
    null: float = 0.25
    unset: float = 0.25
    tags: float = 0.25
    empty: bool = False
    extreme: bool = False
    large: int = 0


PROFILES: Final = (
    Profile(weight=12),
    Profile(weight=2, null=0.6, unset=0.6),
    Profile(weight=1, null=1.0, unset=1.0, tags=0.0, empty=True),
    Profile(weight=1, null=0.0, unset=0.0, tags=1.0, empty=True),
    Profile(weight=2, null=0.1, unset=0.1, extreme=True),
    Profile(weight=2, null=0.1, unset=0.1, large=3),
)

PLAIN: Final = Profile(weight=0, null=0.0, unset=0.0, tags=0.0)


def class_of(name: str) -> type[Message]:
    """Return the message class of that name."""
    found = api.lookup(name)
    if not isinstance(found, Api):
        return found
    return found.response if name.endswith("Response") else found.request


def all_classes() -> list[type[Message]]:
    """Return all message classes of the protocol."""
    kept = [each.name for each in api.APIS if not each.removed]
    with_key = [name + kind for name in kept for kind in ("Request", "Response")]
    return [*map(class_of, with_key), *map(class_of, api.KEYLESS)]


def all_versions() -> list[tuple[type[Message], int]]:
    """Return all message classes in all versions, including unreleased ones."""
    return [(each, version) for each in all_classes() for version in versions(each)]


def versions(message: type[Message]) -> range:
    """Return all versions of a message class."""
    return range(message.VERSIONS.min, message.VERSIONS.max + 1)


def sample(
    message: type[Message],
    version: int,
    seed: object = 0,
    *,
    plausible: bool = False,
    nan: bool = False,
) -> Message:
    """Return a random message; a `plausible` one has existing error codes and no unknown tags."""
    rng = random.Random(f"{message.__name__} {version} {seed}")
    flexible = message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM
    profile = rng.choices(PROFILES, [each.weight for each in PROFILES])[0]
    made = _Sampler(version, rng, profile, flexible, plausible=plausible, nan=nan).struct(message)
    assert isinstance(made, Message)
    return made


def any_value(field: Field, version: int, rng: random.Random) -> object:
    """Return a small random value of a field's type, never None."""
    return _Sampler(version, rng, PLAIN, False, plausible=True, nan=False).value(field.type)


@dataclass
class _Sampler:
    version: int
    rng: random.Random
    profile: Profile
    flexible: bool
    plausible: bool
    nan: bool

    def __post_init__(self) -> None:
        self.large = self.profile.large
        self.doubles = (*DOUBLES, float("nan")) if self.nan else DOUBLES

    def struct(self, kind: type[Struct]) -> Struct:
        made = kind()
        for field in kind.SPEC.fields:
            if field.versions.contains(self.version):
                setattr(made, field.name, self.field(field))
        if self.flexible and not self.plausible and self.rng.random() < self.profile.tags:
            made.unknown_tagged_fields = self.unknown_tags(kind)
        return made

    def field(self, field: Field) -> object:
        if field.nullable.contains(self.version) and self.rng.random() < self.profile.null:
            return None
        if field.tag is not None and self.rng.random() < self.profile.unset:
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
            plain = isinstance(kind.element, Fixed)
            size = self.size(SMALL, LARGE_PLAIN_ARRAYS if plain else LARGE_ARRAYS)
            return [self.value(kind.element) for _ in range(size)]
        return self.struct(kind)

    def size(self, ordinary: Sequence[int], large: Sequence[int]) -> int:
        if self.profile.empty:
            return 0
        if self.large and self.rng.random() < 0.3:
            self.large -= 1
            return self.rng.choice(large)
        return self.rng.choice(ordinary)

    def fixed(self, kind: Fixed) -> object:
        if self.profile.empty:
            return kind.zero
        if kind is FLOAT64:
            return self.rng.choice((*self.doubles, self.rng.uniform(-1e9, 1e9)))
        raw = self.bits(kind.size)
        if kind is UUID:
            return uuid.UUID(bytes=raw) if any(raw) else ZERO_UUID
        if kind is BOOL:
            return raw[0] > 0x7F
        return struct.unpack(f">{kind.format}", raw)[0]

    def bits(self, size: int) -> bytes:
        """Return the bytes of 0, -1, 1, the largest, the smallest or a random integer."""
        rest = size - 1
        edges = (
            bytes(size),
            b"\xff" * size,
            b"\x7f" + b"\xff" * rest,
            b"\x80" + bytes(rest),
            bytes(rest) + b"\1",
        )
        if self.profile.extreme or self.rng.random() < 0.5:
            return self.rng.choice(edges)
        return self.rng.randbytes(size)

    def sized(self, kind: Sized) -> object:
        if kind is STRING:
            return self.text(self.size(STRING_SIZES, LARGE_STRINGS))
        if self.large and self.rng.random() < 0.02:
            self.large = 0
            return self.rng.randbytes(LARGEST)
        if kind is RECORDS:
            return self.rng.randbytes(self.size(RECORDS_SIZES, LARGE_RECORDS))
        return self.rng.randbytes(self.size(BYTES_SIZES, LARGE_BYTES))

    def text(self, size: int) -> str:
        """Return a string of `size` characters if it is short, else of `size` bytes."""
        alphabet = self.rng.choice(ALPHABETS)
        text = "".join(map(chr, self.rng.choices(alphabet, k=size)))
        if size in STRING_SIZES:
            return text
        truncated = text.encode()[:size].decode(errors="ignore")
        return truncated + "~" * (size - len(truncated.encode()))

    def unknown_tags(self, kind: type[Struct]) -> tuple[tuple[int, bytes], ...]:
        known = {field.tag for field in kind.SPEC.fields if field.tag is not None}
        between = set(range(max(known, default=0))) - known
        tags = self.rng.sample([*between, *UNKNOWN_TAGS], self.rng.choice((1, 1, 2, 5)))
        if self.large and self.rng.random() < 0.3:
            self.large -= 1
            tags = [*range(200, 200 + self.rng.choice((122, 300))), *UNKNOWN_TAGS[-5:]]
        sizes = [self.size(TAGS_SIZES, LARGE_BYTES) for _ in tags]
        return tuple(
            (tag, self.rng.randbytes(size)) for tag, size in zip(sorted(tags), sizes, strict=True)
        )
