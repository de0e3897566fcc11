"""Sums the counts without Spark, and reads the totals."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka_async import Admin, Consumer, Producer
from kafka_async.cli.demo.resources import COUNTS, TOTALS
from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafka_async.cli.demo.resources import Resources

MARKERS_TIMEOUT: Final = 30.0
"""Seconds for the markers of a committed transaction."""


async def sum_counts(resources: Resources) -> tuple[Counter[str], int]:
    """Return the sum of the committed counts by word, and the number of records read."""
    sums: Counter[str] = Counter()
    record_count = 0
    async for word, occurrences in _committed(resources, COUNTS):
        sums[word] += occurrences
        record_count += 1
    return sums, record_count


async def write_totals(resources: Resources, totals: Counter[str]) -> None:
    """Write the total of each word in one transaction."""
    topic = resources.topics[TOTALS]
    config = resources.connection.config(
        ProducerConfig, transactional_id=f"{resources.group}-totals"
    )
    async with Producer(config=config) as producer, producer.transaction() as transaction:
        for word, occurrences in totals.items():
            await transaction.enqueue(topic, str(occurrences).encode(), key=word.encode())


async def read_totals(resources: Resources) -> tuple[Counter[str], int]:
    """Return the last committed total of each word, and the number of records read."""
    config = resources.connection.config(ClientConfig)
    async with asyncio.timeout(MARKERS_TIMEOUT), Admin(config=config) as admin:
        await resources.wait_for_open_transactions(admin, TOTALS)
    totals: Counter[str] = Counter()
    record_count = 0
    async for word, occurrences in _committed(resources, TOTALS):
        totals[word] = occurrences
        record_count += 1
    return totals, record_count


async def _committed(resources: Resources, content: str) -> AsyncIterator[tuple[str, int]]:
    """Yield the word and the number of each committed record, in the order of its partition."""
    partitions = resources.partitions(content)
    config = resources.connection.config(
        ConsumerConfig, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with Consumer(config=config, partitions=partitions) as consumer:
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for record in await consumer.poll(timeout=0.5):
                yield (record.key or b"").decode(), int(record.value or b"0")
