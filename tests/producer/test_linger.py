"""The time that records linger, and batches that a request carries before they are due.

Sending takes no virtual time, so the clock distinguishes a record that lingers from one that does
not, and requests are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Producer, RecordMetadata
from kafka_async.hooks import BatchClosed
from kafka_async.protocol.messages.produce import ProduceRequest
from tests.embedded_client import now, settle
from tests.producer.bench import Bench

if TYPE_CHECKING:
    from kafka_async.kernel import Delivery

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LINGER = 0.03
PARTITIONS = 6


class Lingering(Bench):
    """Runs a producer that lingers 30 ms and has sent one record to each of six partitions."""

    def __init__(self, **options: Any) -> None:
        given: dict[str, Any] = {"linger_ms": LINGER * 1000, **options}
        super().__init__({"clicks": [1] * PARTITIONS}, **given)

    async def __aenter__(self) -> Lingering:
        await super().__aenter__()
        for partition in range(PARTITIONS):
            await self.producer.send("clicks", b"warm-up", partition=partition)
        self.memory.received.clear()
        self.closed = self.events(BatchClosed)
        return self

    @property
    def requested(self) -> list[list[int]]:
        """The partitions of each Produce request that the broker received."""
        return [
            sorted(data.index for topic in request.topic_data for data in topic.partition_data)
            for request in self.requests(ProduceRequest)
        ]

    @property
    def counts(self) -> list[int]:
        """The number of records of each batch that was sent."""
        return [event.records for event in self.closed]

    def start_sending(self, partition: int = 0) -> asyncio.Task[RecordMetadata]:
        return asyncio.ensure_future(self.producer.send("clicks", b"v", partition=partition))


async def iterations_until(condition: Callable[[], object]) -> int:
    """Return the number of event loop iterations until a condition holds."""
    for count in range(100):
        if condition():
            return count
        await asyncio.sleep(0)
    raise AssertionError("100 event loop iterations were not enough")


async def by_send(producer: Producer) -> RecordMetadata:
    return await producer.send("clicks", b"v")


async def by_await(producer: Producer) -> RecordMetadata:
    return await (await producer.enqueue("clicks", b"v"))


async def by_nowait(producer: Producer) -> RecordMetadata:
    return await producer.enqueue_nowait("clicks", b"v")


async def by_send_many(producer: Producer) -> RecordMetadata:
    return await (await producer.send_many("clicks", [b"v", b"v"]))[-1]


async def by_gather(producer: Producer) -> RecordMetadata:
    return (await asyncio.gather(await producer.enqueue("clicks", b"v")))[0]


async def by_wait_for(producer: Producer) -> RecordMetadata:
    return await asyncio.wait_for(await producer.enqueue("clicks", b"v"), 10)


WAYS = (by_send, by_await, by_nowait, by_send_many, by_gather, by_wait_for)
Way = Callable[[Producer], Awaitable[RecordMetadata]]


# -- batches that a task awaits -------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_awaited_record_does_not_linger(way: Way) -> None:
    async with Lingering() as on:
        for _ in range(3):
            await way(on.producer)
        assert now() == 0
        assert len(on.requested) == 3


async def test_awaited_record_is_sent_in_the_next_event_loop_iteration() -> None:
    async with Lingering() as on:
        task = on.start_sending()
        # The task appends and awaits the record in the first iteration; it is sent in the second.
        assert await iterations_until(lambda: on.closed) <= 2
        await task


async def test_awaiting_a_lingering_record_sends_its_batch() -> None:
    async with Lingering() as on:
        first = await on.producer.enqueue("clicks", b"v", partition=0)
        await asyncio.sleep(0.01)
        second = await on.producer.enqueue("clicks", b"v", partition=0)
        assert not on.closed
        receipts = [await second, await first]
        assert now() == 0.01
        assert on.counts == [2]
        assert [receipt.offset for receipt in receipts] == [2, 1]


async def test_tasks_that_await_together_share_a_request() -> None:
    async with Lingering() as on:
        await asyncio.gather(*(on.producer.send("clicks", b"v") for _ in range(200)))
        assert now() == 0
        assert len(on.requested) == 1
        assert on.counts == [200]


async def test_records_without_an_awaiting_task_linger() -> None:
    async with Lingering() as on:
        deliveries: list[Delivery] = []
        for _ in range(3):
            deliveries.append(await on.producer.enqueue("clicks", b"v", partition=0))
            await asyncio.sleep(LINGER / 4)
        assert not on.requested
        await asyncio.sleep(LINGER / 2)
        assert all(delivery.done() for delivery in deliveries)
        assert on.requested == [[0]]
        assert on.memory.received[-1].time == pytest.approx(LINGER, abs=0.001)


async def test_flush_and_done_do_not_shorten_the_linger_of_later_records() -> None:
    async with Lingering() as on:
        delivery = await on.producer.enqueue("clicks", b"v", partition=0)
        await on.producer.flush()
        assert now() == 0
        assert delivery.done()
        later = await on.producer.enqueue("clicks", b"v", partition=0)
        await settle()
        assert not later.done()
        await asyncio.sleep(LINGER + 0.001)
        assert later.done()


async def test_awaited_record_lingers_while_its_partition_has_a_request_in_flight() -> None:
    async with Lingering(linger_ms=1000) as on:
        held = on.hold()
        sending = [on.start_sending()]
        await held.wait(1)
        for _ in range(5):
            sending.append(on.start_sending())
            await asyncio.sleep(0.01)
        assert len(on.closed) == 1
        held.release()
        await asyncio.gather(*sending)
        assert on.counts == [1, 5]
        assert now() == pytest.approx(0.05)


async def test_awaited_record_is_sent_after_linger_ms_while_a_request_is_in_flight() -> None:
    async with Lingering() as on:
        held = on.hold()
        sending = [on.start_sending()]
        await held.wait(1)
        sending.append(on.start_sending())
        await asyncio.sleep(LINGER + 0.001)
        assert len(on.closed) == 2
        held.release()
        await asyncio.gather(*sending)


async def test_batch_in_flight_does_not_delay_another_partition() -> None:
    async with Lingering() as on:
        held = on.hold()
        first = on.start_sending()
        await held.wait(1)
        second = on.start_sending(partition=1)
        assert await iterations_until(lambda: len(on.closed) == 2) <= 2
        held.release()
        await asyncio.gather(first, second)
        assert now() == 0


async def test_awaited_record_of_an_unknown_topic_does_not_linger() -> None:
    async with Lingering() as on:
        await on.cluster.create_topic("new", 1)
        await on.producer.send("new", b"v")
        assert now() < LINGER


async def test_awaited_record_is_compressed_without_lingering() -> None:
    async with Lingering(compression_type="gzip") as on:
        await asyncio.gather(*(on.producer.send("clicks", bytes(100)) for _ in range(50)))
        assert now() == 0
        assert len(on.requested) == 1


async def test_awaiting_many_partitions_at_once_keeps_requests_few() -> None:
    async with Lingering() as on:
        await asyncio.gather(*(on.start_sending(number % PARTITIONS) for number in range(60)))
        assert on.requested == [list(range(PARTITIONS))]


# -- batches sent before they are due -------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_request_carries_open_batches_for_its_broker(compression: str) -> None:
    async with Lingering(compression_type=compression) as on:
        await on.producer.enqueue("clicks", b"v", partition=0)
        await asyncio.sleep(LINGER * 0.9)
        later = await on.producer.enqueue("clicks", b"v", partition=1)
        await asyncio.sleep(LINGER * 0.9)
        assert later.done()
        assert on.requested == [[0, 1]]


async def test_request_of_an_awaited_record_carries_other_batches() -> None:
    async with Lingering() as on:
        other = await on.producer.enqueue("clicks", b"v", partition=3)
        await on.start_sending()
        assert on.requested == [[0, 3]]
        assert other.done()


async def test_batch_for_another_broker_keeps_lingering() -> None:
    async with Bench({"clicks": [1, 2]}, linger_ms=LINGER * 1000) as bench:
        for partition in (1, 0):  # connects to both brokers first
            await bench.producer.send("clicks", b"v", partition=partition)
        lingering = await bench.producer.enqueue("clicks", b"v", partition=1)
        await bench.producer.send("clicks", b"v", partition=0)
        assert bench.producing == [2, 1, 1]
        assert not lingering.done()


async def test_batch_without_room_in_a_request_is_sent_with_the_next() -> None:
    async with Lingering(max_request_size=20_000, batch_size=15_000) as on:
        others = [
            await on.producer.enqueue("clicks", bytes(8_000), partition=partition)
            for partition in range(1, PARTITIONS)
        ]
        await on.start_sending()
        await asyncio.gather(*others)
        assert sorted(number for request in on.requested for number in request) == list(
            range(PARTITIONS)
        )
        assert max(len(request) for request in on.requested) == 3


async def test_request_carries_at_most_one_mebibyte_of_open_batches() -> None:
    async with Lingering(max_request_size=8 << 20, batch_size=4 << 20) as on:
        for partition in range(1, PARTITIONS):
            await on.producer.enqueue("clicks", bytes(300_000), partition=partition)
        await on.start_sending()
        assert on.requested == [[0, 1, 2, 3]]
        await asyncio.sleep(LINGER + 0.001)
        assert on.requested == [[0, 1, 2, 3], [4, 5]]


async def test_open_batch_behind_one_in_flight_keeps_lingering() -> None:
    async with Lingering() as on:
        held = on.hold()
        first = on.start_sending()
        await held.wait(1)
        behind = await on.producer.enqueue("clicks", b"v", partition=0)
        second = on.start_sending(partition=1)
        await settle()
        held.release()
        await asyncio.gather(first, second)
        assert on.requested == [[0], [1]]
        assert not behind.done()


async def test_full_batches_are_not_followed_by_small_ones() -> None:
    async with Lingering() as on:
        value, batch_size = bytes(1000), on.config.batch_size
        for _ in range(10 * batch_size // len(value)):
            await on.producer.enqueue("clicks", value)
        await settle()
        assert len(on.counts) >= 9
        assert min(on.counts) > 0.95 * batch_size / len(value)
