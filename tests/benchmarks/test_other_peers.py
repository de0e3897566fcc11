"""The benchmark peers of other clients send and read all records, and report correct figures."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

import pytest

from benchmarks import payload, topics
from benchmarks.cases import Contender
from benchmarks.peers import java_peer
from benchmarks.peers.java_peer import (
    Line,
    ToolError,
    read_consumer_lines,
    read_lines,
    read_producer_lines,
)
from benchmarks.peers.paced import paced
from benchmarks.peers.task import Task
from benchmarks.rounds import launch
from benchmarks.topics import Tally
from kafka_async.embedded import run_in_thread
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.environment import in_ci

RECORDS = 2_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with run_in_thread(brokers=1) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def java(record_testsuite_property: Callable[[str, object], None]) -> None:
    """Skip the tests, or fail in CI, without Java and the jars of its tools."""
    try:
        java_peer.prepare()
    except BackendUnavailableError as error:
        record_testsuite_property("not_run", f"the benchmark's Java peer ({error})")
        report = pytest.fail if in_ci() else pytest.skip
        report(f"no Java peer: {error}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "way", "keyed", "compression"),
    [
        ("confluent", "enqueue", False, "none"),
        ("confluent", "enqueue", True, "lz4"),
        ("confluent", "callbacks", False, "none"),
        ("confluent", "send_many", True, "none"),
        ("confluent_asyncio", "enqueue", False, "none"),
        ("confluent_asyncio", "enqueue", True, "zstd"),
        ("confluent_asyncio", "send", False, "none"),
        ("kafka_python", "enqueue", False, "none"),
        ("kafka_python", "enqueue", True, "zstd"),
        ("raw_socket", "send_batch", False, "none"),
        ("raw_socket", "send_batch", True, "zstd"),
    ],
)
def test_peer_sends_all_records(
    peer: str, way: str, keyed: bool, compression: str, bootstrap: str
) -> None:
    topic = asyncio.run(topics.create(bootstrap))
    task = Task(
        "produce",
        bootstrap,
        topic,
        way,
        records=RECORDS,
        keyed=keyed,
        compression=compression,
        concurrency=10,
    )
    figures = launch(Contender(peer, way), task)
    expected = payload.expected(RECORDS, task.size, compressible=compression != "none")
    assert asyncio.run(topics.tally(bootstrap, topic)) == Tally(RECORDS, expected)
    assert figures.records == RECORDS
    assert min(figures.seconds, figures.cpu_seconds, figures.peak_mb) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "way"),
    [
        ("confluent", "poll"),
        ("confluent", "iterate"),
        ("confluent_asyncio", "poll"),
        ("confluent_asyncio", "iterate"),
        ("kafka_python", "poll"),
        ("kafka_python", "iterate"),
        ("raw_socket", "batches"),
    ],
)
def test_peer_reads_all_records(peer: str, way: str, bootstrap: str) -> None:
    topic = asyncio.run(topics.create(bootstrap))
    filled = topics.fill(bootstrap, topic, RECORDS, 100, keyed=False, compression="none")
    asyncio.run(filled)
    task = Task("consume", bootstrap, topic, way, records=RECORDS, verify=True)
    figures = launch(Contender(peer, way), task)
    assert (figures.records, figures.checksum) == (RECORDS, payload.expected(RECORDS, 100))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "keyed", "compression"), [("enqueue", True, "lz4"), ("program", False, "none")]
)
def test_java_program_sends_all_records(
    way: str, keyed: bool, compression: str, java: None, bootstrap: str
) -> None:
    test_peer_sends_all_records("java", way, keyed, compression, bootstrap)


@pytest.mark.slow
def test_java_tools_report_number_of_records(java: None, bootstrap: str) -> None:
    topic = asyncio.run(topics.create(bootstrap))
    task = Task("produce", bootstrap, topic, "enqueue", records=200_000)
    sent = launch(Contender("java", "enqueue"), task)
    assert asyncio.run(topics.tally(bootstrap, topic)).records == 200_000
    read = launch(Contender("java", "poll"), replace(task, kind="consume", way="poll"))
    assert (sent.records, read.records) == (100_000, 200_000)
    assert min(sent.cpu_seconds, read.cpu_seconds, sent.peak_mb, read.peak_mb) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "kind"),
    [
        ("confluent", "round_trip"),
        ("confluent", "end_to_end"),
        ("confluent_asyncio", "round_trip"),
        ("confluent_asyncio", "end_to_end"),
        ("kafka_python", "round_trip"),
        ("kafka_python", "end_to_end"),
        ("raw_socket", "round_trip"),
    ],
)
def test_peer_measures_latency_of_single_records(peer: str, kind: str, bootstrap: str) -> None:
    topic = asyncio.run(topics.create(bootstrap))
    task = Task(kind, bootstrap, topic, records=50, rate=1_000.0)
    figures = launch(Contender(peer), task)
    assert figures.latency_us is not None
    assert 0 < figures.latency_us["p50"] <= figures.latency_us["p99"]
    assert figures.records == 50
    assert asyncio.run(topics.tally(bootstrap, topic)).records == 50


def test_late_operation_does_not_delay_later_ones() -> None:
    clock = iter([0.0, 0.0, 0.25, 0.25, 0.25])
    waits: list[float] = []
    assert list(paced(4, 10.0, lambda: next(clock), waits.append)) == [0, 1, 2, 3]
    assert waits == [pytest.approx(0.05)]  # the last one, due at 0.3; two were late


# -- output of Kafka's tools ----------------------------------------------------------------------

PRODUCER = [
    "480000000 77636\tWarmup first 300000 records. Steady state results will print after the "
    "complete test summary.",
    "760000000 98968\t1 records sent, 1.8 records/sec (0.00 MB/sec), 565.0 ms avg latency, "
    "565.0 ms max latency.",
    "1700000000 150376\t27013 records sent, 227000.0 records/sec (21.65 MB/sec), 13.5 ms avg "
    "latency, 76.0 ms max latency.",
    "1750000000 166160\tIn steady state.",
    "1760000000 167620\t100000 records sent, 6.5 records/sec (0.00 MB/sec), 154.0 ms avg latency, "
    "154.0 ms max latency.",
    "2240000000 352924\t36371 records sent, 69015.2 records/sec (6.58 MB/sec), 28.4 ms avg "
    "latency, 461.0 ms max latency.",
    "2350000000 364288\t600000 records sent, 136736.554239 records/sec (13.04 MB/sec), 110.74 ms "
    "avg latency, 589.00 ms max latency, 49 ms 50th, 509 ms 95th, 537 ms 99th, 582 ms 99.9th.",
    "2360000000 365476\t300000 steady state records sent, 194678.780013 records/sec (18.57 "
    "MB/sec), 105.20 ms avg latency, 538.00 ms max latency, 53 ms 50th, 517 ms 95th, 534 ms 99th, "
    "538 ms 99.9th.",
]
CONSUMER = [
    "800000000 90000\tstart.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, "
    "nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec",
    "2650000000 430000\t2026-11-22 00:24:55:691, 2026-11-22 00:24:57:685, 286.1023, 143.4816, "
    "3000000, 1504513.5406, 646, 1348, 212.2421, 2225519.2878",
]


def test_reads_steady_state_of_producer_tool() -> None:
    found = read_producer_lines(read_lines("\n".join(PRODUCER)))
    assert found.records == 300_000
    assert found.records / found.seconds == pytest.approx(194_678.780013)
    assert found.cpu_seconds == pytest.approx(0.6 * 300 / 200)  # 0.6 s for the last 200,000
    assert found.peak_mb == 365_476 * 1024 / 1e6


def test_reads_fetch_time_of_consumer_tool() -> None:
    found = read_consumer_lines(read_lines("\n".join(CONSUMER)))
    assert found.records == 3_000_000
    assert found.records / found.seconds == pytest.approx(2_225_519.2878)
    assert found.cpu_seconds == pytest.approx(1.85)


@pytest.mark.parametrize("read", [read_producer_lines, read_consumer_lines])
@pytest.mark.parametrize("printed", ["", "1 1\tException in thread main\n"])
def test_unexpected_output_of_tool_raises(
    read: Callable[[list[Line]], object], printed: str
) -> None:
    with pytest.raises(ToolError, match=r"perf-test.*: (no output|Exception)"):
        read(read_lines(printed))


def test_error_without_java_names_package_to_install() -> None:
    task = json.dumps(asdict(Task("produce", "localhost:1", "topic", "enqueue")))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.java_peer", task],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the Java peer: install Java 17 or newer\n"
