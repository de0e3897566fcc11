"""Runs cases with Kafka's performance tools, and with a Java program for other cases.

kafka-producer-perf-test supports no keys and sends random values, so only the number of its records
can be checked. Our program runs keyed cases, the call `program` and round trips, with the values of
all other clients. Neither measures the warm-up, in which the JVM compiles: it is the first half of
the tool's records, and additional records of the program.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks import payload
from benchmarks.peers.task import Figures, Task, main, percentiles
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jars import LOGGER, Artifact, resolve
from kafka_async.testing.backends.jvm import find_java
from tools.conformance.java import JavaError, class_path, compile_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SENDER: Final = Path(__file__).parent / "Sender.java"
# The tools of 4.4.0 are not published, and these do not run with the other jars of 4.4.0.
TOOLS: Final = "4.3.1"
# The JVM options of kafka-run-class.sh and of the scripts of both tools.
JVM: Final = (
    *("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)
TIME_LIMIT: Final = 120
"""Seconds until a program is killed, which also waits as long for its next records."""
WARM_UP_RECORDS: Final = 500_000
"""Maximum number of warm-up records; not more than those that are measured."""
WARM_UP_ROUND_TRIPS: Final = 3_000
FAST_PRODUCER: Final = {"batch.size": 131_072, "enable.idempotence": "true"}
FAST_CONSUMER: Final = {"max.poll.records": 5_000}
"""Larger fetches are not faster."""


class ToolError(RuntimeError):
    """A Java program failed, or its output is not as expected."""


class Line(NamedTuple):
    """Line of a program's output, with the CPU time of the process until then."""

    cpu_seconds: float
    text: str


def _producer_options(task: Task, linger_ms: int = 5) -> dict[str, Any]:
    options: dict[str, Any] = {"acks": "all"}
    if task.compression != "none":
        options["compression.type"] = task.compression
    return options | (FAST_PRODUCER | {"linger.ms": linger_ms} if task.tuned else {})


def _connection(task: Task) -> dict[str, Any]:
    """Return the properties of a connection with TLS, empty without."""
    if not task.cafile:
        return {}
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": task.cafile,
    }


def _properties(options: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items()]


class JavaPeer:
    """Peer with Kafka's tools and our program."""

    def produce(self, task: Task) -> Figures:
        """Produce with the tool, or with our program if there are keys."""
        return _send(task) if task.keyed or task.way == "program" else _produce_by_tool(task)

    def round_trip(self, task: Task) -> Figures:
        """Send records one after the other, waiting for each future."""
        return _send(task)

    def consume(self, task: Task) -> Figures:
        """Consume with the tool; the time does not include joining the group."""
        tuned = FAST_CONSUMER if task.tuned else {}
        # This tool takes one property per option, unlike the producer's, and ignores further ones.
        given = [("--command-property", each) for each in _properties(_connection(task) | tuned)]
        lines = _run(
            _tool_jars(),
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", task.bootstrap, "--topic", task.topic),
            *("--num-records", str(task.records), "--timeout", str(TIME_LIMIT * 1000)),
            *(word for pair in given for word in pair),
        )
        options = tuned | {
            "fetch-size": 1_048_576,
            "socket-buffer-size": 2_097_152,
            "check.crcs": "false",
            "java": f"{JVM[0]}, kafka-consumer-perf-test {TOOLS}: fetch.nMsg.sec; CPU with joining",
        }
        return read_consumer_lines(lines, options)


def _produce_by_tool(task: Task) -> Figures:
    options = _producer_options(task)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "values")
        file.write_bytes(b"\n".join(task.distinct_values))
        random = ("--record-size", str(task.size))
        lines = _run(
            _tool_jars(),
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", task.bootstrap, "--topic", task.topic, "--throughput", "-1"),
            *("--num-records", str(task.records), "--warmup-records", str(task.records // 2)),
            *("--reporting-interval", "10"),
            *(random if task.compression == "none" else ("--payload-file", str(file))),
            *("--command-property", *_properties(_connection(task) | options)),
        )
    used = f"{JVM[0]}, kafka-producer-perf-test {TOOLS}, the second half of the records counts"
    return read_producer_lines(lines, options | {"java": used})


def _send(task: Task) -> Figures:
    single = task.kind == "round_trip"
    options = _producer_options(task, linger_ms=0 if single else 5)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "values")
        file.write_bytes(b"".join(task.distinct_values))
        begin, end = _run(
            class_path(),
            "Sender",
            *(task.kind, task.topic, str(file), str(task.size), str(task.records)),
            str(WARM_UP_ROUND_TRIPS if single else min(WARM_UP_RECORDS, task.records)),
            *(str(payload.KEYS if task.keyed else 0), str(task.rate), str(int(task.start * 1000))),
            f"bootstrap.servers={task.bootstrap}",
            *_properties(_connection(task) | options),
        )
    wall, *taken = [int(ns) / 1e9 for ns in end.text.split()]
    return Figures(
        wall,
        end.cpu_seconds - begin.cpu_seconds,
        task.records,
        latency_us=percentiles(taken) if single else None,
        settings=options | {"java": f"{JVM[0]}, a program of the benchmark's own"},
        peak_mb=_peak_mb(),
    )


# -- output of the tools --------------------------------------------------------------------------


_STEADY = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec")
_PERIOD = re.compile(r"(\d+) records sent, ([\d.]+) records/sec .*max latency\.$")
_WINDOW = re.compile(r"(\d+) records sent, ")
_CONSUMER_ROW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, ")


def read_producer_lines(lines: Sequence[Line], options: Mapping[str, Any]) -> Figures:
    """Read the summary of the steady state.

    The CPU time of the records after its first line is scaled to all its records.
    """
    begin = next((n for n, line in enumerate(lines) if line.text.startswith("In steady")), None)
    summary = _STEADY.match(lines[-1].text) if lines else None
    if begin is None or summary is None or not (window := _WINDOW.match(lines[begin + 1].text)):
        raise ToolError(f"kafka-producer-perf-test printed no steady state: {_last(lines)}")
    records = int(summary[1])
    scale = records / (records - int(window[1]))
    end = lines[-1]
    cpu = (end.cpu_seconds - lines[begin + 1].cpu_seconds) * scale
    seconds = records / float(summary[2])
    return Figures(seconds, cpu, records, settings=options, peak_mb=_peak_mb())


def read_consumer_lines(lines: Sequence[Line], options: Mapping[str, Any]) -> Figures:
    """Read the row of the tool's table; the CPU time is counted from the heading.

    Other lines may stand between both.
    """
    _check_complete(lines)
    head = next((line for line in lines if line.text.startswith("start.time, ")), None)
    end = next((line for line in lines if _CONSUMER_ROW.match(line.text)), None)
    if head is None or end is None:
        raise ToolError(f"kafka-consumer-perf-test printed no table: {_last(lines)}")
    columns, cells = head.text.split(", "), end.text.split(", ")
    try:
        row = dict(zip(columns, cells, strict=True))
    except ValueError:
        raise ToolError(f"kafka-consumer-perf-test printed another table: {end.text}") from None
    return Figures(
        int(row["fetch.time.ms"]) / 1000,
        end.cpu_seconds - head.cpu_seconds,
        int(row["data.consumed.in.nMsg"]),
        settings=options,
        peak_mb=_peak_mb(),
    )


def _check_complete(lines: Sequence[Line]) -> None:
    """Raise if the consumer tool warns that it has received too few records."""
    for line in lines:
        if line.text.startswith("WARNING: "):
            raise ToolError(f"kafka-consumer-perf-test ended early: {line.text}")


def consumer_progress(
    bootstrap: str, topic: str, records: int, client_id: str, fetch_size: int
) -> list[tuple[float, int]]:
    """Run the tool as a consumer with a client id and a fetch size.

    Returns:
        Seconds since its first row, which comes after 0.1 s, and the number of records until then.
    """
    lines = _run(
        _tool_jars(),
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--fetch-size", str(fetch_size), "--timeout", str(TIME_LIMIT * 1000)),
        *("--show-detailed-stats", "--reporting-interval", "100"),
        *("--command-property", f"client.id={client_id}"),
    )
    return read_consumer_progress(lines)


def read_consumer_progress(lines: Sequence[Line]) -> list[tuple[float, int]]:
    """Read the rows of the tool's detailed statistics."""
    _check_complete(lines)
    found: list[tuple[float, int]] = []
    began: datetime | None = None
    for line in lines:
        time_text, *cells = line.text.split(", ")
        try:
            at = datetime.strptime(time_text, "%Y-%m-%d %H:%M:%S:%f")
        except ValueError:
            continue  # a heading
        began = began or at
        found.append(((at - began).total_seconds(), int(cells[3])))
    if not found:
        raise ToolError(f"kafka-consumer-perf-test printed no statistics: {_last(lines)}")
    return found


def producer_progress(
    bootstrap: str, topic: str, records: int, size: int, options: Mapping[str, Any]
) -> list[tuple[float, int]]:
    """Run the tool as a producer at full speed.

    Returns:
        Seconds since its start, and the number of records that were acknowledged until then.
    """
    lines = _run(
        _tool_jars(),
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(size)),
        *("--reporting-interval", "100", "--command-property", *_properties(options)),
    )
    return read_producer_progress(lines)


def read_producer_progress(lines: Sequence[Line]) -> list[tuple[float, int]]:
    """Read the rows of the tool, without its summary."""
    found: list[tuple[float, int]] = []
    seconds, records = 0.0, 0
    for line in lines:
        row = _PERIOD.match(line.text)
        if row is not None and int(row[1]):
            seconds += int(row[1]) / float(row[2])
            records += int(row[1])
            found.append((seconds, records))
    if not found:
        raise ToolError(f"kafka-producer-perf-test printed no rows: {_last(lines)}")
    return found


def _last(lines: Sequence[Line]) -> str:
    return lines[-1].text if lines else "no output"


# -- Java -----------------------------------------------------------------------------------------


def prepare() -> Path:
    """Compile the program and download the tools if necessary; return the directory of classes."""
    find_java()
    _tool_jars()
    try:
        return compile_files([SENDER], class_path())
    except JavaError as error:
        raise BackendUnavailableError(str(error)) from error


def _tool_jars() -> str:
    artifacts = (Artifact("org.apache.kafka", "kafka-tools", TOOLS), LOGGER)
    jars = resolve(f"kafka-tools-{TOOLS}", artifacts)
    return os.pathsep.join(sorted(map(str, jars.glob("*.jar"))))


def _run(jars: str, main_class: str, *arguments: str) -> list[Line]:
    """Run a program; return the lines of its output that are not empty."""
    path = os.pathsep.join([str(prepare()), jars])
    command = [find_java().command, *JVM, "-cp", path, main_class, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(TIME_LIMIT, process.kill)
        limit.start()
        cpu_clock = ~process.pid << 3 | 2  # Linux's clock of all threads of another process
        try:
            lines = [
                Line(time.clock_gettime(cpu_clock), text.strip())
                for text in process.stdout or ()
                if text.strip()
            ]
        finally:
            limit.cancel()
    if process.returncode or not lines:
        raise ToolError(f"{main_class} ended with status {process.returncode}")
    return lines


def _peak_mb() -> float:
    """Return the peak resident memory of the program, the largest child of this process."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    try:
        prepare()
        main(JavaPeer())
    except (BackendUnavailableError, ToolError) as error:
        sys.exit(f"the Java peer: {error}")
