"""Runs consumer cases with this project: lists of records, single records, batches and Arrow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks import payload
from benchmarks.peers.reading import one_by_one, weigh
from benchmarks.peers.task import Figures, Stopwatch, Task
from kafka_async import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE = 30.0
"""Time-out of a poll in seconds, after which records are missing."""


def consume_options(task: Task) -> dict[str, Any]:
    """Return the options of the consumer, without the cluster and the partitions."""
    if not task.tuned:
        return {}
    # The defaults are the fastest options: larger fetches do not fit in the processor's cache.
    return {"max_poll_records": 500, "max_partition_fetch_bytes": 1024 * 1024}


async def consume(task: Task) -> Figures:
    """Read the records of the task from the beginning of the topic."""
    options = consume_options(task)
    partitions = [TopicPartition(task.topic, number) for number in range(task.partitions)]
    read = _WAYS[task.way]
    if task.way == "arrow":
        import_module("pyarrow.compute")  # which takes a tenth of a second, before the clock starts
    async with Consumer(task.bootstrap, **options) as consumer:
        await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        # No fetch has started, because no other task has run since.
        with Stopwatch() as watch:
            records, total = await read(consumer, task)
    checksum = total if task.verify else None
    return Figures(watch.seconds, watch.cpu_seconds, records, checksum, settings=options)


async def _poll(consumer: Consumer, task: Task) -> tuple[int, int]:
    touch = weigh(task)
    seen = total = 0
    poll, count = consumer.poll, task.records
    while seen < count:
        records = await poll(timeout=PATIENCE)
        for record in records:
            total += touch(record.value)
        seen += _some(len(records))
    return seen, total


async def _batches(consumer: Consumer, task: Task) -> tuple[int, int]:
    seen = total = 0
    while seen < task.records:
        batches = await consumer.poll_batches(timeout=PATIENCE)
        _some(len(batches))
        for batch in batches:
            if task.verify:
                values = [record.value or b"" for record in batch.records()]
                seen += len(values)
                total += payload.checksum(values)
            else:
                seen += batch.next_offset - batch.start
                total += batch.size
    return seen, total


async def _arrow(consumer: Consumer, task: Task) -> tuple[int, int]:
    seen = total = 0
    while seen < task.records:
        batches = await consumer.poll_batches(timeout=PATIENCE)
        _some(len(batches))
        for batch in batches:
            table = batch.to_arrow()
            seen += table.num_rows
            if task.verify:
                total += payload.checksum(_values(table))
            else:
                total += table.nbytes
    return seen, total


def _values(table: Any) -> list[bytes]:
    return table.column("value").to_pylist()


def _some(count: int) -> int:
    if not count:
        raise RuntimeError(f"no records for {PATIENCE:g} s")
    return count


_WAYS: dict[str, Callable[[Consumer, Task], Awaitable[tuple[int, int]]]] = {
    "poll": _poll,
    "iterate": one_by_one,
    "batches": _batches,
    "arrow": _arrow,
}
