"""Stopping a producer: bounded by close_timeout_ms, whatever the cluster does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kafka_async import Producer
from kafka_async.errors import (
    ApplicationRecoverableError,
    ClientClosedError,
    DeliveryError,
    KafkaError,
    KafkaTimeoutError,
)
from kafka_async.foundation.memory_network import MemoryTransport
from kafka_async.foundation.process_end import CANCELLED
from kafka_async.producer.producer import CLOSE_TIMEOUT_AFTER_ERROR
from tests.embedded_client import InMemory, now, settle
from tests.producer.bench import Bench, record_calls

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def stop_broker(bench: Bench) -> None:
    await bench.cluster.stop_broker(1)


async def freeze_broker(bench: Bench) -> None:
    """Have the broker accept requests and send no response."""
    bench.faults.add(count=None, hang=True)


Outage = Callable[[Bench], Awaitable[None]]
OUTAGES = [stop_broker, freeze_broker]


def bench_of(**options: Any) -> Bench:
    return Bench({"clicks": [1]}, linger_ms=5, **options)


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize(
    ("options", "bound"), [({}, 30.0), ({"close_timeout_ms": 2_000}, 2.0)], ids=["default", "2 s"]
)
async def test_stop_without_a_cluster_takes_close_timeout_ms(
    outage: Outage, options: dict[str, Any], bound: float
) -> None:
    async with bench_of(**options) as bench:
        await bench.producer.send("clicks", b"written")
        await outage(bench)
        deliveries = await bench.producer.send_many("clicks", [b"v"] * 3)
        started = now()
        with pytest.raises(DeliveryError, match="3 records were not delivered") as caught:
            await bench.producer.stop()
        assert now() - started == pytest.approx(bound, abs=0.1)
        assert [(row.topic, row.count) for row in caught.value.failures] == [("clicks", 3)]
        assert all(isinstance(delivery.exception(), KafkaTimeoutError) for delivery in deliveries)


@pytest.mark.parametrize("outage", OUTAGES)
async def test_end_of_a_block_takes_at_most_close_timeout_ms(outage: Outage) -> None:
    async with bench_of(close_timeout_ms=4_000) as bench:
        await bench.producer.send("clicks", b"written")
        await outage(bench)
        await bench.producer.enqueue("clicks", b"v")
        started = now()
        with pytest.raises(DeliveryError, match="1 record was"):
            await bench.producer.__aexit__(None, None, None)
        assert now() - started == pytest.approx(4, abs=0.2)


@pytest.mark.parametrize(
    ("close_timeout_ms", "limit"), [(3_000, 3.0), (60_000, CLOSE_TIMEOUT_AFTER_ERROR)]
)
async def test_block_left_by_an_exception_closes_within_10_s(
    bench: Bench, close_timeout_ms: float, limit: float
) -> None:
    async def block() -> None:
        async with bench.memory.producer(close_timeout_ms=close_timeout_ms) as producer:
            await freeze_broker(bench)
            await producer.enqueue("clicks", b"v")
            raise ZeroDivisionError

    started = now()
    with pytest.raises(ZeroDivisionError) as caught:
        await block()
    assert now() - started == pytest.approx(limit, abs=0.1)
    assert "1 record was not delivered" in caught.value.__notes__[0]


@pytest.mark.parametrize("outage", OUTAGES)
async def test_stop_without_records_takes_no_time(bench: Bench, outage: Outage) -> None:
    await bench.producer.send("clicks", b"written")
    await outage(bench)
    started = now()
    await bench.producer.stop()
    assert now() - started < 0.1


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("timeout", [0, 2.0])
async def test_stop_keeps_its_timeout_with_a_transaction_open(
    outage: Outage, timeout: float
) -> None:
    async with bench_of(transactional_id="t") as bench:
        txn = await bench.producer.begin()
        await txn.send("clicks", b"open")
        await outage(bench)
        delivery = await txn.enqueue("clicks", b"dropped")
        started = now()
        await bench.producer.stop(timeout)
        assert now() - started <= timeout + 0.1
        assert delivery.exception() is not None


@pytest.mark.parametrize(
    ("api", "least", "most"),
    [(None, 0, 1), ("EndTxn", 4.9, 5.1)],
    ids=["no broker", "no response to EndTxn"],
)
async def test_stop_aborts_a_transaction_within_5_s(
    api: str | None, least: float, most: float
) -> None:
    """Without a broker it does not try to; the rest of close_timeout_ms is for other records."""
    async with bench_of(transactional_id="t") as bench:
        txn = await bench.producer.begin()
        await txn.send("clicks", b"open")
        if api is None:
            await stop_broker(bench)
        else:
            bench.hold(api, count=None)
        started = now()
        await bench.producer.stop()
        assert least <= now() - started <= most


async def test_stop_aborts_connections_that_do_not_close_in_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transport does not close while it has bytes that a broker does not read."""
    await bench.producer.send("clicks", b"v")
    closing: list[MemoryTransport] = []

    def unfinished(transport: MemoryTransport) -> None:
        closing.append(transport)

    monkeypatch.setattr(MemoryTransport, "close", unfinished)
    aborted = record_calls(monkeypatch, MemoryTransport, "abort")
    await bench.producer.stop(1.5)
    assert now() == pytest.approx(1.5, abs=0.1)
    assert len(closing) >= 2, "of the producer and of its client"
    assert set(closing) <= {transport for (transport,) in aborted}
    await settle()
    assert await bench.cluster.disconnect() == 0


async def test_stop_with_timeout_0_closes_every_connection(bench: Bench) -> None:
    await bench.producer.send("clicks", b"v")
    await bench.producer.stop(0)
    await asyncio.sleep(0.1)
    assert await bench.cluster.disconnect() == 0


@pytest.mark.parametrize("cancelled", [False, True])
async def test_second_stop_waits_for_the_first(bench: Bench, cancelled: bool) -> None:
    """The producer is closed when the second call returns, also if the first was cancelled."""
    producer = bench.producer
    fault = bench.hold()
    delivery = await producer.enqueue("clicks", b"v")
    await fault.wait()
    first = asyncio.create_task(producer.stop())
    await settle()
    second = asyncio.create_task(producer.stop())
    impatient = asyncio.create_task(producer.stop())
    await settle()
    assert not second.done()
    impatient.cancel()
    await asyncio.wait({impatient})
    assert impatient.cancelled()
    assert not first.done()
    if cancelled:
        first.cancel()
    else:
        fault.release()
    await second
    assert producer.health().state == "closed"
    assert delivery.done()
    await asyncio.wait({first})
    assert first.cancelled() == cancelled


@asynccontextmanager
async def shared_client(**options: Any) -> AsyncGenerator[Producer]:
    """Yield a producer that has written to "clicks", with a client that it does not own."""
    async with InMemory() as memory, memory.client() as client, Producer(client, **options) as made:
        await memory.cluster.create_topic("clicks")
        if "transactional_id" not in options:
            await made.send("clicks", b"written")
        yield made


async def test_records_for_a_new_topic_fail_if_the_shared_client_was_stopped() -> None:
    async with shared_client() as producer:
        delivery = await producer.enqueue("new", b"value")
        await producer.client.stop()
        with pytest.raises(ClientClosedError, match="closed"):
            await delivery
        assert producer.health().state != "failed"


async def test_send_to_a_known_topic_fails_at_once_if_the_shared_client_was_stopped() -> None:
    async with shared_client() as producer:
        await producer.client.stop()
        with pytest.raises(ClientClosedError, match="closed"):
            await producer.send("clicks", b"v")
        assert now() < 0.1


async def test_transaction_fails_at_once_if_the_shared_client_was_stopped() -> None:
    async with shared_client(transactional_id="t") as producer:
        txn = await producer.begin()
        await txn.send("clicks", b"written")
        await producer.client.stop()
        with pytest.raises(ApplicationRecoverableError) as caught:
            await txn.send("clicks", b"v")
        assert isinstance(caught.value.__cause__, ClientClosedError)
        assert now() < 0.1


@pytest.mark.parametrize("call", [Producer.flush, Producer.stop])
async def test_flush_and_stop_end_at_once_if_the_shared_client_was_stopped(
    call: Callable[[Producer], Awaitable[None]],
) -> None:
    async with shared_client(linger_ms=1_000) as producer:
        delivery = await producer.enqueue("clicks", b"v")
        await producer.client.stop()
        with pytest.raises(DeliveryError, match="1 record was not delivered"):
            await call(producer)
        assert isinstance(delivery.exception(), ClientClosedError)
        assert now() < 0.1


@pytest.mark.parametrize("cancelled", ["producer", "client"])
async def test_only_the_producer_whose_tasks_were_cancelled_fails(
    caplog: pytest.LogCaptureFixture, cancelled: str
) -> None:
    async with InMemory() as memory:
        names = {"producer": "Producer first ", "client": "Client first "}
        first, second = (memory.producer(client_id=name) for name in ("first", "second"))
        await first.start()
        await second.start()
        try:
            held = memory.cluster.faults.add(api="Produce", hang=True, count=None)
            lost, kept = [await each.enqueue("t", b"v") for each in (first, second)]
            for task in asyncio.all_tasks():
                if task.get_name().startswith(names[cancelled]):
                    task.cancel()
            with pytest.raises(ClientClosedError, match="its tasks were cancelled"):
                await lost
            held.release()
            memory.cluster.faults.clear()
            await kept
            await second.send("t", b"goes on")
        finally:
            await second.stop()
            with suppress(KafkaError):
                await first.stop()
    assert [r.getMessage() for r in caplog.records if r.name == "kafka_async.process_end"] == [
        f"Producer first: 1 record was not delivered. {CANCELLED}"
    ]
