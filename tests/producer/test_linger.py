"""The time that records linger, and batches that a request carries before they are due.

The cluster is embedded, in memory and on virtual time. Sending takes no virtual time, so the clock
distinguishes a record that lingers from one that does not, and requests are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kafka_async import Producer, RecordMetadata
from kafka_async.clock import MemoryNetwork
from kafka_async.embedded import EmbeddedCluster
from kafka_async.hooks import BatchClosed
from kafka_async.producer.preload import preload
from tests.embedded_client import settle

if TYPE_CHECKING:
    from kafka_async.kernel import Delivery

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LINGER = 0.03
PARTITIONS = 6

# A loop on virtual time may not read files.
for _codec in ("none", "gzip"):
    preload(_codec, transactional=False)


class Sent(NamedTuple):
    """A Produce request: the time at which a broker received it, and its partitions."""

    time: float
    partitions: list[int]


class Stage:
    """A producer that lingers 30 ms, and the requests that its embedded cluster receives."""

    def __init__(self, cluster: EmbeddedCluster, producer: Producer) -> None:
        self.cluster = cluster
        self.producer = producer
        self.began = asyncio.get_running_loop().time()
        self.sent: list[Sent] = []
        self.batches: list[BatchClosed] = []
        cluster.faults.add(api="Produce", when=self._note, count=None)
        producer.client.hooks.listen(BatchClosed, self.batches.append)

    def _note(self, _: Any, request: Any) -> bool:
        partitions = [data.index for topic in request.topic_data for data in topic.partition_data]
        self.sent.append(Sent(self.elapsed, sorted(partitions)))
        return False

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the stage started."""
        return asyncio.get_running_loop().time() - self.began


@asynccontextmanager
async def stage(brokers: int = 1, **options: Any) -> AsyncGenerator[Stage]:
    """Yield a stage with a topic of six partitions; the producer is connected to every broker."""
    network = MemoryNetwork()
    async with EmbeddedCluster(brokers, network=network) as cluster:
        await cluster.create_topic("clicks", PARTITIONS)
        options = {"linger_ms": LINGER * 1000, **options}
        async with Producer(cluster.bootstrap_servers, dialer=network, **options) as producer:
            for partition in range(PARTITIONS):
                await producer.send("clicks", b"warm-up", partition=partition)
            yield Stage(cluster, producer)


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
    async with stage() as on:
        for _ in range(3):
            await way(on.producer)
        assert on.elapsed == 0
        assert len(on.sent) == 3


async def test_awaited_record_is_sent_in_the_next_event_loop_iteration() -> None:
    async with stage() as on:
        task = asyncio.ensure_future(on.producer.send("clicks", b"v"))
        # The task appends and awaits the record in the first iteration; it is sent in the second.
        assert await iterations_until(lambda: on.batches) <= 2
        await task


async def test_awaiting_a_lingering_record_sends_its_batch() -> None:
    async with stage() as on:
        first = await on.producer.enqueue("clicks", b"v", partition=0)
        await asyncio.sleep(0.01)
        second = await on.producer.enqueue("clicks", b"v", partition=0)
        assert not on.batches
        receipts = [await second, await first]
        assert on.elapsed == 0.01
        assert [batch.records for batch in on.batches] == [2]
        assert [receipt.offset for receipt in receipts] == [2, 1]


async def test_tasks_that_await_together_share_a_request() -> None:
    async with stage() as on:
        await asyncio.gather(*(on.producer.send("clicks", b"v") for _ in range(200)))
        assert on.elapsed == 0
        assert len(on.sent) == 1
        assert [batch.records for batch in on.batches] == [200]


async def test_records_without_an_awaiting_task_linger() -> None:
    async with stage() as on:
        deliveries: list[Delivery] = []
        for _ in range(3):
            deliveries.append(await on.producer.enqueue("clicks", b"v", partition=0))
            await asyncio.sleep(LINGER / 4)
        assert not on.sent
        await asyncio.sleep(LINGER / 2)
        assert all(delivery.done() for delivery in deliveries)
        assert on.sent == [(pytest.approx(LINGER, abs=0.001), [0])]


async def test_flush_and_done_do_not_shorten_the_linger_of_later_records() -> None:
    async with stage() as on:
        delivery = await on.producer.enqueue("clicks", b"v", partition=0)
        await on.producer.flush()
        assert on.elapsed == 0
        assert delivery.done()
        later = await on.producer.enqueue("clicks", b"v", partition=0)
        await settle()
        assert not later.done()
        await asyncio.sleep(LINGER + 0.001)
        assert later.done()


async def test_awaited_record_lingers_while_its_partition_has_a_request_in_flight() -> None:
    async with stage(linger_ms=1000) as on:
        held = on.cluster.faults.add(api="Produce", hang=True)
        sending = [asyncio.ensure_future(on.producer.send("clicks", b"v", partition=0))]
        await held.wait(1)
        for _ in range(5):
            sending.append(asyncio.ensure_future(on.producer.send("clicks", b"v", partition=0)))
            await asyncio.sleep(0.01)
        assert len(on.batches) == 1
        held.release()
        await asyncio.gather(*sending)
        assert [batch.records for batch in on.batches] == [1, 5]
        assert on.elapsed == pytest.approx(0.05)


async def test_awaited_record_is_sent_after_linger_ms_while_a_request_is_in_flight() -> None:
    async with stage() as on:
        held = on.cluster.faults.add(api="Produce", hang=True)
        sending = [asyncio.ensure_future(on.producer.send("clicks", b"v", partition=0))]
        await held.wait(1)
        sending.append(asyncio.ensure_future(on.producer.send("clicks", b"v", partition=0)))
        await asyncio.sleep(LINGER + 0.001)
        assert len(on.batches) == 2
        held.release()
        await asyncio.gather(*sending)


async def test_batch_in_flight_does_not_delay_another_partition() -> None:
    async with stage() as on:
        held = on.cluster.faults.add(api="Produce", hang=True)
        first = asyncio.ensure_future(on.producer.send("clicks", b"v", partition=0))
        await held.wait(1)
        second = asyncio.ensure_future(on.producer.send("clicks", b"v", partition=1))
        assert await iterations_until(lambda: len(on.batches) == 2) <= 2
        held.release()
        await asyncio.gather(first, second)
        assert on.elapsed == 0


async def test_awaited_record_of_an_unknown_topic_does_not_linger() -> None:
    async with stage() as on:
        await on.cluster.create_topic("new", 1)
        await on.producer.send("new", b"v")
        assert on.elapsed < LINGER


async def test_awaited_record_is_compressed_without_lingering() -> None:
    async with stage(compression_type="gzip") as on:
        await asyncio.gather(*(on.producer.send("clicks", bytes(100)) for _ in range(50)))
        assert on.elapsed == 0
        assert len(on.sent) == 1


async def test_awaiting_many_partitions_at_once_keeps_requests_few() -> None:
    async with stage() as on:
        sends = [on.producer.send("clicks", b"v", partition=n % PARTITIONS) for n in range(60)]
        await asyncio.gather(*sends)
        assert [sent.partitions for sent in on.sent] == [list(range(PARTITIONS))]


# -- batches sent before they are due -------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_request_carries_open_batches_for_its_broker(compression: str) -> None:
    async with stage(compression_type=compression) as on:
        await on.producer.enqueue("clicks", b"v", partition=0)
        await asyncio.sleep(LINGER * 0.9)
        later = await on.producer.enqueue("clicks", b"v", partition=1)
        await asyncio.sleep(LINGER * 0.9)
        assert later.done()
        assert [sent.partitions for sent in on.sent] == [[0, 1]]


async def test_request_of_an_awaited_record_carries_other_batches() -> None:
    async with stage() as on:
        other = await on.producer.enqueue("clicks", b"v", partition=3)
        await on.producer.send("clicks", b"v", partition=0)
        assert [sent.partitions for sent in on.sent] == [[0, 3]]
        assert other.done()


async def test_batch_for_another_broker_keeps_lingering() -> None:
    async with stage(brokers=2) as on:
        topic = on.cluster.topics.get("clicks")
        assert topic is not None
        leaders = [partition.leader for partition in topic.partitions]
        other = next(n for n, leader in enumerate(leaders) if leader != leaders[0])
        lingering = await on.producer.enqueue("clicks", b"v", partition=other)
        await on.producer.send("clicks", b"v", partition=0)
        assert [sent.partitions for sent in on.sent] == [[0]]
        assert not lingering.done()


async def test_batch_without_room_in_a_request_is_sent_with_the_next() -> None:
    options = {"max_request_size": 20_000, "batch_size": 15_000}
    async with stage(**options) as on:
        others = [
            await on.producer.enqueue("clicks", bytes(8_000), partition=partition)
            for partition in range(1, PARTITIONS)
        ]
        await on.producer.send("clicks", b"v", partition=0)
        await asyncio.gather(*others)
        assert sorted(n for sent in on.sent for n in sent.partitions) == list(range(PARTITIONS))
        assert max(len(sent.partitions) for sent in on.sent) == 3


async def test_request_carries_at_most_one_mebibyte_of_open_batches() -> None:
    options = {"max_request_size": 8 << 20, "batch_size": 4 << 20}
    async with stage(**options) as on:
        for partition in range(1, PARTITIONS):
            await on.producer.enqueue("clicks", bytes(300_000), partition=partition)
        await on.producer.send("clicks", b"v", partition=0)
        assert [sent.partitions for sent in on.sent] == [[0, 1, 2, 3]]
        await asyncio.sleep(LINGER + 0.001)
        assert [sent.partitions for sent in on.sent] == [[0, 1, 2, 3], [4, 5]]


async def test_open_batch_behind_one_in_flight_keeps_lingering() -> None:
    async with stage() as on:
        held = on.cluster.faults.add(api="Produce", hang=True)
        first = asyncio.ensure_future(on.producer.send("clicks", b"v", partition=0))
        await held.wait(1)
        behind = await on.producer.enqueue("clicks", b"v", partition=0)
        second = asyncio.ensure_future(on.producer.send("clicks", b"v", partition=1))
        await settle()
        held.release()
        await asyncio.gather(first, second)
        assert [sent.partitions for sent in on.sent] == [[0], [1]]
        assert not behind.done()


async def test_full_batches_are_not_followed_by_small_ones() -> None:
    async with stage() as on:
        value, batch_size = bytes(1000), on.producer.config.batch_size
        for _ in range(10 * batch_size // len(value)):
            await on.producer.enqueue("clicks", value)
        await settle()
        full = [batch.records for batch in on.batches]
        assert len(full) >= 9
        assert min(full) > 0.95 * batch_size / len(value)
