"""Compares record batch codecs: `python -m benchmarks.wire_batches`, also in `make bench-wire`.

There are two tables: the compiled kernel with aiokafka in Cython, and the kernel in plain Python
with kafka-python and aiokafka in plain Python, which includes the CRC. All run in one process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.wire_batch_clients import (
    BatchClient,
    RecordFields,
    aiokafka,
    kafka_python,
    ours,
    plain_aiokafka,
)
from benchmarks.wire_cases import Case, Contender, Row, markdown, measure

if TYPE_CHECKING:
    from kafka_async.types import Header

RESULTS = Path(__file__).parent / "results"
BATCH = 64 << 10
"""Approximate bytes of a batch, between the defaults of Java (16 KiB) and of ours (128 KiB)."""

SIZES = {"100 B": 100, "1 KiB": 1024}
SHAPES = {"no key": False, "key, 2 headers": True}
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
        if rich:
            headers: list[Header] = [
                ("trace-id", b"%016x" % rng.getrandbits(64)),
                ("kind", b"click"),
            ]
            records.append((time, b"key-%06d" % number, value, headers))
        else:
            records.append((time, None, value, []))
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
    """Batch to encode and decode."""

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
    return [
        Subject(f"{size}, {shape}", records, reference(records))
        for size, length in SIZES.items()
        for shape, rich in SHAPES.items()
        for records in (make_records(length, rich=rich),)
    ]


def contenders(client: BatchClient) -> dict[str, Contender]:
    """Return the contenders of a client by name of the case."""
    return {
        **{f"encode {each.name}": _encoding(client, each) for each in subjects()},
        **{f"decode {each.name}": _decoding(client, client.decode, each) for each in subjects()},
        **{f"consume {each.name}": _decoding(client, client.consume, each) for each in subjects()},
    }


def reference(records: list[RecordFields]) -> bytes:
    """Return the batch that every client must encode, and decodes."""
    return ours("reference", kernel("python")).encode(records)


def _encoding(client: BatchClient, subject: Subject) -> Contender:
    return Contender(
        client.client,
        lambda: client.encode(subject.records),
        lambda made: same_batch(made, subject.data),
    )


def _decoding(
    client: BatchClient, decode: Callable[[bytes], Iterable[Any]], subject: Subject
) -> Contender:
    return Contender(
        client.client,
        lambda: touch(decode(subject.data)),
        lambda _: fields(decode(subject.data)) == subject.expected,
    )


def kernel(name: str) -> Any:
    """Return a kernel by name, regardless of the one in use."""
    module = {"c": "_ckernel", "python": "_pykernel"}[name]
    return importlib.import_module(f"kafka_async.kernel.{module}")


def compiled_cases() -> list[Case]:
    """Return the cases of the compiled kernel and the fastest codecs of the peers."""
    return _together(
        [
            contenders(ours("kafka_async", kernel("c"))),
            contenders(aiokafka("aiokafka in Cython")),
            contenders(kafka_python()),
        ]
    )


def plain_cases() -> list[Case]:
    """Return the cases of the kernel and the peers in plain Python."""
    return _together(
        [
            contenders(ours("kafka_async in plain Python", kernel("python"))),
            contenders(kafka_python()),
            contenders(plain_aiokafka("aiokafka in plain Python")),
        ]
    )


def _together(clients: list[dict[str, Contender]]) -> list[Case]:
    counts = {each.name: len(each.records) for each in subjects()}
    return [
        Case(name, tuple(client[name] for client in clients), counts[name.split(" ", 1)[1]])
        for name in clients[0]
    ]


def main() -> None:
    """Parse the arguments, measure, print and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire_batches", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    compiled = [
        row for case in compiled_cases() for row in measure(case, rounds, time.process_time)
    ]
    plain = [row for case in plain_cases() for row in measure(case, rounds, time.process_time)]
    version = ".".join(platform.python_version_tuple()[:2])
    machine = f"{os.cpu_count()} shared cores, Python {version}"
    write(compiled, plain, rounds, machine)


def write(compiled: list[Row], plain: list[Row], rounds: int, machine: str) -> None:
    """Print the results, and write them as tables and as JSON."""
    text = (
        f"Batches of about {BATCH >> 10} KiB, uncompressed, {rounds} interleaved rounds, CPU time; "
        f"{machine}. Medians, in brackets lowest and highest; xN: N times what ours took in the "
        f"same round.\n\n{markdown(compiled, 'record')}\n{markdown(plain, 'record')}"
    )
    sys.stdout.write(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "wire_batches.md").write_text(text, "utf-8")
    document = {
        "machine": machine,
        "rounds": rounds,
        "batch_bytes": BATCH,
        "rows": [asdict(row) for row in compiled + plain],
    }
    (RESULTS / "wire_batches.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
