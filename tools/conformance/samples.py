"""Random messages of any class and version, made from the class's own SPEC and a seed.

What tests and `make conformance` feed to codecs. A message has a mood: most are mixed, some hold
nothing but nulls and emptiness, some nothing but extreme numbers, some have collections, texts and
tagged sections beyond the sizes at which their length takes more bytes.
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

    from kafka_async.protocol.message import Struct
    from kafka_async.protocol.spec import Field, FieldType

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
"""Code points that a text is made of, one row a text: of one byte to four, all planes."""

UNKNOWN_TAGS: Final = (100, 127, 128, 10_000, 16_383, 16_384, 2**21, 2**28 - 1, 2**28, 2**31 - 2)
"""No schema has a tag this high; the last is the largest that Java writes."""

DOUBLES: Final = (0.0, -0.0, 5e-324, -1.5, 0.1, sys.float_info.max, float("inf"), float("-inf"))

SMALL: Final = (0, 1, 1, 2, 3)
TEXT_SIZES: Final = (0, 1, 7, 20, 130)
BYTES_SIZES: Final = (0, 1, 126, 127, 128, 300)
RECORDS_SIZES: Final = (0, 1, 126, 127, 128, 20_000)
TAGS_SIZES: Final = (0, 3, 127, 128)

LARGE_ARRAYS: Final = (126, 127, 128, 300)
LARGE_PLAIN_ARRAYS: Final = (126, 127, 128, 16_382, 16_383, 16_384)
LARGE_TEXTS: Final = (126, 127, 128, 16_382, 16_383, 16_384, MAX_STRING)
LARGE_BYTES: Final = (16_382, 16_383, 16_384, 70_000)
LARGE_RECORDS: Final = (16_383, 300_000)
LARGEST: Final = 2**21
"""One byte more than what a length of three bytes can say of a compact field."""


@dataclass(frozen=True)
class Mood:
    """How the values of one message fall.

    Attributes:
        weight: how often, compared with the other moods.
        null: how often a field that may be None is.
        unset: how often a tagged field has its default, and so is not written.
        tags: how often a structure has tagged fields that nobody knows.
        empty: whether collections, texts and numbers are.
        extreme: whether numbers are at their limits.
        large: how many large things the message may have.
    """

    weight: int
    null: float = 0.25
    unset: float = 0.25
    tags: float = 0.25
    empty: bool = False
    extreme: bool = False
    large: int = 0


MOODS: Final = (
    Mood(weight=12),
    Mood(weight=2, null=0.6, unset=0.6),
    Mood(weight=1, null=1.0, unset=1.0, tags=0.0, empty=True),
    Mood(weight=1, null=0.0, unset=0.0, tags=1.0, empty=True),
    Mood(weight=2, null=0.1, unset=0.1, extreme=True),
    Mood(weight=2, null=0.1, unset=0.1, large=3),
)

PLAIN: Final = Mood(weight=0, null=0.0, unset=0.0, tags=0.0)


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


def sample(
    message: type[Message],
    version: int,
    seed: object = 0,
    *,
    plausible: bool = False,
    nan: bool = False,
) -> Message:
    """A message with any values in the fields that the version carries.

    Args:
        message: its class.
        version: which fields it has.
        seed: the dice.
        plausible: error codes that exist, times of this age and no tags that nobody knows.
        nan: whether a number may be one that does not equal itself.
    """
    rng = random.Random(f"{message.__name__} {version} {seed}")
    flexible = message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM
    mood = rng.choices(MOODS, [each.weight for each in MOODS])[0]
    made = _Sampler(version, rng, mood, flexible, plausible=plausible, nan=nan).struct(message)
    assert isinstance(made, Message)
    return made


def any_value(field: Field, version: int, rng: random.Random) -> object:
    """A small value of a field's type, never None."""
    return _Sampler(version, rng, PLAIN, False, plausible=True, nan=False).value(field.type)


class _Sampler:
    def __init__(
        self,
        version: int,
        rng: random.Random,
        mood: Mood,
        flexible: bool,
        *,
        plausible: bool,
        nan: bool,
    ) -> None:
        self.version = version
        self.rng = rng
        self.mood = mood
        self.large = mood.large
        self.flexible = flexible
        self.plausible = plausible
        self.doubles = (*DOUBLES, float("nan")) if nan else DOUBLES

    def struct(self, kind: type[Struct]) -> Struct:
        made = kind()
        for field in kind.SPEC.fields:
            if field.versions.contains(self.version):
                setattr(made, field.name, self.field(field))
        if self.flexible and not self.plausible and self.rng.random() < self.mood.tags:
            made.unknown_tagged_fields = self.unknown_tags(kind)
        return made

    def field(self, field: Field) -> object:
        if field.nullable.contains(self.version) and self.rng.random() < self.mood.null:
            return None
        if field.tag is not None and self.rng.random() < self.mood.unset:
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
        if self.mood.empty:
            return 0
        if self.large and self.rng.random() < 0.3:
            self.large -= 1
            return self.rng.choice(large)
        return self.rng.choice(ordinary)

    def fixed(self, kind: Fixed) -> object:
        if self.mood.empty:
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
        """All zeros, all ones, the largest and the smallest signed number, 1, or by chance."""
        rest = size - 1
        edges = (
            bytes(size),
            b"\xff" * size,
            b"\x7f" + b"\xff" * rest,
            b"\x80" + bytes(rest),
            bytes(rest) + b"\1",
        )
        if self.mood.extreme or self.rng.random() < 0.5:
            return self.rng.choice(edges)
        return self.rng.randbytes(size)

    def sized(self, kind: Sized) -> object:
        if kind is STRING:
            return self.text(self.size(TEXT_SIZES, LARGE_TEXTS))
        if self.large and self.rng.random() < 0.02:
            self.large = 0
            return self.rng.randbytes(LARGEST)
        if kind is RECORDS:
            return self.rng.randbytes(self.size(RECORDS_SIZES, LARGE_RECORDS))
        return self.rng.randbytes(self.size(BYTES_SIZES, LARGE_BYTES))

    def text(self, size: int) -> str:
        """A text of so many characters if it is short, else of so many bytes."""
        alphabet = self.rng.choice(ALPHABETS)
        text = "".join(map(chr, self.rng.choices(alphabet, k=size)))
        if size in TEXT_SIZES:
            return text
        cut = text.encode()[:size].decode(errors="ignore")
        return cut + "~" * (size - len(cut.encode()))

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
