"""The counts read and the top words written without Spark, by this project's own clients."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka_async import Consumer, Producer
from kafka_async.cli.demo.resources import COUNTS, TOP

if TYPE_CHECKING:
    from kafka_async.cli.demo.resources import Resources

TOP_WORDS: Final = 20


async def read_counts(where: Resources) -> tuple[Counter[str], int]:
    """All committed counts by word, and of how many records."""
    found: Counter[str] = Counter()
    records = 0
    partitions = where.partitions(COUNTS)
    async with Consumer(
        where.servers,
        partitions=partitions,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            polled = await consumer.poll(timeout=0.5)
            for record in polled:
                found[(record.key or b"").decode()] += int(record.value or b"0")
            records += len(polled)
    return found, records


async def write_top(where: Resources, found: Counter[str]) -> int:
    """Write the most frequent words; how many there are."""
    top = found.most_common(TOP_WORDS)
    async with Producer(where.servers) as producer:
        for word, occurrences in top:
            await producer.enqueue(where.topics[TOP], str(occurrences).encode(), key=word.encode())
    return len(top)
