"""Compares codecs of messages and batches: `python -m benchmarks.wire`, also `make bench-wire`.

Measures messages in the steady state with all clients in one process, then their first use with a
process for each client, then record batches. Writes the results of a complete run to
benchmarks/results/, as tables and as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.wire import batches, first_use
from benchmarks.wire.codecs import CLIENTS, NEWEST, OURS, Codec, codec, modules
from benchmarks.wire.messages import SUBJECTS
from benchmarks.wire.timing import Case, Contender, Row, markdown, measure_all, table
from kafka_async.kernel import IMPLEMENTATION

RESULTS: Final = Path(__file__).parents[1] / "results"
BATCHES: Final = "batches"


def message_cases(subjects: list[str]) -> list[Case]:
    """Return cases for each subject in the newest version, and in one that all clients support."""
    found: list[Case] = []
    for api in subjects:
        subject = SUBJECTS[api]
        message = subject.make(subject.size)
        for version, clients in ((subject.newest, NEWEST), (subject.classic, CLIENTS)):
            frame = message.encode(version)
            codecs = [codec(client, api, type(message).__name__, version) for client in clients]
            title = f"{subject.title}, v{version}"
            found += [
                Case(f"decode {title}", tuple(_decoding(each, frame) for each in codecs)),
                Case(f"encode {title}", tuple(_encoding(each, frame) for each in codecs)),
            ]
    return found


def _decoding(each: Codec, frame: bytes) -> Contender:
    """Return the contender that decodes; what it has read must encode to the same bytes."""
    return Contender(
        each.client, lambda: each.decode(frame), lambda made: _same(each.encode(made), frame)
    )


def _encoding(each: Codec, frame: bytes) -> Contender:
    value = each.decode(frame)
    return Contender(each.client, lambda: each.encode(value), lambda made: _same(made, frame))


def _same(made: object, frame: bytes) -> bool:
    return isinstance(made, bytes | bytearray) and bytes(made) == frame


def first_uses(subjects: list[str], processes: int) -> list[first_use.FirstUse]:
    """Measure loading and first use of each subject's codecs in the newest version."""
    found: list[first_use.FirstUse] = []
    for api in subjects:
        version = SUBJECTS[api].newest
        message = SUBJECTS[api].make(1)
        for client in NEWEST:
            each = (client, api, type(message).__name__, version)
            frame = message.encode(version)
            found.append(first_use.measure(each, modules(*each), frame, processes))
            print(f"first use: {found[-1]}", file=sys.stderr)
    return found


def first_use_table(uses: list[first_use.FirstUse]) -> str:
    """Return a table of first uses in milliseconds, with the time to load modules in brackets."""
    cells: dict[str, list[str]] = {}
    for use in uses:
        cells.setdefault(use.case, [use.case]).append(f"{use.use:.2f} ({use.load:.0f})")
    heads = dict.fromkeys(f"{use.client}, ms" for use in uses)
    return table(["decode and encode once", *heads], cells.values())


def sweep_line(kernel: str, spent: dict[str, float]) -> str:
    """Return a sentence about the time to make every codec."""
    worst = max(spent, key=spent.__getitem__)
    return (
        f"- Making each of the {len(spent):,} codecs, CPU time, kernel {kernel}: median "
        f"{statistics.median(spent.values()):.2f} ms, worst {spent[worst]:.2f} ms ({worst}).\n"
    )


def summary(rows: list[Row]) -> str:
    """Return sentences about the fastest peer of each kind."""
    rust = [row for row in rows if row.client == "kio" and row.case.startswith("decode")]
    python = [row for row in rows if not row.client.startswith(OURS) and row not in rust]
    nearest = [
        (kind, min(those, key=lambda each: each.ratio))
        for kind, those in (("codecs in Python", python), ("readers in Rust", rust))
        if those
    ]
    return "".join(
        f"- The closest of the {kind}: {row.client}, x{row.ratio:.2f} ({row.case}).\n"
        for kind, row in nearest
    )


def main() -> None:
    """Parse the arguments, measure, print and write the results."""
    sections = [*SUBJECTS, BATCHES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--processes", type=int, default=5, help="for each figure of first use")
    parser.add_argument("--only", nargs="+", default=sections, choices=sections)
    options = parser.parse_args()
    version = ".".join(platform.python_version_tuple()[:2])
    machine = f"{os.cpu_count()} shared cores, Python {version}"
    if messages := [each for each in options.only if each != BATCHES]:
        measure_messages(messages, options.rounds, options.processes, machine)
    if BATCHES in options.only:
        measure_batches(options.rounds, machine)


def measure_messages(subjects: list[str], rounds: int, processes: int, machine: str) -> None:
    """Measure messages, and print the results; write those of a run with all subjects."""
    rows = measure_all(message_cases(subjects), rounds)
    uses = first_uses(subjects, processes)
    kernels = ["c", "python"] if IMPLEMENTATION == "c" else ["python"]
    sweeps = {kernel: first_use.sweep(kernel, processes) for kernel in kernels}
    text = (
        f"{rounds} interleaved rounds, kernel {IMPLEMENTATION}; {machine}. CPU time: "
        "medians, in brackets lowest and highest; xN: N times what ours took in the same round."
        "\n\n"
        f"{markdown(rows, 'message')}\n{summary(rows)}\n"
        f"First use, CPU time: medians of {processes} processes; in brackets, loading "
        f"the client's modules.\n\n{first_use_table(uses)}\n"
        + "".join(sweep_line(kernel, spent) for kernel, spent in sweeps.items())
    )
    document = {
        "kernel": IMPLEMENTATION,
        "machine": machine,
        "rounds": rounds,
        "rows": [asdict(row) for row in rows],
        "first_use": [asdict(use) for use in uses],
        "codecs_ms": sweeps,
    }
    print(text, end="")
    if set(subjects) == set(SUBJECTS):
        write("wire", text, document)


def measure_batches(rounds: int, machine: str) -> None:
    """Measure record batches, and print and write the results."""
    compiled = measure_all(batches.compiled_cases(), rounds)
    plain = measure_all(batches.plain_cases(), rounds)
    text = (
        f"Batches of about {batches.BATCH >> 10} KiB, uncompressed, {rounds} interleaved rounds, "
        f"CPU time; {machine}. Medians, in brackets lowest and highest; xN: N times what ours took "
        f"in the same round.\n\n{markdown(compiled, 'record')}\n{markdown(plain, 'record')}"
    )
    document = {
        "machine": machine,
        "rounds": rounds,
        "batch_bytes": batches.BATCH,
        "rows": [asdict(row) for row in compiled + plain],
    }
    print(text, end="")
    write("wire_batches", text, document)


def write(name: str, text: str, document: dict[str, Any]) -> None:
    """Write the results as tables and as JSON."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, "utf-8")
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
