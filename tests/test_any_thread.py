"""`statistics()` and `health()` work in any thread at any time, as metrics exporters call them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import UserDict
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.foundation.thread_reads import MAX_READS, readable_in_any_thread
from kafka_async.types import Health
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


def in_another_thread(read: Callable[[], Any]) -> Any:
    """Return the result of `read` in a thread without an event loop; the loop waits for it."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(read())
        except BaseException as error:  # noqa: BLE001  # raised here
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def share_consumer(cluster: InMemory) -> ShareConsumer:
    servers = cluster.cluster.bootstrap_servers
    return ShareConsumer(servers, topics=["t"], group_id="s", dialer=cluster.network)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("kind", ["producer", "consumer", "share"])
async def test_statistics_in_every_state_and_thread(kind: str) -> None:
    async with InMemory() as cluster:
        await cluster.cluster.create_topic("t", 1)
        make: dict[str, Callable[[], Any]] = {
            "producer": cluster.producer,
            "consumer": lambda: cluster.consumer("t", group_id="g", auto_offset_reset="earliest"),
            "share": lambda: share_consumer(cluster),
        }
        client = make[kind]()
        counts = {"producer": "record_send_total"}.get(kind, "records_consumed_total")

        def count() -> int:
            assert client.statistics() == in_another_thread(client.statistics)
            assert isinstance(in_another_thread(client.health), Health)
            return getattr(client.statistics(), counts)

        assert count() == 0
        starting = asyncio.create_task(client.start())
        while not starting.done():
            assert count() == 0
            await asyncio.sleep(0)
        async with cluster.producer() as producer:
            if kind == "producer":
                producer = client  # the one that is tested
            elif kind == "share":
                await client.poll(timeout=5)  # It begins at the end of the topic.
            await producer.send("t", b"v")
        if kind != "producer":
            assert await client.poll(timeout=60)
        assert count() == 1
        stopping = asyncio.create_task(client.stop())
        while not stopping.done():
            assert count() == 1
            await asyncio.sleep(0)
        assert count() == 1


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_exporter_thread_reads_while_the_loop_works(switch_often: None) -> None:
    """Partitions, connections and requests come and go meanwhile."""
    reads, errors, end = [0], list[BaseException](), threading.Event()
    async with (
        InMemory(3) as cluster,
        cluster.producer() as producer,
        cluster.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        await cluster.cluster.create_topic("t", 20)

        def export() -> None:
            while not end.is_set():
                try:
                    for client in (producer, consumer, producer.client):
                        client.health()
                    producer.statistics()
                    consumer.statistics()
                except BaseException as error:  # noqa: BLE001  # fails the test
                    errors.append(error)
                    return
                reads[0] += 1

        thread = threading.Thread(target=export)
        thread.start()
        try:
            rounds = 0
            while (rounds < 30 or reads[0] < 100) and not errors:
                rounds += 1
                await producer.send_many("t", [b"v"] * 20)
                await consumer.poll(timeout=5)
                await cluster.cluster.disconnect()
                if rounds % 5 == 0:
                    await consumer.unsubscribe()
                    consumer.subscribe(["t"])
        finally:
            end.set()
            thread.join()
    assert errors == []


@pytest.fixture
def switch_often() -> Generator[None]:
    """Let threads take turns after each few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_disturbed_read_is_repeated_and_a_lasting_error_raised() -> None:
    class Changing(UserDict[str, int]):
        reads = 0

        def values(self) -> Any:
            self.reads += 1
            if self.reads < limit:
                raise RuntimeError("dictionary changed size during iteration")
            return self.data.values()

    @readable_in_any_thread
    def total(each: Changing) -> int:
        return sum(each.values())

    limit = 3
    assert total(Changing(a=1, b=2)) == 3
    limit = MAX_READS + 1
    changing = Changing(a=1)
    with pytest.raises(RuntimeError, match="changed size"):
        total(changing)
    assert changing.reads == MAX_READS
