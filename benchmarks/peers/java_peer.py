"""Runs cases with Kafka's performance tools, and with a Java program for other cases.

kafka-producer-perf-test supports no keys and sends random values, so only the number of its records
can be checked. Our program runs keyed cases, the call `program` and round trips, with the values of
all other clients. Neither measures the warm-up, in which the JVM compiles: it is the first half of
the tool's records, and additional records of the program.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import payload
from benchmarks.peers.task import Figures, Task, main, percentiles
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jars import LOGGER, Artifact, resolve
from kafka_async.testing.backends.jvm import find_java
from tools.conformance.java import JavaError, class_path, compile_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE: Final = Path(__file__).parent / "java"
# The tools of 4.4.0 are not published, and these do not run with the other jars of 4.4.0.
TOOLS: Final = "4.3.1"
# The JVM options of kafka-run-class.sh and of the scripts of both tools.
JVM: Final = (
    *("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)
TIME_LIMIT: Final = 120
WARM_UP_RECORDS: Final = 500_000
"""Maximum number of warm-up records; not more than those that are measured."""
WARM_UP_ROUND_TRIPS: Final = 3_000
FAST_PRODUCER: Final = {"batch.size": 131_072, "enable.idempotence": "true"}
FAST_CONSUMER: Final = {"max.poll.records": 5_000}
"""Larger fetches are not faster."""


class ToolError(RuntimeError):
    """A Java program failed, or its output is not as expected."""


def producer_settings(task: Task, linger_ms: int = 5) -> dict[str, Any]:
    """Return the properties of a producer, without the cluster's address."""
    settings: dict[str, Any] = {"acks": "all"}
    if task.compression != "none":
        settings["compression.type"] = task.compression
    return settings | (FAST_PRODUCER | {"linger.ms": linger_ms} if task.tuned else {})


def _properties(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def produce(task: Task) -> Figures:
    """Produce with the tool, or with our program if there are keys."""
    return _send(task) if task.keyed or task.way == "program" else _produce_by_tool(task)


def _produce_by_tool(task: Task) -> Figures:
    settings = producer_settings(task)
    warm_up = task.records // 2
    with tempfile.TemporaryDirectory() as directory:
        lines = _tool(
            "ProducerPerformance",
            *("--bootstrap-server", task.bootstrap, "--topic", task.topic, "--throughput", "-1"),
            *("--num-records", str(task.records), "--warmup-records", str(warm_up)),
            *("--reporting-interval", "10"),
            *_values(task, Path(directory, "values")),
            *("--command-property", *_properties(settings)),
        )
    written = read_producer_lines(lines)
    used = f"{JVM[0]}, kafka-producer-perf-test {TOOLS}, the second half of the records counts"
    return written.figures(settings | {"java": used})


def _values(task: Task, file: Path) -> list[str]:
    """Return the arguments for values: log lines for compressed cases, else random values."""
    if task.compression == "none":
        return ["--record-size", str(task.size)]
    file.write_bytes(b"\n".join(payload.values(task.size, compressible=True)))
    return ["--payload-file", str(file)]


def consume(task: Task) -> Figures:
    """Consume with the tool; the time does not include joining the group."""
    lines = _tool(
        "ConsumerPerformance",
        *("--bootstrap-server", task.bootstrap, "--topic", task.topic),
        *("--num-records", str(task.records)),
        *(["--command-property", *_properties(FAST_CONSUMER)] if task.tuned else []),
    )
    read = read_consumer_lines(lines)
    settings = (FAST_CONSUMER if task.tuned else {}) | {
        "fetch-size": 1_048_576,
        "socket-buffer-size": 2_097_152,
        "check.crcs": "false",
        "java": f"{JVM[0]}, kafka-consumer-perf-test {TOOLS}: fetch.nMsg.sec; CPU with joining",
    }
    return read.figures(settings)


def round_trip(task: Task) -> Figures:
    """Send records one after the other, waiting for each future."""
    return _send(task)


def _send(task: Task) -> Figures:
    single = task.kind == "round_trip"
    settings = producer_settings(task, linger_ms=0 if single else 5)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "values")
        values = payload.values(task.size, compressible=task.compression != "none")
        file.write_bytes(b"".join(values))
        output = _run(
            class_path(),
            "Sender",
            *(task.kind, task.topic, str(file), str(task.size), str(task.records)),
            str(WARM_UP_ROUND_TRIPS if single else min(WARM_UP_RECORDS, task.records)),
            *(str(payload.KEYS if task.keyed else 0), str(task.rate), str(int(task.start * 1000))),
            f"bootstrap.servers={task.bootstrap}",
            *_properties(settings),
        )
    used, *taken = output.splitlines()
    wall, cpu, peak = map(int, used.split())
    return Figures(
        wall / 1e9,
        cpu / 1e9,
        task.records,
        latency_us=percentiles([int(ns) / 1e9 for ns in taken[0].split()]) if single else None,
        settings=settings | {"java": f"{JVM[0]}, a program of the benchmark's own"},
        peak_mb=peak * 1024 / 1e6,
    )


# -- output of the tools --------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """Line of a tool's output, with the CPU time and the peak memory of the process until then."""

    cpu_seconds: float
    peak_mb: float
    text: str


@dataclass(frozen=True)
class Measured:
    """Figures of a tool."""

    records: int
    seconds: float
    cpu_seconds: float
    peak_mb: float

    def figures(self, settings: dict[str, Any]) -> Figures:
        """Return the figures of a run."""
        return Figures(
            self.seconds,
            self.cpu_seconds,
            self.records,
            settings=settings,
            peak_mb=self.peak_mb,
        )


_STEADY = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec")
_WINDOW = re.compile(r"(\d+) records sent, ")


def read_producer_lines(lines: Sequence[Line]) -> Measured:
    """Read the summary of the steady state.

    The CPU time of the records after its first line is scaled to all its records.
    """
    begin = next((n for n, line in enumerate(lines) if line.text.startswith("In steady")), None)
    summary = _STEADY.match(lines[-1].text) if lines else None
    if begin is None or summary is None or not (window := _WINDOW.match(lines[begin + 1].text)):
        raise ToolError(f"kafka-producer-perf-test printed no steady state: {_last(lines)}")
    records = int(summary[1])
    scale = records / (records - int(window[1]))
    cpu = (lines[-1].cpu_seconds - lines[begin + 1].cpu_seconds) * scale
    return Measured(records, records / float(summary[2]), cpu, lines[-1].peak_mb)


def read_consumer_lines(lines: Sequence[Line]) -> Measured:
    """Read the row of the tool's table; the CPU time is counted from the heading."""
    heads = [line for line in lines if line.text.startswith("start.time, ")]
    if not heads or len(lines) < lines.index(heads[0]) + 2:
        raise ToolError(f"kafka-consumer-perf-test printed no table: {_last(lines)}")
    end = lines[lines.index(heads[0]) + 1]
    row = dict(zip(heads[0].text.split(", "), end.text.split(", "), strict=True))
    records = int(row["data.consumed.in.nMsg"])
    return Measured(
        records,
        int(row["fetch.time.ms"]) / 1000,
        end.cpu_seconds - heads[0].cpu_seconds,
        end.peak_mb,
    )


def _last(lines: Sequence[Line]) -> str:
    return lines[-1].text if lines else "no output"


def read_lines(output: str) -> list[Line]:
    """Parse the output of a tool that ran in Tool.java."""
    lines: list[Line] = []
    for row in output.splitlines():
        used, tab, text = row.partition("\t")
        if tab and text:
            cpu, peak = used.split()
            lines.append(Line(int(cpu) / 1e9, int(peak) * 1024 / 1e6, text))
    return lines


# -- Java -----------------------------------------------------------------------------------------


def prepare() -> Path:
    """Compile the programs and download the tools if necessary; return the classes' directory.

    Raises:
        BackendUnavailableError: Java, its compiler or the jars are missing.
    """
    find_java()
    _tool_jars()
    return compile_files(sorted(HERE.glob("*.java")), class_path())


def _tool_jars() -> str:
    artifacts = (Artifact("org.apache.kafka", "kafka-tools", TOOLS), LOGGER)
    jars = resolve(f"kafka-tools-{TOOLS}", artifacts)
    return os.pathsep.join(sorted(map(str, jars.glob("*.jar"))))


def _tool(name: str, *arguments: str) -> list[Line]:
    path = _tool_jars()
    return read_lines(_run(path, "Tool", f"org.apache.kafka.tools.{name}", *arguments))


def _run(jars: str, main_class: str, *arguments: str) -> str:
    """Run a program; return its output.

    Raises:
        BackendUnavailableError: Java, its compiler or the jars are missing.
        ToolError: the program failed.
    """
    path = os.pathsep.join([str(prepare()), jars])
    done = subprocess.run(
        [find_java().command, *JVM, "-cp", path, main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    if done.returncode or not done.stdout:
        raise ToolError(f"{main_class} ended with status {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


RUNS = {"produce": produce, "consume": consume, "round_trip": round_trip}

if __name__ == "__main__":
    try:
        prepare()
        main(RUNS)
    except (BackendUnavailableError, JavaError, ToolError) as error:
        sys.exit(f"the Java peer: {error}")
