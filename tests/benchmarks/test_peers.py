"""The peers send and read the records of each case, and report correct figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import payload, topics
from benchmarks.peers import java_peer
from benchmarks.peers.java_peer import (
    Line,
    ToolError,
    read_consumer_lines,
    read_consumer_progress,
    read_producer_lines,
)
from benchmarks.peers.kafka_async_peer import KafkaAsyncPeer
from benchmarks.peers.task import Figures, Task
from benchmarks.processes import launch
from benchmarks.topics import Tally
from kafka_async import Consumer, TopicPartition
from kafka_async.embedded import run_in_thread
from kafka_async.testing.backends.base import BackendUnavailableError

if TYPE_CHECKING:
    from tests.conftest import CannotRun

RECORDS = 2_000
OTHERS = ("aiokafka", "confluent", "confluent_asyncio", "kafka_python")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with run_in_thread(brokers=1) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def java(cannot_run: CannotRun) -> None:
    try:
        java_peer.prepare()
    except BackendUnavailableError as error:
        cannot_run("the benchmark's Java peer", error)


def run(peer: str, bootstrap: str, kind: str, **options: Any) -> tuple[Task, Figures]:
    """Run a task with a new topic, which has the records if they are to be read.

    This project's client runs in this process.
    """
    task = Task(kind, bootstrap, asyncio.run(topics.create(bootstrap)), **options)
    if kind == "consume":
        asyncio.run(topics.fill(bootstrap, task.topic, task.records))
    if peer == "ours":
        work = getattr(KafkaAsyncPeer(), kind)(task)
        figures = asyncio.run(work)
    else:
        figures = launch(peer, task)
        assert figures.peak_mb > 0
    assert min(figures.seconds, figures.cpu_seconds) > 0
    return task, figures


def slow(*cases: tuple[object, ...]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(
    ("peer", "way", "keyed", "compression"),
    [
        *product(["ours"], ["enqueue", "send_many", "send_batch", "send"], [False], ["none"]),
        *product(["ours"], ["enqueue", "send_many", "send_batch", "send"], [True], ["zstd"]),
        ("ours", "enqueue_nowait", False, "none"),
        *slow(
            ("confluent", "enqueue", False, "none"),
            ("confluent", "enqueue", True, "lz4"),
            ("confluent", "callbacks", False, "none"),
            ("confluent_asyncio", "enqueue", False, "none"),
            ("confluent_asyncio", "enqueue", True, "zstd"),
            ("confluent_asyncio", "send", False, "none"),
            ("aiokafka", "enqueue", True, "zstd"),
            ("aiokafka", "send", False, "none"),
            ("kafka_python", "enqueue", False, "none"),
            ("kafka_python", "enqueue", True, "zstd"),
            ("raw_socket", "send_batch", False, "none"),
        ),
    ],
)
def test_peer_sends_all_records(
    peer: str, way: str, keyed: bool, compression: str, bootstrap: str
) -> None:
    options: dict[str, Any] = {"way": way, "keyed": keyed, "compression": compression}
    # The CPU time of Java's process is read when its lines arrive, which few records bring at once.
    records = 50 * RECORDS if peer == "java" else RECORDS
    task, figures = run(peer, bootstrap, "produce", records=records, concurrency=10, **options)
    expected = Tally.expected(records, task.size, compressible=compression != "none")
    assert asyncio.run(topics.tally(bootstrap, task.topic)) == expected
    assert figures.records == records
    if peer == "ours":
        asyncio.run(check_keys(task))


async def check_keys(task: Task) -> None:
    partitions = [TopicPartition(task.topic, number) for number in range(task.partitions)]
    keys: list[bytes] = []
    async with Consumer(
        task.bootstrap, partitions=partitions, auto_offset_reset="earliest"
    ) as consumer:
        while len(keys) < task.records:
            records = await consumer.poll(max_records=task.records)
            keys += [each.key or b"" for each in records if each.value != payload.WARM_UP]
    assert sorted(keys) == sorted(payload.keys()[:RECORDS] if task.keyed else [b""] * RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "keyed", "compression"), [("enqueue", True, "lz4"), ("program", False, "none")]
)
def test_java_program_sends_all_records(
    way: str, keyed: bool, compression: str, java: None, bootstrap: str
) -> None:
    test_peer_sends_all_records("java", way, keyed, compression, bootstrap)


@pytest.mark.parametrize(
    ("peer", "way"),
    [
        *product(["ours"], ["poll", "iterate", "batches", "arrow"]),
        *slow(*product(OTHERS, ["poll", "iterate"]), ("raw_socket", "batches")),
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_peer_reads_all_records(peer: str, way: str, verify: bool, bootstrap: str) -> None:
    _, figures = run(peer, bootstrap, "consume", way=way, records=RECORDS, verify=verify)
    assert figures.records == RECORDS
    assert figures.checksum == (payload.expected(RECORDS, 100) if verify else None)


@pytest.mark.parametrize(
    ("peer", "kind"),
    [
        *product(["ours"], ["round_trip", "end_to_end"]),
        *slow(*product(OTHERS, ["round_trip", "end_to_end"]), ("raw_socket", "round_trip")),
    ],
)
@pytest.mark.parametrize("rate", [0.0, 1_000.0])
def test_peer_measures_latency_of_single_records(
    peer: str, kind: str, rate: float, bootstrap: str
) -> None:
    task, figures = run(peer, bootstrap, kind, records=50, rate=rate)
    assert figures.latency_us is not None
    assert 0 < figures.latency_us["p50"] <= figures.latency_us["p99"]
    assert figures.records == asyncio.run(topics.tally(bootstrap, task.topic)).records == 50
    assert figures.seconds > (49 / rate if rate else 0)


# -- Kafka's tools --------------------------------------------------------------------------------


@pytest.mark.slow
def test_java_tools_report_number_of_records(java: None, bootstrap: str) -> None:
    task, sent = run("java", bootstrap, "produce", way="enqueue", records=200_000)
    assert asyncio.run(topics.tally(bootstrap, task.topic)).records == 200_000
    read = launch("java", replace(task, kind="consume", way="poll"))
    assert (sent.records, read.records) == (100_000, 200_000)
    assert min(sent.cpu_seconds, read.cpu_seconds, sent.peak_mb, read.peak_mb) > 0


PRODUCER = [
    Line(0.48, "Warmup first 300000 records. Steady state results will print after the complete "),
    Line(1.7, "27013 records sent, 227000.0 records/sec (21.65 MB/sec), 13.5 ms avg latency"),
    Line(1.75, "In steady state."),
    Line(1.76, "100000 records sent, 6.5 records/sec (0.00 MB/sec), 154.0 ms avg latency"),
    Line(2.24, "36371 records sent, 69015.2 records/sec (6.58 MB/sec), 28.4 ms avg latency"),
    Line(2.36, "300000 steady state records sent, 194678.780013 records/sec (18.57 MB/sec)"),
]
CONSUMER = [
    Line(
        0.8,
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec",
    ),
    Line(
        2.65,
        "2026-11-22 00:24:55:691, 2026-11-22 00:24:57:685, 286.1023, 143.4816, 3000000, "
        "1504513.5406, 646, 1348, 212.2421, 2225519.2878",
    ),
]


def test_reads_steady_state_of_producer_tool() -> None:
    found = read_producer_lines(PRODUCER, {})
    assert found.records == 300_000
    assert found.records / found.seconds == pytest.approx(194_678.780013)
    assert found.cpu_seconds == pytest.approx(0.6 * 300 / 200)  # 0.6 s for the last 200,000


def test_reads_fetch_time_of_consumer_tool() -> None:
    found = read_consumer_lines(CONSUMER, {})
    assert found.records == 3_000_000
    assert found.records / found.seconds == pytest.approx(2_225_519.2878)
    assert found.cpu_seconds == pytest.approx(1.85)


EARLY = Line(0.9, "WARNING: Exiting before consuming the expected number of records: timeout")


def test_consumer_tool_that_ends_early_raises() -> None:
    head, row = CONSUMER
    words = "ended early: WARNING: Exiting before"
    with pytest.raises(ToolError, match=words):
        read_consumer_lines([head, EARLY, row], {})
    with pytest.raises(ToolError, match=words):
        read_consumer_progress([row, EARLY])


def test_reads_progress_of_consumer_tool_from_its_first_row() -> None:
    lines = [
        "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec",
        "2026-11-22 00:24:55:600, 0, 9.5367, 95.3674, 1000, 10000.0000, 0, 0, 0.0, 0.0",
        "2026-11-22 00:25:07:100, 0, 19.0735, 1.0000, 2000, 100.0000, 0, 0, 0.0, 0.0",
    ]
    found = read_consumer_progress([Line(0.0, line) for line in lines])
    assert found == [(0.0, 1000), (11.5, 2000)]


@pytest.mark.parametrize("read", [read_producer_lines, read_consumer_lines])
@pytest.mark.parametrize("printed", [[], [Line(1.0, "Exception in thread main")]])
def test_unexpected_output_of_tool_raises(
    read: Callable[[list[Line], dict[str, Any]], object], printed: list[Line]
) -> None:
    with pytest.raises(ToolError, match=r"perf-test.*: (no output|Exception)"):
        read(printed, {})
