"""What the other clients' processes send and read is all of it, and what they say of it is so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from benchmarks import payload, topics
from benchmarks.cases import Contender
from benchmarks.peers.paced import paced
from benchmarks.peers.task import Task
from benchmarks.rounds import launch
from benchmarks.topics import Tally
from kafka_async.embedded import run_in_thread

RECORDS = 2_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with run_in_thread(brokers=1) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "way", "keyed", "compression"),
    [
        ("confluent", "enqueue", False, "none"),
        ("confluent", "enqueue", True, "lz4"),
        ("confluent", "send_many", True, "none"),
        ("raw_socket", "send_batch", False, "none"),
        ("raw_socket", "send_batch", True, "zstd"),
    ],
)
def test_all_that_a_peer_sent_is_there(
    peer: str, way: str, keyed: bool, compression: str, bootstrap: str
) -> None:
    topic = asyncio.run(topics.create(bootstrap))
    task = Task(
        "produce", bootstrap, topic, way, records=RECORDS, keyed=keyed, compression=compression
    )
    figures = launch(Contender(peer, way), task)
    expected = payload.expected(RECORDS, task.size, compressible=compression != "none")
    assert asyncio.run(topics.tally(bootstrap, topic)) == Tally(RECORDS, expected)
    assert figures.records == RECORDS
    assert min(figures.seconds, figures.cpu_seconds, figures.peak_mb) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "way"), [("confluent", "poll"), ("confluent", "iterate"), ("raw_socket", "batches")]
)
def test_a_peer_reads_all_that_is_there(peer: str, way: str, bootstrap: str) -> None:
    topic = asyncio.run(topics.create(bootstrap))
    filled = topics.fill(bootstrap, topic, RECORDS, 100, keyed=False, compression="none")
    asyncio.run(filled)
    task = Task("consume", bootstrap, topic, way, records=RECORDS, verify=True)
    figures = launch(Contender(peer, way), task)
    assert (figures.records, figures.checksum) == (RECORDS, payload.expected(RECORDS, 100))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "kind"),
    [("confluent", "round_trip"), ("confluent", "end_to_end"), ("raw_socket", "round_trip")],
)
def test_a_peer_times_single_records(peer: str, kind: str, bootstrap: str) -> None:
    topic = asyncio.run(topics.create(bootstrap))
    task = Task(kind, bootstrap, topic, records=50, rate=1_000.0)
    figures = launch(Contender(peer), task)
    assert figures.latency_us is not None
    assert 0 < figures.latency_us["p50"] <= figures.latency_us["p99"]
    assert figures.records == 50
    assert asyncio.run(topics.tally(bootstrap, topic)).records == 50


def test_a_late_operation_does_not_delay_those_after_it() -> None:
    clock = iter([0.0, 0.0, 0.25, 0.25, 0.25])
    waits: list[float] = []
    assert list(paced(4, 10.0, lambda: next(clock), waits.append)) == [0, 1, 2, 3]
    assert waits == [pytest.approx(0.05)]  # the last, due at 0.3; two were late
