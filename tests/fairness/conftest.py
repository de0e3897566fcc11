"""Fixtures: a cluster in a separate thread, whose work does not count, and the meter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from kafka_async.embedded import BlockingCluster, run_in_thread
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.producer.producer import Producer
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord, TopicPartition
from tests.fairness.work import Instruments, Meter

FAST = IMPLEMENTATION == "c"
RECORDS = 15_000 if FAST else 5_000
"""More than one event loop iteration may handle; in plain Python each makes some thirty calls."""
VALUE = b"v" * 100
USUAL = 1_000
"""Records of a batch of 128 KiB."""
LARGE = RECORDS
"""Records of a batch larger than any default makes."""


@pytest_asyncio.fixture
async def meter(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Meter]:
    """Return a meter of the test's event loop that counts the client's bulk work."""
    meter = Meter()
    Instruments(meter, monkeypatch)
    # The meter's task keeps this thread busy, and the cluster's thread needs the interpreter lock
    # for each of its system calls: with Python's 5 ms a fetch of 16 MiB takes seconds.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(20e-6)
    yield meter
    sys.setswitchinterval(interval)


@pytest.fixture(scope="session")
def cluster() -> Iterator[BlockingCluster]:
    with run_in_thread() as cluster:
        cluster.create_topic("clicks", 6)
        for topic, per_batch, compression in (
            ("usual", USUAL, "none"),
            ("packed", USUAL, "zstd"),
            ("large", LARGE, "none"),
            ("large-packed", LARGE, "zstd"),
            ("small", 20, "none"),
        ):
            cluster.create_topic(topic, 1, configs={"max.message.bytes": str(1 << 26)})
            asyncio.run(fill(cluster.bootstrap_servers, topic, per_batch, compression))
        yield cluster


async def fill(bootstrap: str, topic: str, per_batch: int, compression: str) -> None:
    """Produce at least RECORDS records, in whole batches."""
    records = [ProducerRecord("", VALUE)] * per_batch
    batch = RecordBatch.build(records, compression, timestamp=1_000)
    async with Producer(bootstrap, max_request_size=1 << 26) as producer:
        for _ in range(-(-RECORDS // per_batch)):
            await producer.send_batch(TopicPartition(topic, 0), batch)
        await producer.flush()
