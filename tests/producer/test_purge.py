"""Producer.purge drops records that are not acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.errors import (
    ClientClosedError,
    KafkaError,
    RecordPurgedError,
    TransactionAbortableError,
)
from kafka_async.producer.transactions.state import TransactionState
from tests.embedded_client import settle
from tests.producer.bench import Bench, transactional

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def error_of(delivery: Any) -> KafkaError | None:
    try:
        await delivery
    except KafkaError as error:
        return error
    return None


async def test_purge_drops_records_that_were_not_sent() -> None:
    async with Bench({"clicks": [1]}, linger_ms=1_000) as bench:
        lingering = await bench.producer.send_many("clicks", [b"1", b"2"])
        assert bench.producer.purge() == 2
        assert bench.memory_in_use == 0
        for delivery in lingering:
            error = await error_of(delivery)
            assert isinstance(error, RecordPurgedError)
            assert "before it was sent" in str(error)
        await bench.producer.flush()  # raises nothing
        await bench.producer.send("clicks", b"3")
        assert bench.values("clicks") == [b"3"]
        assert bench.sequences() == [(0, 0)]


async def test_purge_drops_records_that_wait_for_metadata() -> None:
    async with Bench({"clicks": [1]}) as bench:
        waiting = await bench.producer.enqueue("missing", b"1")
        assert bench.producer.purge() == 1
        error = await error_of(waiting)
        assert isinstance(error, RecordPurgedError)
        assert (error.topic, error.partition) == ("missing", None)
        assert bench.memory_in_use == 0


async def test_purge_keeps_records_in_flight_unless_asked_for() -> None:
    async with Bench({"clicks": [1]}) as bench:
        held = bench.hold()
        sent = await bench.producer.enqueue("clicks", b"1")
        await held.wait()
        behind = await bench.producer.enqueue("clicks", b"2")
        assert bench.producer.purge() == 1
        held.release()
        assert await error_of(sent) is None
        assert isinstance(await error_of(behind), RecordPurgedError)
        await bench.producer.send("clicks", b"3")
        assert bench.values("clicks") == [b"1", b"3"]
        assert bench.sequences() == [(0, 0), (0, 1)]


@pytest.mark.parametrize("written", [True, False])
async def test_purge_of_records_in_flight_bumps_the_epoch(written: bool) -> None:
    """The next batch is accepted at once, whether the broker has written those before or not."""
    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.send("clicks", b"0")
        held = bench.hold(applied=True) if written else bench.hold(disconnect="before")
        sent = await bench.producer.enqueue("clicks", b"1")
        await held.wait()
        queued = await bench.producer.enqueue("clicks", b"2")
        assert bench.producer.purge(queued=False, in_flight=True) == 1
        error = await error_of(sent)
        assert isinstance(error, RecordPurgedError)
        assert "may or may not" in str(error)
        held.release()
        assert await error_of(queued) is None
        await bench.producer.send("clicks", b"3")
        assert bench.values("clicks") == [b"0", *([b"1"] if written else []), b"2", b"3"]
        assert bench.sequences() == [(0, 0), (0, 1), (1, 0), (1, 1)]


async def test_purge_drops_batches_that_wait_for_a_retry_with_those_in_flight() -> None:
    async with Bench({"clicks": [1]}, retry_backoff_ms=1_000) as bench:
        await bench.producer.send("clicks", b"0")
        bench.refuse("NOT_ENOUGH_REPLICAS")
        retried = await bench.producer.enqueue("clicks", b"1")
        await settle()
        assert bench.producer.purge() == 0
        assert bench.producer.purge(in_flight=True) == 1
        assert isinstance(await error_of(retried), RecordPurgedError)
        await bench.producer.send("clicks", b"2")
        assert bench.values("clicks") == [b"0", b"2"]


async def test_response_to_a_purged_batch_is_ignored() -> None:
    async with Bench({"clicks": [1]}) as bench:
        held = bench.hold(error="NOT_LEADER_OR_FOLLOWER")
        sent = await bench.producer.enqueue("clicks", b"1")
        await held.wait()
        assert bench.producer.purge(in_flight=True) == 1
        assert isinstance(await error_of(sent), RecordPurgedError)
        held.release()
        await settle()
        assert bench.producer.health().in_flight == 0
        assert bench.sent == 1


async def test_purge_without_idempotence() -> None:
    async with Bench({"clicks": [1]}, enable_idempotence=False) as bench:
        held = bench.hold()
        sent = await bench.producer.enqueue("clicks", b"1")
        await held.wait()
        assert bench.producer.purge(in_flight=True) == 1
        assert isinstance(await error_of(sent), RecordPurgedError)
        held.release()
        await bench.producer.send("clicks", b"2")
        assert bench.values("clicks") == [b"1", b"2"]


async def test_purge_frees_memory_for_a_waiting_call() -> None:
    async with Bench({"clicks": [1]}, buffer_memory=5_000, linger_ms=1_000) as bench:
        await bench.producer.enqueue("clicks", b"1" * 900)
        waiting = asyncio.ensure_future(bench.producer.enqueue("clicks", b"2" * 4_000))
        bench.hold()
        await settle()
        assert not waiting.done()
        bench.producer.purge(in_flight=True)
        await asyncio.wait_for(waiting, 10)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("in_flight", [False, True])
async def test_purge_makes_a_transaction_abortable(version: int, in_flight: bool) -> None:
    async with transactional(version) as bench:
        txn = await bench.open_transaction()
        held = bench.hold("Produce")
        sent = await txn.enqueue("counts", b"2")
        await held.wait()
        queued = await txn.enqueue("counts", b"3")
        assert bench.producer.purge(in_flight=in_flight) == 1 + in_flight
        error = await error_of(queued)
        assert isinstance(error, TransactionAbortableError)
        assert isinstance(error.__cause__, RecordPurgedError)
        assert bench.transaction_state is TransactionState.ABORTABLE_ERROR
        held.release()
        assert (await error_of(sent) is None) is not in_flight
        with pytest.raises(TransactionAbortableError, match="purged"):
            await txn.commit()
        await txn.abort()
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"4")
        async with bench.memory.consumer(
            partitions=[("counts", 0)],
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            records = await consumer.poll(timeout=10)
            assert [record.value for record in records] == [b"4"]


async def test_purge_of_nothing_leaves_a_transaction_open() -> None:
    async with transactional() as bench:
        txn = await bench.open_transaction()
        assert bench.producer.purge(in_flight=True) == 0
        await txn.commit()


async def test_purge_needs_a_running_producer() -> None:
    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.stop()
        with pytest.raises(ClientClosedError):
            bench.producer.purge()
