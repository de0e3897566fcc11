"""Random batches, as plans that our kernels and Java write."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Self

    from kafka_async.records.compression import Codec

NONE: Final = -1
"""Value for no timestamp, producer, sequence, leader epoch or delete horizon."""
SENDERS: Final = ("plain", "idempotent", "transactional")
MAX_INT32: Final = (1 << 31) - 1
MAX_INT64: Final = (1 << 63) - 1
NOW: Final = 1_790_000_000_000
_WORDS: Final = b"the log is an append only sequence of records ordered by offset ".split()


@dataclass(frozen=True, slots=True)
class PlannedRecord:
    """Record with the attributes that `RecordBatch.build` reads."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Plan:
    """Header fields and records of a batch.

    An `append_time` gives the batch LogAppendTime; `horizon` is the delete horizon of compaction.
    """

    magic: int
    codec: Codec
    records: tuple[PlannedRecord, ...]
    last_offset: int
    append_time: int = NONE
    producer_id: int = NONE
    producer_epoch: int = NONE
    base_sequence: int = NONE
    transactional: bool = False
    leader_epoch: int = NONE
    horizon: int = NONE

    @property
    def base_offset(self) -> int:
        """Offset of the first record, which is the base offset: no plan has a gap before it."""
        return self.records[0].offset

    def with_base_offset(self, base_offset: int) -> Self:
        """Return the same batch with consecutive offsets from `base_offset` on."""
        records = tuple(
            replace(record, offset=base_offset + n) for n, record in enumerate(self.records)
        )
        return replace(self, records=records, last_offset=records[-1].offset)


def random_plan(
    rng: random.Random,
    *,
    codec: Codec,
    magic: int = 2,
    append_time: bool = False,
    sender: str = "plain",
) -> Plan:
    """Return a random batch without gaps between offsets."""
    count = _count(rng)
    timestamps = _timestamps(rng, count)
    large = count < 100 and rng.random() < 0.03
    records = [
        PlannedRecord(
            n,
            timestamps[n],
            _data(rng, 20),
            _data(rng, 3_000_000 if large and rng.random() < 0.1 else 200),
            _headers(rng) if magic == 2 else (),
        )
        for n in range(count)
    ]
    plan = Plan(magic, codec, tuple(records), count - 1)
    if append_time:
        plan = replace(plan, append_time=NOW + rng.randrange(1_000_000))
    if sender != "plain":
        plan = replace(
            plan,
            producer_id=rng.choice([0, 1, rng.randrange(1 << 40), MAX_INT64]),
            producer_epoch=rng.choice([0, 1, rng.randrange(1 << 15), (1 << 15) - 1]),
            base_sequence=rng.choice([0, 1, rng.randrange(1 << 31), MAX_INT32]),
            transactional=sender == "transactional",
        )
    base = rng.choice([0, 1, rng.randrange(1 << 31), rng.randrange(1 << 62)])
    return replace(plan.with_base_offset(base), leader_epoch=rng.choice([NONE, 0, 7, MAX_INT32]))


def with_gaps(rng: random.Random, plan: Plan) -> Plan:
    """Return the same batch with gaps between the offsets of records, and after the last.

    There is no gap before the first record, because Java's writer uses its offset as base offset.
    """
    offset = plan.base_offset
    records: list[PlannedRecord] = []
    for record in plan.records:
        records.append(replace(record, offset=offset))
        offset += rng.choice([1, 1, 1, 2, 1 + rng.randrange(300)])
    last = records[-1].offset + rng.choice([0, 0, 1, rng.randrange(1 << 20)])
    return replace(plan, records=tuple(records), last_offset=last)


def _count(rng: random.Random) -> int:
    kind = rng.random()
    if kind < 0.01:
        return rng.randrange(1000, 4000)
    return 1 if kind < 0.2 else rng.randrange(2, 40)


def _timestamps(rng: random.Random, count: int) -> list[int]:
    """Return equal, ascending, unordered or extreme timestamps."""
    kind = rng.randrange(4)
    if kind == 0:
        return [NOW] * count
    if kind == 1:
        return [NOW + n * rng.randrange(5) for n in range(count)]
    if kind == 2:
        return [NOW + rng.randrange(-(10**9), 10**9) for _ in range(count)]
    return [rng.choice([NONE, 0, NOW, rng.randrange(1 << 62)]) for _ in range(count)]


def _data(rng: random.Random, size: int) -> bytes | None:
    """Return a key or value: null, empty, random, or compressible text."""
    kind = rng.random()
    if kind < 0.15:
        return None
    if kind < 0.25:
        return b""
    size = rng.randrange(1, size)
    if kind < 0.6:
        return rng.randbytes(size)
    words = b" ".join(rng.choice(_WORDS) for _ in range(min(200, 1 + size // 4)))
    return (words * (1 + size // len(words)))[:size]


def _headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    if rng.random() < 0.6:
        return ()
    return tuple((_name(rng), _data(rng, 30)) for _ in range(rng.randrange(1, 5)))


def _name(rng: random.Random) -> str:
    """Return a header name of any code points except surrogates, which UTF-8 cannot encode."""
    points = (rng.randrange(0x11_0000 - 0x800) for _ in range(rng.choice([0, 1, 5, 70])))
    return "".join(chr(point if point < 0xD800 else point + 0x800) for point in points)
