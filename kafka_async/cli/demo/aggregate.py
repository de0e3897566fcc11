"""Aggregates the counts without Spark, with this project's consumer and producer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka_async import Consumer, Producer
from kafka_async.cli.demo.resources import COUNTS, TOP
from kafka_async.config import ConsumerConfig, ProducerConfig

if TYPE_CHECKING:
    from kafka_async.cli.demo.resources import Resources

TOP_WORDS: Final = 20


async def read_counts(resources: Resources) -> tuple[Counter[str], int]:
    """Return the sum of the committed counts by word, and the number of records read."""
    counts: Counter[str] = Counter()
    record_count = 0
    partitions = resources.partitions(COUNTS)
    config = resources.connection.config(
        ConsumerConfig, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with Consumer(config=config, partitions=partitions) as consumer:
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            records = await consumer.poll(timeout=0.5)
            for record in records:
                counts[(record.key or b"").decode()] += int(record.value or b"0")
            record_count += len(records)
    return counts, record_count


async def write_top(resources: Resources, counts: Counter[str]) -> int:
    """Write the most frequent words and return their number."""
    top = counts.most_common(TOP_WORDS)
    topic = resources.topics[TOP]
    async with Producer(config=resources.connection.config(ProducerConfig)) as producer:
        for word, occurrences in top:
            await producer.enqueue(topic, str(occurrences).encode(), key=word.encode())
    return len(top)
