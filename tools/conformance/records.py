"""Compares random record batches as Kafka's classes and both of our kernels write and read them.

Batches of version 2 are written and read by both sides: uncompressed bytes must be equal, as must
the contents of compressed batches. Batches that only brokers write (control batches, compacted
batches, message sets of magic 0 and 1) must be read as Java reads them.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.errors import KafkaError
from kafka_async.protocol import api
from kafka_async.records.batch import HEADER_SIZE, assign_offsets, encode_control_batch
from kafka_async.records.compression import Codec, decompress
from tools.conformance import records_ours
from tools.conformance.java import JavaError
from tools.conformance.parts import PartResult
from tools.conformance.records_framing import framing
from tools.conformance.records_java import JavaRecords, ReadBatch
from tools.conformance.records_ours import KERNELS, kernel, read_columns
from tools.conformance.records_plan import (
    MAX_INT32,
    NONE,
    NOW,
    SENDERS,
    Plan,
    random_plan,
    with_gaps,
)
from tools.conformance.samples import sample
from tools.conformance.trees import byte_difference, difference

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kafka_async.protocol.message import Message
    from tools.conformance.parts import Options

LEVELS: Final[dict[Codec, tuple[int, int]]] = {
    Codec.gzip: (1, 9),
    Codec.lz4: (0, 12),
    Codec.zstd: (-5, 12),
}


@dataclass
class Case:
    """Random batch, with the differences that were found."""

    rng: random.Random
    java: JavaRecords
    differences: list[str] = field(default_factory=list[str])
    records: int = 0
    bytes: int = 0
    traits: Counter[str] = field(default_factory=Counter[str])

    def compare_bytes(self, what: str, ours: bytes, theirs: bytes) -> None:
        """Compare two encodings of a batch."""
        if found := byte_difference(ours, theirs):
            self.differences.append(f"{what}: {found}")

    def compare_batches(self, what: str, ours: list[ReadBatch], theirs: list[ReadBatch]) -> None:
        """Compare two decodings of batches."""
        if found := difference(_comparable(ours), _comparable(theirs)):
            self.differences.append(f"{what}: {found}")

    def read_and_compare(self, batches: bytes) -> list[ReadBatch]:
        """Read batches with both kernels and compare with Java; return what Java reads."""
        theirs = self.java.read(batches)
        plain = [batch for batch in theirs if batch.magic == 2 and not batch.control]
        rows = [row for batch in plain for row in batch.records]
        for name in KERNELS:
            with self.catch_errors(f"we ({name}) refuse a batch of Java"), kernel(name):
                ours = records_ours.read(batches)
                self.compare_batches(f"read by us ({name}), by Java", ours, theirs)
                if found := difference(read_columns(batches), rows):
                    self.differences.append(f"read as columns by us ({name}), by Java: {found}")
        self.bytes += len(batches)
        self.records += sum(len(batch.records) for batch in theirs)
        self.traits.update(_traits(theirs))
        return theirs

    @contextmanager
    def catch_errors(self, what: str) -> Generator[None]:
        """Add an error, ours or Java's, to the differences."""
        try:
            yield
        except (KafkaError, JavaError) as error:
            self.differences.append(f"{what}: {error}")


def _traits(batches: list[ReadBatch]) -> Iterator[str]:
    """Yield the rare properties of batches, which the summary counts."""
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
    """Return the fields of batches, without those in which readers of magic 0 and 1 may differ."""
    fields = [batch._asdict() for batch in batches]
    for row in fields:
        if row["magic"] < 2:  # the base offset of the wrapper (ours) or of the first record (Java)
            row["base_offset"] = row["last_offset"]
        if row["magic"] == 0:  # no timestamps, for which Java has a third type
            row["timestamp_type"] = 0
    return fields


def expected(plan: Plan, size: int) -> ReadBatch:
    """Return the planned batch as a reader must decode it."""
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


# -- comparisons ----------------------------------------------------------------------------------


def producer_batch(case: Case, codec: Codec, append_time: bool, sender: str) -> None:
    """Compare a batch of version 2, written by us and read by Java, and the reverse."""
    rng, java = case.rng, case.java
    plan = random_plan(rng, codec=codec, append_time=append_time, sender=sender)
    level = rng.choice([None, rng.randint(*LEVELS[codec])]) if codec in LEVELS else None
    sent = replace(plan.with_base_offset(0), append_time=NONE, leader_epoch=NONE)
    theirs = java.write(sent)
    ours = b""
    for name in KERNELS:
        with kernel(name):
            ours = records_ours.write(plan, level)
        _compare_writing(case, f"written by us ({name}), by Java", codec, ours, theirs)
    stored = assign_offsets(
        ours, plan.base_offset, plan.leader_epoch, plan.append_time if append_time else None
    )
    assigned = java.make(
        "assign",
        batches=ours,
        base_offset=plan.base_offset,
        leader_epoch=plan.leader_epoch,
        append_time=plan.append_time,
    )
    case.compare_bytes("assigned by us, by Java", stored, assigned)
    case.compare_batches(
        "planned, ours read by Java", [expected(plan, len(stored))], java.read(stored)
    )
    gaps = with_gaps(rng, plan)
    if rng.random() < 0.3:
        gaps = replace(gaps, horizon=NOW + rng.randrange(1 << 30))
    written = java.write(gaps)
    read = case.read_and_compare(written)
    case.compare_batches("planned, Java's read by Java", [expected(gaps, len(written))], read)


def _compare_writing(case: Case, what: str, codec: Codec, ours: bytes, theirs: bytes) -> None:
    if codec is Codec.none:
        case.compare_bytes(what, ours, theirs)
        return
    inside, expected = ours[HEADER_SIZE:], theirs[HEADER_SIZE:]
    unpacked = bytes(decompress(codec, inside)), bytes(decompress(codec, expected))
    case.compare_bytes(f"{what}, inside", *unpacked)
    # The header without the length and the CRC, which depend on the compression.
    head, model = ours[:8] + ours[12:17] + ours[21:61], theirs[:8] + theirs[12:17] + theirs[21:61]
    case.compare_bytes(f"{what}, header", head, model)
    if found := difference(framing(codec, inside), framing(codec, expected)):
        case.differences.append(f"{what}, {codec.name} framing: {found}")


def compacted(case: Case, codec: Codec, magic: int) -> None:
    """Compare batches after Java's log cleaner, some of them without records."""
    rng, java = case.rng, case.java
    written = b""
    offsets: list[int] = []
    base = rng.randrange(1 << 40)
    for _ in range(rng.randrange(1, 4)):
        sender = rng.choice(SENDERS) if magic == 2 else "plain"
        plan = random_plan(rng, codec=codec, magic=magic, sender=sender).with_base_offset(base)
        base = plan.last_offset + 1
        offsets += [record.offset for record in plan.records]
        written += java.write(plan)
    share = rng.choice([0.1, 0.5, 0.9])
    kept = [offset for offset in offsets if rng.random() < share]
    retention = rng.randrange(1 << 40)
    read = case.read_and_compare(
        java.make("compact", batches=written, kept=kept, now=NOW, retention=retention)
    )
    found = [record[0] for batch in read for record in batch.records]
    if found != kept:
        case.differences.append(f"compaction kept {len(kept)} offsets, {len(found)} were read")


def message_set(case: Case, codec: Codec, magic: int, append_time: bool) -> None:
    """Compare a message set of magic 0 or 1."""
    plan = random_plan(case.rng, codec=codec, magic=magic, append_time=append_time)
    plan = replace(with_gaps(case.rng, plan), leader_epoch=NONE)
    read = case.read_and_compare(case.java.write(plan))
    planned = expected(plan, 0).records
    if magic == 0:
        planned = [(offset, NONE, *rest) for offset, _, *rest in planned]
    found = [record for batch in read for record in batch.records]
    if found := difference(planned, found):
        case.differences.append(f"planned, Java's read by Java: {found}")


def transaction_marker(case: Case, commit: bool) -> None:
    """Compare a transaction marker."""
    rng = case.rng
    fields: dict[str, int] = {
        "base_offset": rng.choice([0, rng.randrange(1 << 62)]),
        "timestamp": rng.choice([0, NOW, rng.randrange(1 << 62)]),
        "leader_epoch": rng.choice([0, rng.randrange(1 << 31)]),
        "producer_id": rng.choice([0, rng.randrange(1 << 62)]),
        "producer_epoch": rng.choice([0, rng.randrange(1 << 15)]),
        "coordinator_epoch": rng.choice([-1, 0, rng.randrange(1 << 31), MAX_INT32]),
    }
    theirs = case.java.make("marker", **fields, commit=commit)
    for name in KERNELS:
        with kernel(name):
            ours = encode_control_batch("commit" if commit else "abort", **fields)
        case.compare_bytes(f"written by us ({name}), by Java", ours, theirs)
    [read] = case.read_and_compare(theirs)
    if (read.control_type, read.coordinator_epoch) != (int(commit), fields["coordinator_epoch"]):
        case.differences.append(f"the marker has {read.control_type}, {read.coordinator_epoch}")


def raft_control_batch(case: Case, kind: int) -> None:
    """Compare a control batch of the Raft log."""
    rng = case.rng
    message = cast("type[Message]", api.lookup(_RAFT_MESSAGES[kind]))
    body = sample(message, 0, rng.random()).encode(0)
    place: dict[str, int] = {
        "base_offset": rng.choice([0, rng.randrange(1 << 62)]),
        "timestamp": rng.choice([0, NOW]),
        "leader_epoch": rng.choice([0, rng.randrange(1 << 31)]),
    }
    theirs = case.java.make("control", kind=kind, body=body, **place)
    for name in KERNELS:
        with kernel(name):
            ours = records_ours.write_control(kind, body, **place)
        case.compare_bytes(f"written by us ({name}), by Java", ours, theirs)
    [read] = case.read_and_compare(theirs)
    if (read.control_type, read.records[0][3]) != (kind, body):
        case.differences.append(
            f"the batch has type {read.control_type} and value {read.records[0][3]!r}"
        )


def empty_batch(case: Case) -> None:
    """Compare a batch without records, alone and between two others."""
    rng = case.rng
    before = random_plan(rng, codec=rng.choice(list(Codec)))
    before = before.with_base_offset(rng.randrange(1 << 40))
    base = before.last_offset + 1
    stamped = rng.choice([False, True])
    last_offset = base + rng.choice([0, 1, rng.randrange(1 << 30)])
    alone = case.java.make(
        "empty",
        stamped=stamped,
        base_offset=base,
        last_offset=last_offset,
        timestamp=rng.choice([NONE, NOW]),
        producer_id=rng.randrange(1 << 40),
        producer_epoch=rng.randrange(1 << 15),
        base_sequence=rng.randrange(1 << 31),
        transactional=rng.choice([True, False]),
        leader_epoch=rng.choice([NONE, 5]),
        control=rng.choice([True, False]),
    )
    [read] = case.read_and_compare(alone)
    if read.records:
        case.differences.append("Java reads records in an empty batch")
    after = random_plan(rng, codec=rng.choice(list(Codec))).with_base_offset(last_offset + 1)
    case.read_and_compare(case.java.write(before) + alone + case.java.write(after))


# -- the combinations -----------------------------------------------------------------------------

_RAFT_MESSAGES: Final = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
"""Messages in control batches of the Raft log, by the type of the batch."""


def combinations() -> dict[str, Callable[[Case], None]]:
    """Return the comparisons by name."""
    found: dict[str, Callable[[Case], None]] = {}
    for codec in Codec:
        for append_time in (False, True):
            for sender in SENDERS:
                time = "append-time" if append_time else "create-time"
                check = partial(producer_batch, codec=codec, append_time=append_time, sender=sender)
                found[f"v2-{codec.name}-{time}-{sender}"] = check
        found[f"v2-{codec.name}-compacted"] = partial(compacted, codec=codec, magic=2)
    for magic in (0, 1):
        for codec in list(Codec)[: Codec.zstd]:
            for append_time in (False, True)[: magic + 1]:
                name = f"v{magic}-{codec.name}" + ("-append-time" if append_time else "")
                found[name] = partial(
                    message_set, codec=codec, magic=magic, append_time=append_time
                )
            name = f"v{magic}-{codec.name}-compacted"
            found[name] = partial(compacted, codec=codec, magic=magic)
    for kind, name in _RAFT_MESSAGES.items():
        found[name] = partial(raft_control_batch, kind=kind)
    return {
        **found,
        "commit": partial(transaction_marker, commit=True),
        "abort": partial(transaction_marker, commit=False),
        "empty": empty_batch,
    }


def run(options: Options) -> PartResult:
    """Compare random batches of every selected combination."""
    result = PartResult()
    batches = records = size = used = 0
    traits: Counter[str] = Counter()
    with JavaRecords() as java:
        for name, check in combinations().items():
            numbers = [n for n in range(options.count) if options.selects(name, n)]
            used += bool(numbers)
            for number in numbers:
                case = Case(random.Random(f"{options.seed} {name} {number}"), java)
                with case.catch_errors("one side refuses it"):
                    check(case)
                batches += 1
                records += case.records
                size += case.bytes
                traits += case.traits
                for found in case.differences:
                    result.add_difference(options, f"{name}:{number}", found)
    result.summary = (
        f"{batches:,} batches of {used} kinds on {len(KERNELS)} kernels, "
        f"{records:,} records, {size:,} bytes ("
        + ", ".join(f"{number:,} {trait}" for trait, number in sorted(traits.items()))
        + ")"
    )
    return result
