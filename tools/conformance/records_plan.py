"""Random batches, planned: what is to be written, before anybody has written it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Self

    from kafka_async.records.compression import Codec

NONE: Final = -1
"""No timestamp, producer, sequence, leader epoch or delete horizon."""
SENDERS: Final = ("plain", "idempotent", "transactional")
MAX_INT32: Final = (1 << 31) - 1
MAX_INT64: Final = (1 << 63) - 1
NOW: Final = 1_790_000_000_000
_WORDS: Final = b"the log is an append only sequence of records ordered by offset ".split()


@dataclass(frozen=True, slots=True)
class PlannedRecord:
    """One record; it has what `RecordBatch.build` asks of one."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Plan:
    """A batch: its header's fields and its records.

    `append_time` makes it one of LogAppendTime; `horizon` is compaction's delete horizon.
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
        """The first offset of a batch without a gap before its first record."""
        return self.records[0].offset

    def moved(self, base_offset: int) -> Self:
        """The same batch, its records one after the other from there on."""
        records = tuple(
            replace(record, offset=base_offset + n) for n, record in enumerate(self.records)
        )
        return replace(self, records=records, last_offset=records[-1].offset)


def random_plan(
    dice: random.Random,
    *,
    codec: Codec,
    magic: int = 2,
    append_time: bool = False,
    sender: str = "plain",
) -> Plan:
    """A batch without gaps of that kind."""
    count = _count(dice)
    timestamps = _timestamps(dice, count)
    large = count < 100 and dice.random() < 0.03
    records = [
        PlannedRecord(
            n,
            timestamps[n],
            _data(dice, 20),
            _data(dice, 3_000_000 if large and dice.random() < 0.1 else 200),
            _headers(dice) if magic == 2 else (),
        )
        for n in range(count)
    ]
    plan = Plan(magic, codec, tuple(records), count - 1)
    if append_time:
        plan = replace(plan, append_time=NOW + dice.randrange(1_000_000))
    if sender != "plain":
        plan = replace(
            plan,
            producer_id=dice.choice([0, 1, dice.randrange(1 << 40), MAX_INT64]),
            producer_epoch=dice.choice([0, 1, dice.randrange(1 << 15), (1 << 15) - 1]),
            base_sequence=dice.choice([0, 1, dice.randrange(1 << 31), MAX_INT32]),
            transactional=sender == "transactional",
        )
    base = dice.choice([0, 1, dice.randrange(1 << 31), dice.randrange(1 << 62)])
    return replace(plan.moved(base), leader_epoch=dice.choice([NONE, 0, 7, MAX_INT32]))


def with_gaps(dice: random.Random, plan: Plan) -> Plan:
    """The same batch with offsets left out between its records, and after the last.

    Not before the first: Java's writer takes its offset for the batch's.
    """
    offset = plan.base_offset
    records: list[PlannedRecord] = []
    for record in plan.records:
        records.append(replace(record, offset=offset))
        offset += dice.choice([1, 1, 1, 2, 1 + dice.randrange(300)])
    last = records[-1].offset + dice.choice([0, 0, 1, dice.randrange(1 << 20)])
    return replace(plan, records=tuple(records), last_offset=last)


def _count(dice: random.Random) -> int:
    kind = dice.random()
    if kind < 0.01:
        return dice.randrange(1000, 4000)
    return 1 if kind < 0.2 else dice.randrange(2, 40)


def _timestamps(dice: random.Random, count: int) -> list[int]:
    """Of one time, near to each other, in no order, or at the ends of what is legal."""
    kind = dice.randrange(4)
    if kind == 0:
        return [NOW] * count
    if kind == 1:
        return [NOW + n * dice.randrange(5) for n in range(count)]
    if kind == 2:
        return [NOW + dice.randrange(-(10**9), 10**9) for _ in range(count)]
    return [dice.choice([NONE, 0, NOW, dice.randrange(1 << 62)]) for _ in range(count)]


def _data(dice: random.Random, size: int) -> bytes | None:
    """A key or value: null, empty, noise, or text that compresses."""
    kind = dice.random()
    if kind < 0.15:
        return None
    if kind < 0.25:
        return b""
    size = dice.randrange(1, size)
    if kind < 0.6:
        return dice.randbytes(size)
    words = b" ".join(dice.choice(_WORDS) for _ in range(min(200, 1 + size // 4)))
    return (words * (1 + size // len(words)))[:size]


def _headers(dice: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    if dice.random() < 0.6:
        return ()
    return tuple((_name(dice), _data(dice, 30)) for _ in range(dice.randrange(1, 5)))


def _name(dice: random.Random) -> str:
    """Of all of unicode but the surrogates, which UTF-8 cannot say."""
    points = (dice.randrange(0x11_0000 - 0x800) for _ in range(dice.choice([0, 1, 5, 70])))
    return "".join(chr(point if point < 0xD800 else point + 0x800) for point in points)
