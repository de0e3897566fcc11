"""The runs that all asyncio clients have in common, for a client's connections and calls."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.peers.pacing import paced_in_loop
from benchmarks.peers.task import SETTLE_SECONDS, Figures, Stopwatch, Task, latency

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager


class AsyncioPeer(ABC):
    """Base class of the peers with an asyncio client; `reads` are its loops by call."""

    reads: ClassVar[Mapping[str, Callable[[Any, Task], Awaitable[tuple[int, int]]]]]
    """Loops that return the number of records, and the sum of their weights."""

    @abstractmethod
    def producer_options(self, task: Task, linger_ms: int = 0) -> dict[str, Any]:
        """Return the options of a producer, without the cluster."""

    @abstractmethod
    def consumer_options(self, task: Task) -> dict[str, Any]:
        """Return the options of a consumer, without the cluster and the partitions."""

    @abstractmethod
    def producer(self, task: Task, options: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
        """Connect a producer that has sent a warm-up record."""

    @abstractmethod
    def consumer(self, task: Task, options: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
        """Connect a consumer with metadata, which does not fetch."""

    def group_consumer(self, task: Task) -> AbstractAsyncContextManager[Any]:
        """Connect a consumer in a group, with default options."""
        raise NotImplementedError

    @abstractmethod
    async def assign(self, consumer: Any, task: Task) -> None:
        """Assign all partitions from their beginning."""

    @abstractmethod
    def send_call(self, producer: Any) -> Callable[..., Awaitable[object]]:
        """Return the call with topic and value that waits for the acknowledgement."""

    @abstractmethod
    def enqueue_call(self, producer: Any) -> Callable[..., Awaitable[object]]:
        """Return the fastest call with topic, value and key that does not wait for it."""

    def send_all(self, producer: Any, task: Task) -> Awaitable[object]:
        """Return the loop that sends all records; its preparations are not measured."""
        if task.way == "send":
            return concurrently(self.send_call(producer), task)
        return one_by_one(self.enqueue_call(producer), task)

    def sent(self, producer: Any, task: Task) -> int:
        """Return the number of records that the producer has sent, without the warm-up record."""
        return task.records

    async def received(self, consumer: Any) -> AsyncIterator[bytes]:
        """Yield values, one after another."""
        async for record in consumer:
            yield record.value

    async def produce(self, task: Task) -> Figures:
        """Send all records, and wait until they are acknowledged."""
        # Lingering only delays tasks that wait for their acknowledgement: they cannot fill a batch.
        options = self.producer_options(task, linger_ms=0 if task.way == "send" else 5)
        async with self.producer(task, options) as producer:
            work = self.send_all(producer, task)
            with Stopwatch() as watch:
                await work
                await producer.flush()
            return watch.figures(self.sent(producer, task), options)

    async def consume(self, task: Task) -> Figures:
        """Read the records of the task from the beginning of the topic."""
        options = self.consumer_options(task)
        read = self.reads[task.way]
        async with self.consumer(task, options) as consumer:
            with Stopwatch() as watch:
                await self.assign(consumer, task)
                count, total = await read(consumer, task)
        return watch.figures(count, options, checksum=total if task.verify else None)

    async def round_trip(self, task: Task) -> Figures:
        """Send records one after the other, waiting for each acknowledgement."""
        options = self.producer_options(task)
        latencies: list[float] = []
        async with self.producer(task, options) as producer:
            topic, send = task.topic, self.send_call(producer)
            with Stopwatch() as watch:
                async for value in paced_in_loop(task.values(), task.rate, task.start):
                    begun = perf_counter()
                    await send(topic, value)
                    latencies.append(perf_counter() - begun)
        return watch.figures(len(latencies), options, latencies=latencies)

    async def end_to_end(self, task: Task) -> Figures:
        """Send at a rate, and receive in the same process; each value begins with the time."""
        sending, reading = self.producer_options(task), self.consumer_options(task)
        latencies: list[float] = []
        async with (
            self.producer(task, sending) as producer,
            self.consumer(task, reading) as consumer,
        ):
            await self.assign(consumer, task)
            received = aiter(self.received(consumer))
            await anext(received)  # the warm-up record

            async def receive() -> None:
                while len(latencies) < task.records:
                    latencies.append(latency(await anext(received)))

            enqueue = self.enqueue_call(producer)
            with Stopwatch() as watch:
                async with asyncio.TaskGroup() as group:
                    group.create_task(receive())
                    async for value in paced_in_loop(task.values(), task.rate):
                        await enqueue(task.topic, task.timed(value))
        return watch.figures(len(latencies), sending | reading, latencies=latencies)

    async def idle_producer(self, task: Task) -> Figures:
        """Measure a producer without work."""
        async with self.producer(task, self.producer_options(task)):
            return await _idle(task)

    async def idle_consumer(self, task: Task) -> Figures:
        """Measure a group member that waits for records, after it has read one."""
        async with self.group_consumer(task) as consumer:
            received = aiter(self.received(consumer))
            await anext(received)
            waiting = asyncio.ensure_future(anext(received))
            figures = await _idle(task)
            waiting.cancel()
            await asyncio.wait({waiting})
            return figures


async def _idle(task: Task) -> Figures:
    await asyncio.sleep(SETTLE_SECONDS)
    with Stopwatch() as watch:
        await asyncio.sleep(task.seconds)
    return watch.figures(0)


async def one_by_one(
    send: Callable[..., Awaitable[object]], task: Task, records: Iterator[Any] | None = None
) -> None:
    """Await a call for each record, with its key if the task is keyed."""
    topic = task.topic
    if task.keyed:
        for value, key in records or task.pairs():
            await send(topic, value, key)
    else:
        for value in records or task.values():
            await send(topic, value)


async def concurrently(send: Callable[..., Awaitable[object]], task: Task) -> None:
    """Send the records from several tasks, each of which waits for its record."""
    records = task.pairs() if task.keyed else task.values()
    async with asyncio.TaskGroup() as group:
        for _ in range(task.concurrency):
            group.create_task(one_by_one(send, task, records))


def in_lists(
    poll: Callable[[Any, Task, int], Awaitable[tuple[int, int]]],
) -> Callable[[Any, Task], Awaitable[tuple[int, int]]]:
    """Return the loop over a call that reads at most a number of records, and weighs them."""

    async def read(consumer: Any, task: Task) -> tuple[int, int]:
        count = total = 0
        while count < task.records:
            polled, weight = await poll(consumer, task, task.records - count)
            if not polled:
                raise TimeoutError(f"{count} of {task.records} records, then none")
            count += polled
            total += weight
        return count, total

    return read


async def iterate(consumer: Any, task: Task) -> tuple[int, int]:
    """Read with `async for`; return the number of records and the sum of their weights."""
    weigh, wanted = task.weigh, task.records
    count = total = 0
    async for record in consumer:
        total += weigh(record.value)
        count += 1
        if count == wanted:
            break
    return count, total
