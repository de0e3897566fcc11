"""Record batches of several sizes, as cases for all clients.

There are two tables: the compiled kernel with aiokafka in Cython, and the kernel in plain Python
with kafka-python and aiokafka in plain Python, which includes the CRC.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from benchmarks.wire.batch_clients import (
    BatchClient,
    RecordFields,
    aiokafka,
    kafka_python,
    ours,
    plain_aiokafka,
)
from benchmarks.wire.timing import Case, Contender

if TYPE_CHECKING:
    from kafka_async.types import Header

BATCH: Final = 64 << 10
"""Approximate bytes of a batch, between the defaults of Java (16 KiB) and of ours (128 KiB)."""
SIZES: Final = {"100 B": 100, "1 KiB": 1024}
SHAPES: Final = {"no key": False, "key, 2 headers": True}
_LEADER_EPOCH = slice(12, 16)


def make_records(size: int, *, rich: bool) -> list[RecordFields]:
    """Return records of a batch with values of `size` bytes, four per millisecond, always the same.

    Rich records have a key of 10 bytes and two headers: a unique id and a constant kind.
    """
    rng = random.Random(size)
    block = rng.randbytes(1000 + size)
    records: list[RecordFields] = []
    for number in range(BATCH // (size + (60 if rich else 12))):
        start = rng.randrange(1000)
        value = block[start : start + size]
        time = 1_700_000_000_000 + number // 4
        headers: list[Header] = []
        if rich:
            headers = [("trace-id", b"%016x" % rng.getrandbits(64)), ("kind", b"click")]
        records.append((time, b"key-%06d" % number if rich else None, value, headers))
    return records


def touch(records: Iterable[Any]) -> None:
    """Read the attributes of every record, like an application."""
    for record in records:
        _ = record.key
        _ = record.value
        _ = record.headers
        _ = record.timestamp
        _ = record.offset


def fields(records: Iterable[Any]) -> list[tuple[object, ...]]:
    """Return the attributes of records, for comparison."""
    return [(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in records]


def same_batch(made: Any, expected: bytes) -> bool:
    """Return True if two batches are equal except for the leader epoch, which a broker sets."""
    theirs = bytearray(made)
    theirs[_LEADER_EPOCH] = expected[_LEADER_EPOCH]
    return bytes(theirs) == expected


@dataclass(frozen=True)
class Subject:
    """Batch to encode and decode; `data` is what every client must encode."""

    name: str
    records: list[RecordFields]
    data: bytes

    @property
    def expected(self) -> list[tuple[object, ...]]:
        """Expected result of `fields` for the records."""
        return [
            (offset, time, key, value, tuple(headers))
            for offset, (time, key, value, headers) in enumerate(self.records)
        ]


@cache
def subjects() -> list[Subject]:
    """Return the batches of every size and shape."""
    reference = ours("reference", kernel("python"))
    return [
        Subject(f"{size}, {shape}", records, reference.encode(records))
        for size, length in SIZES.items()
        for shape, rich in SHAPES.items()
        for records in (make_records(length, rich=rich),)
    ]


def kernel(name: str) -> Any:
    """Return a kernel by name, regardless of the one in use."""
    module = {"c": "_ckernel", "python": "_pykernel"}[name]
    return import_module(f"kafka_async.kernel.{module}")


def compiled_cases() -> list[Case]:
    """Return the cases of the compiled kernel and the fastest codecs of the peers."""
    clients = [ours("kafka_async", kernel("c")), aiokafka("aiokafka in Cython"), kafka_python()]
    return cases(clients)


def plain_cases() -> list[Case]:
    """Return the cases of the kernel and the peers in plain Python."""
    mine = ours("kafka_async in plain Python", kernel("python"))
    return cases([mine, kafka_python(), plain_aiokafka("aiokafka in plain Python")])


def cases(clients: Sequence[BatchClient]) -> list[Case]:
    """Return the cases of each verb with each batch."""
    return [
        Case(
            f"{verb} {subject.name}",
            tuple(_contender(client, verb, subject) for client in clients),
            len(subject.records),
        )
        for verb in ("encode", "decode", "consume")
        for subject in subjects()
    ]


def _contender(client: BatchClient, verb: str, subject: Subject) -> Contender:
    call: Any = attrgetter(verb)(client)
    if verb == "encode":
        return Contender(
            client.client,
            lambda: call(subject.records),
            lambda made: same_batch(made, subject.data),
        )
    return Contender(
        client.client,
        lambda: touch(call(subject.data)),
        lambda _: fields(call(subject.data)) == subject.expected,
    )
