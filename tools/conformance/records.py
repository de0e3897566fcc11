"""Random record batches, as Kafka's classes write and read them and as both of our kernels do.

Version 2 goes both ways: uncompressed, the bytes are equal; compressed, what is inside is, and each
reads the other's. What only brokers write (control batches, compacted ones, message sets of magic 0
and 1) is read as Java reads it.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import KafkaError
from kafka_async.records.batch import HEADER_SIZE, assign_offsets
from kafka_async.records.compression import Codec, decompress
from kafka_async.records.control import encode_control_batch
from tools.conformance import records_ours
from tools.conformance.java import JavaError
from tools.conformance.parts import Outcome
from tools.conformance.records_columns import read_columns
from tools.conformance.records_control import control_samples
from tools.conformance.records_framing import framing
from tools.conformance.records_java import EmptyBatch, ReadBatch, RecordsJudge
from tools.conformance.records_ours import KERNELS, kernel
from tools.conformance.records_plan import (
    MAX_INT32,
    NONE,
    NOW,
    SENDERS,
    Plan,
    random_plan,
    with_gaps,
)
from tools.conformance.trees import byte_difference, difference

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from tools.conformance.parts import Options

LEVELS: Final[dict[Codec, tuple[int, int]]] = {
    Codec.gzip: (1, 9),
    Codec.lz4: (0, 12),
    Codec.zstd: (-5, 12),
}


@dataclass
class Case:
    """One random batch: its dice, Java, and the faults that were found."""

    dice: random.Random
    java: RecordsJudge
    faults: list[str] = field(default_factory=list[str])
    records: int = 0
    bytes: int = 0
    traits: Counter[str] = field(default_factory=Counter[str])

    def same_bytes(self, what: str, ours: bytes, theirs: bytes) -> None:
        """Two ways to write a batch give the same bytes."""
        if fault := byte_difference(ours, theirs):
            self.faults.append(f"{what}: {fault}")

    def same_batches(self, what: str, ours: list[ReadBatch], theirs: list[ReadBatch]) -> None:
        """Two ways to read batches give the same."""
        if fault := difference(_comparable(ours), _comparable(theirs)):
            self.faults.append(f"{what}: {fault}")

    def read_as_java_does(self, batches: bytes) -> list[ReadBatch]:
        """Read with both kernels, and compare; what Java reads."""
        theirs = self.java.read(batches)
        plain = [batch for batch in theirs if batch.magic == 2 and not batch.control]
        rows = [row for batch in plain for row in batch.records]
        for name in KERNELS:
            with self.refusals(f"we ({name}) do not read what Java wrote"), kernel(name):
                ours = records_ours.read(batches)
                self.same_batches(f"read by us ({name}), by Java", ours, theirs)
                if fault := difference(read_columns(batches), rows):
                    self.faults.append(f"read as columns by us ({name}), by Java: {fault}")
        self.bytes += len(batches)
        self.records += sum(len(batch.records) for batch in theirs)
        self.traits.update(_traits(theirs))
        return theirs

    @contextmanager
    def refusals(self, what: str) -> Generator[None]:
        """An error, of ours or of Java, which is a fault."""
        try:
            yield
        except (KafkaError, JavaError) as error:
            self.faults.append(f"{what}: {error}")


def _traits(batches: list[ReadBatch]) -> Iterator[str]:
    """What is rare in batches, and must not be missing."""
    for batch in batches:
        if not batch.records:
            yield "without records"
        if batch.horizon >= 0:
            yield "with a delete horizon"
        offsets = [record[0] for record in batch.records]
        if offsets and offsets != list(range(batch.base_offset, batch.last_offset + 1)):
            yield "with gaps"
        if batch.size > 1 << 20:
            yield "over 1 MiB"


def _comparable(batches: list[ReadBatch]) -> list[dict[str, Any]]:
    """A compressed message set of magic 0 or 1 has two base offsets: ours is the wrapper's."""
    fields = [batch._asdict() for batch in batches]
    for row in fields:
        if row["magic"] < 2:
            row["base_offset"] = row["last_offset"]
        if row["magic"] == 0:  # which has no timestamps, for which Java has a third type
            row["timestamp_type"] = 0
    return fields


def expected(plan: Plan, size: int) -> ReadBatch:
    """What whoever reads the planned batch must find."""
    stamped = plan.append_time >= 0
    latest = max(NONE, *(record.timestamp for record in plan.records))
    return ReadBatch(
        size=size,
        magic=plan.magic,
        codec=plan.codec,
        timestamp_type=1 if stamped else 0,
        transactional=plan.transactional,
        control=False,
        base_offset=plan.base_offset,
        last_offset=plan.last_offset,
        max_timestamp=plan.append_time if stamped else latest,
        producer_id=plan.producer_id,
        producer_epoch=plan.producer_epoch,
        base_sequence=plan.base_sequence,
        leader_epoch=plan.leader_epoch,
        horizon=plan.horizon,
        records_count=len(plan.records),
        records=[
            (
                record.offset,
                plan.append_time if stamped else record.timestamp,
                record.key,
                record.value,
                record.headers,
            )
            for record in plan.records
        ],
        control_type=-1,
        coordinator_epoch=-1,
    )


# -- what is compared -----------------------------------------------------------------------------


def both_ways(case: Case, codec: Codec, append_time: bool, sender: str) -> None:
    """A batch of version 2: ours read by Java, Java's by us, the same bytes where they can be."""
    dice, java = case.dice, case.java
    plan = random_plan(dice, codec=codec, append_time=append_time, sender=sender)
    level = dice.choice([None, dice.randint(*LEVELS[codec])]) if codec in LEVELS else None
    sent = replace(plan.moved(0), append_time=NONE, leader_epoch=NONE)
    theirs = java.write(sent)
    place = plan.base_offset, plan.leader_epoch
    ours = b""
    for name in KERNELS:
        with kernel(name):
            ours = records_ours.write(plan, level)
        _same_writing(case, f"written by us ({name}), by Java", codec, ours, theirs)
    stored = assign_offsets(ours, *place, plan.append_time if append_time else None)
    case.same_bytes("assigned by us, by Java", stored, java.assign(ours, *place, plan.append_time))
    case.same_batches(
        "planned, ours read by Java", [expected(plan, len(stored))], java.read(stored)
    )
    gaps = with_gaps(dice, plan)
    if dice.random() < 0.3:
        gaps = replace(gaps, horizon=NOW + dice.randrange(1 << 30))
    written = java.write(gaps)
    read = case.read_as_java_does(written)
    case.same_batches("planned, Java's read by Java", [expected(gaps, len(written))], read)


def _same_writing(case: Case, what: str, codec: Codec, ours: bytes, theirs: bytes) -> None:
    if codec is Codec.none:
        case.same_bytes(what, ours, theirs)
        return
    inside, expected = ours[HEADER_SIZE:], theirs[HEADER_SIZE:]
    unpacked = bytes(decompress(codec, inside)), bytes(decompress(codec, expected))
    case.same_bytes(f"{what}, inside", *unpacked)
    # Of the header, all but the length and the CRC, which depend on how well was compressed.
    head, model = ours[:8] + ours[12:17] + ours[21:61], theirs[:8] + theirs[12:17] + theirs[21:61]
    case.same_bytes(f"{what}, header", head, model)
    if fault := difference(framing(codec, inside), framing(codec, expected)):
        case.faults.append(f"{what}, {codec.name} framing: {fault}")


def compacted(case: Case, codec: Codec, magic: int) -> None:
    """What Java's log cleaner leaves of some batches, one of them perhaps without records."""
    dice, java = case.dice, case.java
    written = b""
    offsets: list[int] = []
    base = dice.randrange(1 << 40)
    for _ in range(dice.randrange(1, 4)):
        sender = dice.choice(SENDERS) if magic == 2 else "plain"
        plan = random_plan(dice, codec=codec, magic=magic, sender=sender).moved(base)
        base = plan.last_offset + 1
        offsets += [record.offset for record in plan.records]
        written += java.write(plan)
    share = dice.choice([0.1, 0.5, 0.9])
    kept = [offset for offset in offsets if dice.random() < share]
    left = java.compact(written, kept, NOW, dice.randrange(1 << 40))
    read = case.read_as_java_does(left)
    found = [record[0] for batch in read for record in batch.records]
    if found != kept:
        case.faults.append(f"compaction has kept {len(kept)} offsets, {len(found)} were read")


def old(case: Case, codec: Codec, magic: int, append_time: bool) -> None:
    """A message set of magic 0 or 1."""
    plan = random_plan(case.dice, codec=codec, magic=magic, append_time=append_time)
    plan = replace(with_gaps(case.dice, plan), leader_epoch=NONE)
    read = case.read_as_java_does(case.java.write(plan))
    wanted = expected(plan, 0).records
    if magic == 0:
        wanted = [(offset, NONE, *rest) for offset, _, *rest in wanted]
    found = [record for batch in read for record in batch.records]
    if fault := difference(wanted, found):
        case.faults.append(f"planned, Java's read by Java: {fault}")


def marker(case: Case, commit: bool) -> None:
    """The end of a transaction."""
    dice = case.dice
    fields: dict[str, int] = {
        "base_offset": dice.choice([0, dice.randrange(1 << 62)]),
        "timestamp": dice.choice([0, NOW, dice.randrange(1 << 62)]),
        "leader_epoch": dice.choice([0, dice.randrange(1 << 31)]),
        "producer_id": dice.choice([0, dice.randrange(1 << 62)]),
        "producer_epoch": dice.choice([0, dice.randrange(1 << 15)]),
        "coordinator_epoch": dice.choice([-1, 0, dice.randrange(1 << 31), MAX_INT32]),
    }
    theirs = case.java.marker(**fields, commit=commit)
    for name in KERNELS:
        with kernel(name):
            ours = encode_control_batch("commit" if commit else "abort", **fields)
        case.same_bytes(f"written by us ({name}), by Java", ours, theirs)
    [read] = case.read_as_java_does(theirs)
    if (read.control_type, read.coordinator_epoch) != (int(commit), fields["coordinator_epoch"]):
        case.faults.append(f"the marker says {read.control_type}, {read.coordinator_epoch}")


def raft(case: Case, kind: int) -> None:
    """A control batch of the Raft log: written by both, read by both."""
    sample = control_samples(case.dice, kind)
    theirs = case.java.control(
        kind,
        sample.body,
        base_offset=sample.base_offset,
        timestamp=sample.timestamp,
        leader_epoch=sample.leader_epoch,
    )
    for name in KERNELS:
        with kernel(name):
            case.same_bytes(f"written by us ({name}), by Java", sample.write(), theirs)
    [read] = case.read_as_java_does(theirs)
    if (read.control_type, read.records[0][3]) != (kind, sample.body):
        case.faults.append(f"the batch says {read.control_type}, and holds {read.records[0][3]!r}")


def empty(case: Case) -> None:
    """A batch that only keeps its producer's sequence, alone and between two others."""
    dice = case.dice
    before = random_plan(dice, codec=dice.choice(list(Codec)))
    before = before.moved(dice.randrange(1 << 40))
    base = before.last_offset + 1
    batch = EmptyBatch(
        timestamp_type=dice.choice([0, 1]),
        base_offset=base,
        last_offset=base + dice.choice([0, 1, dice.randrange(1 << 30)]),
        timestamp=dice.choice([NONE, NOW]),
        producer_id=dice.randrange(1 << 40),
        producer_epoch=dice.randrange(1 << 15),
        base_sequence=dice.randrange(1 << 31),
        transactional=dice.choice([True, False]),
        leader_epoch=dice.choice([NONE, 5]),
        control=dice.choice([True, False]),
    )
    alone = case.java.empty(batch)
    [read] = case.read_as_java_does(alone)
    if read.records:
        case.faults.append("Java reads records in an empty batch")
    after = random_plan(dice, codec=dice.choice(list(Codec))).moved(batch.last_offset + 1)
    case.read_as_java_does(case.java.write(before) + alone + case.java.write(after))


# -- the combinations -----------------------------------------------------------------------------

_RAFT_KINDS: Final = {
    2: "leader-change",
    3: "snapshot-header",
    4: "snapshot-footer",
    5: "kraft-version",
    6: "voters",
}


def combinations() -> dict[str, Callable[[Case], None]]:
    """What is compared, by name."""
    found: dict[str, Callable[[Case], None]] = {}
    for codec in Codec:
        for append_time in (False, True):
            for sender in SENDERS:
                time = "append-time" if append_time else "create-time"
                check = partial(both_ways, codec=codec, append_time=append_time, sender=sender)
                found[f"v2-{codec.name}-{time}-{sender}"] = check
        found[f"v2-{codec.name}-compacted"] = partial(compacted, codec=codec, magic=2)
    for magic in (0, 1):
        for codec in list(Codec)[: Codec.zstd]:
            for append_time in (False, True)[: magic + 1]:
                name = f"v{magic}-{codec.name}" + ("-append-time" if append_time else "")
                found[name] = partial(old, codec=codec, magic=magic, append_time=append_time)
            name = f"v{magic}-{codec.name}-compacted"
            found[name] = partial(compacted, codec=codec, magic=magic)
    for kind, name in _RAFT_KINDS.items():
        found[name] = partial(raft, kind=kind)
    return {
        **found,
        "commit": partial(marker, commit=True),
        "abort": partial(marker, commit=False),
        "empty": empty,
    }


def run(options: Options) -> Outcome:
    """Compare random batches of every combination asked for."""
    outcome = Outcome()
    batches = records = size = used = 0
    traits: Counter[str] = Counter()
    with RecordsJudge() as java:
        for name, check in combinations().items():
            numbers = [n for n in range(options.count) if options.wants(name, n)]
            used += bool(numbers)
            for number in numbers:
                case = Case(random.Random(f"{options.seed} {name} {number}"), java)
                with case.refusals("one of us refuses it"):
                    check(case)
                batches += 1
                records += case.records
                size += case.bytes
                traits += case.traits
                for fault in case.faults:
                    outcome.differ(options, f"{name}:{number}", fault)
    outcome.summary = (
        f"{batches:,} batches of {used} kinds on {len(KERNELS)} kernels, "
        f"{records:,} records, {size:,} bytes ("
        + ", ".join(f"{number:,} {trait}" for trait, number in sorted(traits.items()))
        + ")"
    )
    return outcome
