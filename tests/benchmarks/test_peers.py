"""The benchmark peers of this project send and read the records of each case."""

from __future__ import annotations

import uuid
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import payload
from benchmarks.peers.kafka_async_peer import RUNS
from benchmarks.peers.task import Figures, Task
from kafka_async import Admin, Consumer, NewTopic, Producer, TopicPartition
from kafka_async.embedded import BlockingCluster, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.kernel import Record

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.may_block,  # pyarrow reads files at import
]

RECORDS = 3_000
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with run_in_thread(1) as started:
        yield started


async def task(cluster: BlockingCluster, kind: str, **options: Any) -> Task:
    """Create a topic, and return a task for it."""
    topic = f"peers-{uuid.uuid4().hex[:8]}"
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
    given: dict[str, Any] = {"partitions": PARTITIONS, "records": RECORDS, **options}
    return Task(kind, cluster.bootstrap_servers, topic, **given)


async def run(case: Task) -> Figures:
    figures = await RUNS[case.kind](case)
    assert figures.seconds > 0
    assert figures.cpu_seconds > 0
    return figures


async def read_topic(case: Task) -> list[Record]:
    """Read the records of a topic, without warm-up records."""
    partitions = [TopicPartition(case.topic, number) for number in range(PARTITIONS)]
    found: list[Record] = []
    async with Consumer(
        case.bootstrap, partitions=partitions, auto_offset_reset="earliest"
    ) as consumer:
        ends = await consumer.end_offsets(partitions)
        while not all([await consumer.position(tp) >= end for tp, end in ends.items()]):
            found += await consumer.poll(max_records=RECORDS)
    return [record for record in found if record.value != payload.WARM_UP]


@pytest.mark.parametrize("tuned", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("way", ["enqueue", "send_many", "send_batch", "send"])
async def test_producer_sends_records_of_case(
    cluster: BlockingCluster, way: str, keyed: bool, tuned: bool
) -> None:
    case = await task(cluster, "produce", way=way, keyed=keyed, tuned=tuned, concurrency=100)
    figures = await run(case)
    records = await read_topic(case)
    assert figures.records == len(records) == RECORDS
    assert payload.checksum(r.value or b"" for r in records) == payload.expected(RECORDS, 100)
    keys = list(islice(cycle(payload.keys()), RECORDS)) if keyed else [None] * RECORDS
    assert sorted(r.key or b"" for r in records) == sorted(key or b"" for key in keys)


@pytest.mark.parametrize("way", ["enqueue", "send_many", "send_batch"])
async def test_producer_compresses_records(cluster: BlockingCluster, way: str) -> None:
    case = await task(cluster, "produce", way=way, compression="zstd", size=1_000)
    figures = await run(case)
    records = await read_topic(case)
    expected = payload.expected(RECORDS, 1_000, compressible=True)
    assert figures.records == len(records) == RECORDS
    assert payload.checksum(record.value or b"" for record in records) == expected


async def test_figures_have_options_of_client(
    cluster: BlockingCluster,
) -> None:
    tuned = await run(await task(cluster, "produce", way="enqueue", compression="lz4"))
    plain = await run(await task(cluster, "produce", way="enqueue", tuned=False))
    assert tuned.settings == {
        "acks": "all",
        "linger_ms": 5,
        "batch_size": 131_072,
        "enable_idempotence": True,
        "compression_type": "lz4",
    }
    assert plain.settings == {"acks": "all"}


async def filled(cluster: BlockingCluster, **options: Any) -> Task:
    case = await task(cluster, "consume", **options)
    values = list(islice(cycle(payload.values(100)), RECORDS))
    async with Producer(case.bootstrap, batch_size=20_000) as producer:
        await producer.send_many(case.topic, values)
    return case


@pytest.mark.parametrize("tuned", [True, False])
@pytest.mark.parametrize("way", ["poll", "iterate", "batches", "arrow"])
async def test_consumer_reads_every_record(cluster: BlockingCluster, way: str, tuned: bool) -> None:
    figures = await run(await filled(cluster, way=way, tuned=tuned, verify=True))
    assert figures.records == RECORDS
    assert figures.checksum == payload.expected(RECORDS, 100)


@pytest.mark.parametrize("way", ["poll", "iterate", "batches", "arrow"])
async def test_timed_consumer_computes_no_checksum(cluster: BlockingCluster, way: str) -> None:
    figures = await run(await filled(cluster, way=way))
    assert (figures.records, figures.checksum) == (RECORDS, None)


@pytest.mark.parametrize("rate", [0.0, 2_000.0])
@pytest.mark.parametrize("kind", ["round_trip", "end_to_end"])
async def test_measures_latency_of_every_record(
    cluster: BlockingCluster, kind: str, rate: float
) -> None:
    case = await task(cluster, kind, records=200, rate=rate)
    figures = await run(case)
    latency = figures.latency_us or {}
    assert figures.records == len(await read_topic(case)) == 200
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.9"]
    assert figures.seconds > (199 / rate if rate else 0)
