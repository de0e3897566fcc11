"""Each public call, cancelled at any await, leaves the producer usable or cleanly closed.

Records that were appended are delivered once, others are not; a transaction is atomic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from kafka_async import Producer, ProducerRecord, RecordBatch, TopicPartition
from kafka_async.errors import BufferFullError, KafkaError
from kafka_async.producer.transactions.state import TransactionState
from kafka_async.protocol.messages.end_txn import EndTxnRequest
from kafka_async.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.embedded_client import settle
from tests.producer.bench import Bench, Source, advance_with_each_reading, transactional
from tests.producer.interruption import interrupt_everywhere
from tests.rows import pairs

if TYPE_CHECKING:
    from kafka_async import Transaction

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

Run: TypeAlias = Callable[[Awaitable[Any]], Awaitable[bool]]
Call: TypeAlias = Callable[[Producer], Awaitable[Any]]

KIB = 1024
PLACE = TopicPartition("clicks", 0)


async def check_usable(bench: Bench) -> list[bytes | None]:
    """Check that the producer works and has released its memory; return the earlier values."""
    await bench.producer.send("clicks", b"last")
    await bench.producer.flush()
    assert bench.memory_in_use == bench.producer.statistics().waiting_threads == 0
    values = bench.values("clicks")
    assert len(values) == len(set(values))
    assert values[-1] == b"last"
    return values[:-1]


async def check_closed(bench: Bench) -> None:
    """Check that the producer has closed everything."""
    await settle()
    assert await bench.cluster.disconnect() == 0, "a connection is open"
    with pytest.raises(KafkaError):
        await bench.producer.send("clicks", b"no")


@pytest.fixture
def clock_makes_calls_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make consecutive calls yield each time: each reading advances the clock by 2 ms."""
    advance_with_each_reading(0.002, monkeypatch)


# -- records --------------------------------------------------------------------------------------


async def send(producer: Producer) -> None:
    await producer.send("clicks", b"1")


async def enqueue(producer: Producer) -> None:
    for value in (b"1", b"2"):
        await producer.enqueue("clicks", value)


async def send_many(producer: Producer) -> None:
    await producer.send_many("clicks", [b"1", b"2", b"3"])
    await producer.send_many("clicks", [b"4", b"5"], [b"k", b"k"])


async def send_records(producer: Producer) -> None:
    await producer.send_records([ProducerRecord("clicks", b"%d" % n) for n in range(1, 4)])


async def send_batch(producer: Producer) -> None:
    batch = RecordBatch.build([ProducerRecord("", b"1"), ProducerRecord("", b"2")], "lz4")
    await (await producer.send_batch(PLACE, batch))


async def enqueue_and_wait(producer: Producer) -> None:
    delivery = await producer.enqueue("clicks", b"1")
    await asyncio.gather(producer.send("clicks", b"2"), producer.flush())
    await delivery


@pytest.mark.usefixtures("clock_makes_calls_yield")
@pytest.mark.parametrize(
    "call", [send, enqueue, send_many, send_records, send_batch, enqueue_and_wait]
)
@pytest.mark.parametrize("known", [True, False])
async def test_cancelled_append_calls_keep_the_order(call: Call, known: bool) -> None:
    async def scene(run: Run) -> None:
        settings = {"auto_create_topics": True}
        topics = {"clicks": [1]} if known else {}
        async with Bench(topics, settings=settings, linger_ms=5) as bench:
            cancelled = await run(call(bench.producer))
            values = await check_usable(bench)
            assert values == [b"%d" % number for number in range(1, len(values) + 1)]
            assert cancelled or values

    assert await interrupt_everywhere(scene) > 0


@pytest.mark.parametrize("what", ["enqueue", "send_batch"])
async def test_call_cancelled_while_the_buffer_is_full_appends_nothing(what: str) -> None:
    async def scene(run: Run) -> None:
        async with Bench({"clicks": [1]}, buffer_memory=16 * KIB) as bench:
            producer = bench.producer
            await producer.send("clicks", b"first")
            hold = bench.hold()
            count = 0
            while fits(producer, b"%04d" % count * 256):
                count += 1
            asyncio.get_running_loop().call_later(1, hold.release)
            if what == "enqueue":
                call: Awaitable[Any] = producer.enqueue("clicks", b"new" * 300)
            else:
                batch = RecordBatch.build([ProducerRecord("", b"new" * 300)])
                call = producer.send_batch(PLACE, batch)
            cancelled = await run(call)
            values = await check_usable(bench)
            assert len(values) == 1 + count + (not cancelled)
            assert (b"new" * 300 in values) is not cancelled

    assert await interrupt_everywhere(scene) > 0


def fits(producer: Producer, value: bytes) -> bool:
    try:
        producer.enqueue_nowait("clicks", value)
    except BufferFullError:
        return False
    return True


async def test_cancelled_flush_does_not_withdraw_records() -> None:
    async def scene(run: Run) -> None:
        async with Bench({"clicks": [1]}, linger_ms=60_000, batch_size=100) as bench:
            await bench.producer.send_many("clicks", [b"%03d" % n for n in range(50)])
            await run(bench.producer.flush())
            assert await check_usable(bench) == [b"%03d" % n for n in range(50)]

    assert await interrupt_everywhere(scene) > 0


# -- life -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"transactional_id": "t"}])
async def test_cancelled_start_closes_everything(options: dict[str, Any]) -> None:
    async def scene(run: Run) -> None:
        async with Bench({"clicks": [1]}, **options) as bench:
            await bench.producer.stop()
            bench.renew()
            await settle()
            before = asyncio.all_tasks()
            if await run(bench.producer.start()):
                await settle()
                assert asyncio.all_tasks() == before
                await check_closed(bench)
                bench.renew()
                await bench.producer.start()
            assert bench.producer.statistics().waiting_threads == 0

    assert await interrupt_everywhere(scene) > 0


@pytest.mark.parametrize("how", ["stop", "aexit"])
@pytest.mark.parametrize("options", [{}, {"transactional_id": "t"}])
async def test_cancelled_stop_closes_everything(how: str, options: dict[str, Any]) -> None:
    async def scene(run: Run) -> None:
        async with Bench({"clicks": [1]}, linger_ms=5, **options) as bench:
            writer: Any = await bench.producer.begin() if options else bench.producer
            deliveries = await writer.send_many("clicks", [b"1", b"2", b"3"])
            stop = bench.producer.stop()
            if how == "aexit":
                stop.close()
                stop = bench.producer.__aexit__(None, None, None)
            cancelled = await run(stop)
            await bench.producer.stop()  # completes the close
            await check_closed(bench)
            assert all(delivery.done() for delivery in deliveries)
            written = bench.values("clicks")
            acknowledged = [d.result().offset for d in deliveries if d.exception() is None]
            assert acknowledged == list(range(len(acknowledged)))
            assert written in ([], [b"1", b"2", b"3"])
            assert cancelled or options or len(acknowledged) == 3

    assert await interrupt_everywhere(scene) > 0


# -- transactions ---------------------------------------------------------------------------------


async def fill(txn: Transaction, source: Source) -> None:
    await txn.enqueue("counts", b"1")
    await txn.commit_offsets(source)
    await txn.send("counts", b"2")


async def check_atomic(bench: Bench, source: Source) -> None:
    """Check that the transaction was committed completely or not at all, and another one works."""
    commits = [end.committed for end in bench.requests(EndTxnRequest)]
    assert commits.count(True) <= 1
    values = bench.values("counts")
    assert len(values) == len(set(values))
    if True in commits:
        assert commits == [True]
        assert values == [b"1", b"2"]
        assert len(bench.requests(TxnOffsetCommitRequest)) == 1
    assert source.marked == commits.count(True)
    async with bench.producer.transaction() as txn:
        await txn.send("counts", b"last")
    assert bench.requests(EndTxnRequest)[-1].committed
    assert bench.transaction_state is TransactionState.READY
    assert bench.memory_in_use == 0


@pytest.mark.parametrize("version", [1, 2])
async def test_cancelled_block_is_atomic(version: int) -> None:
    async def scene(run: Run) -> None:
        async with transactional(version, linger_ms=5) as bench:
            source = Source()
            txn = bench.producer.transaction()

            async def block() -> None:
                async with txn:
                    await fill(txn, source)

            await run(block())
            async with bench.producer.transaction():
                pass  # waits for the outcome if it was too late to abort
            await check_atomic(bench, source)

    assert await interrupt_everywhere(scene) >= 5


@pytest.mark.parametrize(("version", "end", "idle"), pairs([1, 2], ["commit", "abort"], [0, 5]))
async def test_cancelled_commit_or_abort_can_be_awaited_again(
    version: int, end: str, idle: float
) -> None:
    async def scene(run: Run) -> None:
        async with transactional(version, linger_ms=5) as bench:
            source = Source()
            txn = await bench.producer.begin()
            await fill(txn, source)
            await txn.enqueue("counts", b"3") if end == "abort" else None
            if await run(getattr(txn, end)()):
                await asyncio.sleep(idle)
                await getattr(txn, end)()
            committed = [row.committed for row in bench.requests(EndTxnRequest)]
            assert committed == [end == "commit"]
            await check_atomic(bench, source)

    assert await interrupt_everywhere(scene) > 0


@pytest.mark.parametrize("version", [1, 2])
async def test_cancelled_calls_in_a_transaction_keep_it_atomic(version: int) -> None:
    async def scene(run: Run) -> None:
        async with transactional(version, linger_ms=5) as bench:
            source = Source()
            txn = await bench.producer.begin()
            await (txn.abort() if await run(fill(txn, source)) else txn.commit())
            await check_atomic(bench, source)

    assert await interrupt_everywhere(scene) > 3


@pytest.mark.parametrize("version", [1, 2])
async def test_producer_is_usable_after_cancelled_init_transactions(version: int) -> None:
    async def scene(run: Run) -> None:
        async with transactional(version, linger_ms=5) as bench:
            await run(bench.producer.init_transactions())
            await check_atomic(bench, Source())

    assert await interrupt_everywhere(scene) > 0
