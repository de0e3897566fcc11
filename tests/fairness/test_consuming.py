"""Consuming does a bounded amount of work in each event loop iteration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from kafka_async.consumer.consumer import Consumer
from kafka_async.hooks import Fetched, Hooks
from kafka_async.records.arrow import to_arrow
from kafka_async.types import TopicPartition
from tests.fairness.conftest import RECORDS
from tests.fairness.work import LIMIT, MAX_STEPS, Meter, check, steps
from tests.rows import others_slow

if TYPE_CHECKING:
    from kafka_async.embedded import BlockingCluster

pytestmark = pytest.mark.asyncio
to_arrow([], topic="", partition=0)  # importing pyarrow takes longer than anything here

Read = Callable[[Consumer], Awaitable[int]]
FETCH = 1 << 24
"""Bytes per partition and fetch: all that there are, so that no fetch has to be waited for."""


async def poll_usual(consumer: Consumer) -> int:
    return len(await consumer.poll(max_records=500))


async def poll_one(consumer: Consumer) -> int:
    return len(await consumer.poll(max_records=1))


async def poll_all(consumer: Consumer) -> int:
    return len(await consumer.poll(max_records=1_000_000))


async def poll_batches(consumer: Consumer) -> int:
    return sum(batch.next_offset - batch.start for batch in await consumer.poll_batches())


async def one(consumer: Consumer) -> int:
    await anext(consumer)
    return 1


async def read_all(consumer: Consumer, read: Read) -> None:
    seen = 0
    while seen < (RECORDS // 5 if read is poll_one else RECORDS):
        seen += await read(consumer)


async def iterate(consumer: Consumer) -> int:
    """Read all records."""
    seen = 0
    async for _record in consumer:
        seen += 1
        if seen == RECORDS:
            break
    return seen


TOPICS = ["usual", "packed", "large", "large-packed", "small"]


def reader(
    cluster: BlockingCluster, topic: str, fetch: int = FETCH, hooks: Hooks | None = None
) -> Consumer:
    return Consumer(
        cluster.bootstrap_servers,
        hooks=hooks,
        partitions=[TopicPartition(topic, 0)],
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=fetch,
    )


READS = [iterate, poll_usual, poll_one, poll_all, poll_batches, one]
CASES = [(topic, read) for topic in TOPICS for read in READS]


@pytest.mark.parametrize(
    ("topic", "read"), others_slow(CASES, [*zip(cycle(TOPICS), READS, strict=False)])
)
async def test_consuming_bounds_the_work_of_an_iteration(
    cluster: BlockingCluster, meter: Meter, topic: str, read: Read
) -> None:
    async with meter, reader(cluster, topic) as consumer:
        await read_all(consumer, read)
    check(meter)


@pytest.mark.parametrize("read", [one, poll_one])
async def test_parses_few_records_for_a_call_that_returns_one(
    cluster: BlockingCluster, meter: Meter, read: Read
) -> None:
    async with meter, reader(cluster, "large") as consumer:
        assert await read(consumer) == 1
    assert 0 < meter.peak.records <= 500


@pytest.mark.parametrize("way", ["records", "arrow"])
async def test_parsing_a_fetch_of_default_size_stays_within_the_limit(
    cluster: BlockingCluster, meter: Meter, way: str
) -> None:
    """One call parses all that `poll_batches` returned: a larger fetch holds the loop longer."""
    seen = 0
    async with meter, reader(cluster, "usual", 1 << 20) as consumer:
        while seen < RECORDS:
            for batch in await consumer.poll_batches():
                seen += (
                    len(list(batch.records())) if way == "records" else batch.to_arrow().num_rows
                )
                await asyncio.sleep(0)
    check(meter, replace(LIMIT, calls=8 * LIMIT.records))


@pytest.mark.parametrize("read", [one, poll_one])
async def test_timeout_around_a_tight_loop_fires(
    cluster: BlockingCluster, meter: Meter, read: Read
) -> None:
    hooks = Hooks()
    fetched = asyncio.Event()
    hooks.listen(Fetched, lambda _: fetched.set())
    async with reader(cluster, "usual", hooks=hooks) as consumer:
        await fetched.wait()  # more records than are read, so that no call waits for a fetch
        assert await steps(meter, lambda: read(consumer)) <= MAX_STEPS
