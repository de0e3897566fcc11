"""Stopping a producer: bounded by close_timeout_ms, whatever the cluster does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.clock import MemoryTransport
from kafka_async.errors import ClientClosedError, DeliveryError, KafkaTimeoutError
from kafka_async.producer.producer import CLOSE_TIMEOUT_AFTER_ERROR, Producer
from kafka_async.protocol.messages.end_txn import EndTxnRequest
from tests.embedded_client import InMemory, settle
from tests.producer.bench import Bench

if TYPE_CHECKING:
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def now() -> float:
    return asyncio.get_running_loop().time()


def producer_of(stage: Stage, **options: Any) -> Producer:
    return Producer(stage.cluster.bootstrap_servers, dialer=stage.network, **options)


async def stop_all(stage: Stage) -> None:
    for broker in stage.cluster.alive_broker_ids():
        await stage.cluster.stop_broker(broker)


async def freeze_all(stage: Stage) -> None:
    """Have every broker accept requests and send no response."""
    stage.cluster.faults.add(count=None, hang=True)


OUTAGES = [stop_all, freeze_all]


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize(
    ("options", "bound"), [({}, 30.0), ({"close_timeout_ms": 2_000}, 2.0)], ids=["default", "2 s"]
)
async def test_stop_without_a_cluster_takes_close_timeout_ms(
    stage: Stage, outage: Callable[..., Any], options: dict[str, Any], bound: float
) -> None:
    await stage.topic("clicks")
    producer = producer_of(stage, **options)
    await producer.start()
    await producer.send("clicks", b"written")
    await outage(stage)
    deliveries = await producer.send_many("clicks", [b"v"] * 3)
    started = now()
    with pytest.raises(DeliveryError, match="3 records were not delivered") as caught:
        await producer.stop()
    assert now() - started == pytest.approx(bound, abs=0.1)
    assert [(row.topic, row.count) for row in caught.value.failures] == [("clicks", 3)]
    assert all(isinstance(delivery.exception(), KafkaTimeoutError) for delivery in deliveries)
    stage.cluster.faults.clear()


@pytest.mark.parametrize("outage", OUTAGES)
async def test_end_of_a_block_takes_at_most_close_timeout_ms(
    stage: Stage, outage: Callable[..., Any]
) -> None:
    await stage.topic("clicks")

    async def block() -> None:
        async with producer_of(stage, close_timeout_ms=4_000) as producer:
            await producer.send("clicks", b"written")
            await outage(stage)
            await producer.enqueue("clicks", b"v")

    started = now()
    with pytest.raises(DeliveryError, match="1 records"):
        await block()
    assert now() - started == pytest.approx(4, abs=0.2)
    stage.cluster.faults.clear()


@pytest.mark.parametrize(
    ("close_timeout_ms", "limit"), [(3_000, 3.0), (60_000, CLOSE_TIMEOUT_AFTER_ERROR)]
)
async def test_block_left_by_an_exception_closes_within_10_s(
    stage: Stage, close_timeout_ms: float, limit: float
) -> None:
    await stage.topic("clicks")

    async def block() -> None:
        async with producer_of(stage, close_timeout_ms=close_timeout_ms) as producer:
            await freeze_all(stage)
            await producer.enqueue("clicks", b"v")
            raise ZeroDivisionError

    started = now()
    with pytest.raises(ZeroDivisionError) as caught:
        await block()
    assert now() - started == pytest.approx(limit, abs=0.1)
    assert "1 records were not delivered" in caught.value.__notes__[0]
    stage.cluster.faults.clear()


@pytest.mark.parametrize("outage", OUTAGES)
async def test_stop_without_records_takes_no_time(stage: Stage, outage: Callable[..., Any]) -> None:
    await stage.topic("clicks")
    producer = producer_of(stage)
    await producer.start()
    await producer.send("clicks", b"written")
    await outage(stage)
    started = now()
    await producer.stop()
    assert now() - started < 0.1
    stage.cluster.faults.clear()


async def test_stop_does_not_abort_without_a_broker(stage: Stage) -> None:
    await stage.topic("clicks")
    producer = producer_of(stage, transactional_id="t")
    await producer.start()
    txn = await producer.begin()
    await txn.send("clicks", b"open")
    await stop_all(stage)
    started = now()
    await producer.stop()
    assert now() - started < 1


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("timeout", [0, 2.0])
async def test_stop_keeps_its_timeout_with_a_transaction_open(
    stage: Stage, outage: Callable[..., Any], timeout: float
) -> None:
    await stage.topic("clicks")
    producer = producer_of(stage, transactional_id="t")
    await producer.start()
    txn = await producer.begin()
    await txn.send("clicks", b"open")
    await outage(stage)
    delivery = await txn.enqueue("clicks", b"dropped")
    started = now()
    await producer.stop(timeout)
    assert now() - started <= timeout + 0.1
    assert delivery.exception() is not None
    stage.cluster.faults.clear()


async def test_transaction_that_cannot_be_aborted_does_not_delay_stop(
    start_stage: StartStage,
) -> None:
    """Only the coordinator does not respond: its abort gets 5 s of close_timeout_ms."""
    stage = await start_stage()
    await stage.topic("clicks")
    producer = producer_of(stage, transactional_id="t")
    await producer.start()
    txn = await producer.begin()
    await txn.send("clicks", b"open")
    stage.cluster.faults.add(api="EndTxn", count=None, hang=True)
    started = now()
    await producer.stop()
    assert now() - started == pytest.approx(5, abs=0.1)
    stage.cluster.faults.clear()


async def test_stop_aborts_connections_that_do_not_close_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transport does not close while it has bytes that a broker does not read."""
    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.send("clicks", b"v")
        closing: list[MemoryTransport] = []
        aborted: list[MemoryTransport] = []
        abort = MemoryTransport.abort

        def recorded(transport: MemoryTransport) -> None:
            aborted.append(transport)
            abort(transport)

        def unfinished(transport: MemoryTransport) -> None:
            closing.append(transport)

        monkeypatch.setattr(MemoryTransport, "close", unfinished)
        monkeypatch.setattr(MemoryTransport, "abort", recorded)
        await bench.producer.stop(1.5)
        assert now() == pytest.approx(1.5, abs=0.1)
        assert len(closing) >= 2, "of the producer and of its client"
        assert set(closing) <= set(aborted)
        await settle()
        assert await bench.cluster.disconnect() == 0


async def test_stop_with_timeout_0_closes_every_connection(stage: Stage) -> None:
    await stage.topic("clicks")
    producer = producer_of(stage)
    await producer.start()
    await producer.send("clicks", b"v")
    await producer.stop(0)
    await stage.client.stop(0)
    await asyncio.sleep(0.1)
    assert await stage.cluster.disconnect() == 0


async def test_stop_aborts_an_open_transaction() -> None:
    async with Bench({"clicks": [1]}, transactional_id="t") as bench:
        txn = await bench.producer.begin()
        await txn.send("clicks", b"1")
        await bench.producer.stop()
        assert [end.committed for end in bench.requests(EndTxnRequest)] == [False]
        assert now() == pytest.approx(0, abs=0.1)


async def test_second_stop_waits_for_the_first(stage: Stage) -> None:
    """The producer is closed when the second call returns."""
    await stage.topic("clicks")
    producer = producer_of(stage)
    await producer.start()
    fault = stage.cluster.faults.add(api="Produce", hang=True)
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
    fault.release()
    await second
    assert producer.health().state == "closed"
    assert delivery.done()
    await first


async def test_second_stop_waits_for_a_cancelled_first(stage: Stage) -> None:
    await stage.topic("clicks")
    producer = producer_of(stage)
    await producer.start()
    fault = stage.cluster.faults.add(api="Produce", hang=True)
    await producer.enqueue("clicks", b"v")
    await fault.wait()
    first = asyncio.create_task(producer.stop())
    await settle()
    second = asyncio.create_task(producer.stop())
    await settle()
    first.cancel()
    await second
    assert producer.health().state == "closed"
    await asyncio.wait({first})
    assert first.cancelled()
    fault.release()


async def test_records_for_a_new_topic_fail_if_the_shared_client_was_stopped() -> None:
    async with InMemory() as memory, memory.client() as client, Producer(client) as producer:
        delivery = await producer.enqueue("new", b"value")
        await client.stop()
        with pytest.raises(ClientClosedError, match="closed"):
            await delivery
        assert producer.health().state != "failed"
