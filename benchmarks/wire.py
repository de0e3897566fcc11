"""Compares codecs of messages and batches: `python -m benchmarks.wire`, also `make bench-wire`.

Measures the steady state with all clients in one process, then the first use with a process for
each client, then record batches with `wire_batches` in another process. Writes the results of a
complete run to benchmarks/results/, as tables and as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks import wire_first_use
from benchmarks.wire_cases import Case, Contender, Row, markdown, measure
from benchmarks.wire_codecs import CLIENTS, NEWEST, OURS, Codec, codec, modules
from benchmarks.wire_first_use import FirstUse, Task
from benchmarks.wire_messages import SUBJECTS, Subject
from kafka_async.kernel import IMPLEMENTATION

RESULTS = Path(__file__).parent / "results"
BATCHES = "batches"
SECTIONS = [*SUBJECTS, BATCHES]
"""Names for `--only`."""


def message_cases(subjects: list[str]) -> list[Case]:
    """Return cases for each subject in the newest version, and in one that all clients support."""
    return [
        case
        for api in subjects
        for subject in (SUBJECTS[api],)
        for version, clients in ((subject.newest, NEWEST), (subject.classic, CLIENTS))
        for case in _pair(api, subject, version, clients)
    ]


def _pair(api: str, subject: Subject, version: int, clients: tuple[str, ...]) -> tuple[Case, Case]:
    message = subject.make(subject.size, version)
    name = type(message).__name__
    frame = message.encode(version)
    codecs = [codec(client, api, name, version) for client in clients]
    values = codecs[0].plain(message)
    title = f"{subject.title}, v{version}"
    return (
        Case(f"decode {title}", tuple(_decoding(each, frame, values) for each in codecs)),
        Case(f"encode {title}", tuple(_encoding(each, frame) for each in codecs)),
    )


def _decoding(each: Codec, frame: bytes, values: object) -> Contender:
    return Contender(
        each.client, lambda: each.decode(frame), lambda made: each.plain(made) == values
    )


def _encoding(each: Codec, frame: bytes) -> Contender:
    value = each.decode(frame)
    return Contender(each.client, lambda: each.encode(value), lambda made: _same(made, frame))


def _same(made: object, frame: bytes) -> bool:
    return isinstance(made, bytes | bytearray) and bytes(made) == frame


def first_uses(subjects: list[str], processes: int) -> list[FirstUse]:
    """Measure loading and first use of each subject's codecs in the newest version."""
    found: list[FirstUse] = []
    for api in subjects:
        subject = SUBJECTS[api]
        version = subject.newest
        message = subject.make(1, version)
        name = type(message).__name__
        frame = message.encode(version).hex()
        for client in NEWEST:
            needed = modules(client, api, name, version)
            task = Task(client, needed, api, name, version, frame)
            found.append(wire_first_use.measure(f"{name} v{version}", task, processes))
            sys.stderr.write(f"first use: {found[-1]}\n")
    return found


def first_use_table(uses: list[FirstUse]) -> str:
    """Return a table of first uses in milliseconds, with the time to load modules in brackets."""
    clients = list(dict.fromkeys(use.client for use in uses))
    lines = [
        "| decode and encode once | " + " | ".join(f"{client}, ms" for client in clients) + " |",
        "|---|" + "---:|" * len(clients),
    ]
    for case in dict.fromkeys(use.case for use in uses):
        mine = {use.client: use for use in uses if use.case == case}
        cells = [f"{mine[client].use:.2f} ({mine[client].load:.0f})" for client in clients]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


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
    lines: list[str] = []
    for kind, those in (("codecs in Python", python), ("readers in Rust", rust)):
        if those:
            row = min(those, key=lambda each: each.ratio)
            lines.append(
                f"- The closest of the {kind}: {row.client}, x{row.ratio:.2f} ({row.case}).\n"
            )
    return "".join(lines)


def main() -> None:
    """Parse the arguments, measure, print and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--processes", type=int, default=5, help="for each figure of first use")
    parser.add_argument("--only", nargs="+", default=SECTIONS, choices=SECTIONS)
    arguments = parser.parse_args()
    if messages := [each for each in arguments.only if each != BATCHES]:
        measure_messages(messages, arguments.rounds, arguments.processes)
    if BATCHES in arguments.only:
        rounds = str(arguments.rounds)
        command = [sys.executable, "-m", "benchmarks.wire_batches", "--rounds", rounds]
        subprocess.run(command, check=True)


def measure_messages(subjects: list[str], rounds: int, processes: int) -> None:
    """Measure messages, and print and write the results."""
    rows = [
        row for case in message_cases(subjects) for row in measure(case, rounds, time.process_time)
    ]
    uses = first_uses(subjects, processes)
    kernels = ["c", "python"] if IMPLEMENTATION == "c" else ["python"]
    sweeps = {kernel: wire_first_use.sweep(kernel, processes) for kernel in kernels}
    version = ".".join(platform.python_version_tuple()[:2])
    machine = f"{os.cpu_count()} shared cores, Python {version}"
    text = (
        f"{rounds} interleaved rounds, kernel {IMPLEMENTATION}; {machine}. CPU time: "
        "medians, in brackets lowest and highest; xN: N times what ours took in the same round."
        "\n\n"
        f"{markdown(rows, 'message')}\n{summary(rows)}\n"
        f"First use, CPU time: medians of {processes} processes; in brackets, loading "
        f"the client's modules.\n\n{first_use_table(uses)}\n"
        + "".join(sweep_line(kernel, spent) for kernel, spent in sweeps.items())
    )
    sys.stdout.write(text)
    if set(subjects) < set(SECTIONS) - {BATCHES}:
        return  # the documentation shows results of complete runs only
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "wire.md").write_text(text, "utf-8")
    document = {
        "kernel": IMPLEMENTATION,
        "machine": machine,
        "rounds": rounds,
        "rows": [asdict(row) for row in rows],
        "first_use": [asdict(use) for use in uses],
        "codecs_ms": sweeps,
    }
    (RESULTS / "wire.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
