"""Random messages, corrupt bytes, and pytest ids of the messages' classes and versions."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kafka_async.protocol.spec import Array, Fixed, Sized, Struct
from tools.conformance.samples import all_classes, all_versions, class_of, sample, versions

__all__ = [
    "MUTATIONS",
    "all_classes",
    "all_versions",
    "class_of",
    "label",
    "mutant",
    "sample",
    "structures_in",
    "versions",
]

MUTATIONS = 6
EDGE_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def label(value: object) -> str:
    """Return the pytest id of a message class or of a version."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


def structures_in(kind: type[Struct]) -> Iterator[type[Struct]]:
    """Yield the structures of a structure's fields, also those in arrays."""
    for field in kind.SPEC.fields:
        inner = field.type
        while isinstance(inner, Array):
            inner = inner.element
        if not isinstance(inner, Fixed | Sized):
            yield inner


def mutant(body: bytes, rng: random.Random) -> bytes:
    """Truncate the bytes, or replace some of them."""
    if rng.random() < 0.2:
        return body[: rng.randrange(len(body) + 1)]
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 4)) if body else 0):
        changed[rng.randrange(len(body))] = rng.choice((*EDGE_BYTES, rng.randrange(256)))
    return bytes(changed)
