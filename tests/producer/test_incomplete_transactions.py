"""Calls of a transaction that send and raise: it is incomplete, so it does not commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.errors import (
    IncompleteTransactionError,
    InvalidConfigurationError,
    KafkaError,
    SerializationError,
    TransactionAbortableError,
)
from kafka_async.producer.transactions.state import TransactionState
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord, TopicPartition
from tests.embedded_client import settle
from tests.producer.bench import Bench, transactional

if TYPE_CHECKING:
    from kafka_async.producer.transactions.transaction import Transaction

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LARGE = b"v" * 2_000
Call = Callable[[Any], Awaitable[object]]


def serialize(topic: str, headers: object, value: object) -> bytes:
    if value == "unserializable":
        raise ZeroDivisionError
    assert isinstance(value, bytes)
    return value


@pytest_asyncio.fixture
async def bench() -> AsyncGenerator[Bench]:
    async with transactional(max_request_size=1_000, buffer_memory=10_000) as bench:
        yield bench


async def without_waiting(txn: Any) -> None:
    txn.enqueue_nowait("counts", LARGE)


async def fill_buffer(txn: Any) -> None:
    while True:
        txn.enqueue_nowait("counts", b"v" * 500)


async def wait_for_buffer(txn: Any) -> None:
    for _ in range(100):
        await txn.enqueue("counts", b"v" * 500)


async def half_an_iterator(txn: Any) -> None:
    def records() -> Iterator[ProducerRecord]:
        yield ProducerRecord("counts", b"2")
        raise ZeroDivisionError

    await txn.send_records(records())


FAILING: dict[str, Call] = {
    "send": lambda txn: txn.send("counts", LARGE),
    "enqueue": lambda txn: txn.enqueue("counts", LARGE),
    "enqueue_nowait": without_waiting,
    "wrong type": lambda txn: txn.enqueue("counts", "text"),
    "no topic": lambda txn: txn.enqueue("", b"v"),
    "buffer full": fill_buffer,
    "max_block_ms": wait_for_buffer,
    "send_many half way": lambda txn: txn.send_many("counts", [b"2", LARGE, b"3"]),
    "send_many": lambda txn: txn.send_many("counts", [b"2"], keys=[]),
    "send_records half way": lambda txn: txn.send_records(
        [ProducerRecord("counts", b"2"), ProducerRecord("counts", LARGE)]
    ),
    "send_records": lambda txn: txn.send_records([ProducerRecord("counts", b"2"), "no record"]),
    "iterator half way": half_an_iterator,
    "send_batch": lambda txn: txn.send_batch(
        TopicPartition("counts", 0), RecordBatch.build([ProducerRecord("counts", LARGE)])
    ),
    "send_arrow": lambda txn: txn.send_arrow("no rows"),
}


@pytest.mark.parametrize("name", FAILING)
async def test_failed_call_makes_commit_raise(bench: Bench, name: str) -> None:
    txn = await bench.open_transaction()
    held = bench.hold("Produce", count=None)  # so that buffer_memory can be full
    with pytest.raises(Exception) as failed:  # noqa: PT011  # any
        await FAILING[name](txn)
    held.remove()
    with pytest.raises(
        IncompleteTransactionError, match=r"^a call to send .* ignore_fail"
    ) as caught:
        await txn.commit()
    cause = caught.value.__cause__
    assert type(cause) is type(failed.value)
    assert str(failed.value).endswith(str(cause))
    assert bench.transaction_state is TransactionState.ABORTABLE_ERROR
    await txn.abort()
    async with bench.producer.transaction() as txn:
        await txn.send("counts", b"next")


async def test_block_with_an_overlooked_failure_aborts(bench: Bench) -> None:
    async def overlook() -> None:
        async with bench.producer.transaction() as txn:
            for call in ("enqueue", "enqueue_nowait", "send_many half way"):
                with pytest.raises(InvalidConfigurationError):
                    await FAILING[call](txn)

    with pytest.raises(TransactionAbortableError, match="3 calls to send records raised"):
        await overlook()
    assert bench.transaction_state is TransactionState.READY


async def test_prepare_raises_after_a_failed_call(bench: Bench) -> None:
    txn = await bench.open_transaction()
    with pytest.raises(InvalidConfigurationError):
        await FAILING["enqueue"](txn)
    with pytest.raises(TransactionAbortableError, match="incomplete"):
        await txn.prepare()
    await txn.abort()


async def test_failed_sends_can_be_ignored(bench: Bench) -> None:
    async with bench.producer.transaction(ignore_failed_sends=True) as txn:
        await txn.send("counts", b"1")
        with pytest.raises(InvalidConfigurationError):
            await FAILING["enqueue"](txn)
    txn = await bench.producer.begin(ignore_failed_sends=True)
    with pytest.raises(InvalidConfigurationError):
        await FAILING["send_many half way"](txn)
    await txn.commit()
    assert bench.values("counts") == [b"1", b"2"]


async def test_serializer_that_fails_makes_commit_raise() -> None:
    async with transactional(value_serializer=serialize) as bench:
        txn: Transaction[Any, Any] = await bench.producer.begin()
        with pytest.raises(KafkaError):
            await txn.enqueue("counts", "unserializable")
        with pytest.raises(TransactionAbortableError) as caught:
            await txn.commit()
        assert caught.value.__cause__ is not None
        assert isinstance(caught.value.__cause__.__cause__, SerializationError)
        await txn.abort()


async def test_cancelled_call_does_not_count(bench: Bench) -> None:
    """It has appended nothing, and its caller has cancelled it."""
    txn = await bench.open_transaction()
    held = bench.hold("Produce", count=None)
    waiting: asyncio.Task[object] | None = None
    while waiting is None or waiting.done():
        waiting = asyncio.ensure_future(txn.enqueue("counts", b"v" * 500))
        await settle()
    waiting.cancel()
    await asyncio.wait({waiting})
    held.remove()
    await txn.commit()


async def test_refused_record_is_named_rather_than_calls_after_it(bench: Bench) -> None:
    txn = await bench.open_transaction()
    bench.refuse("INVALID_RECORD")
    with pytest.raises(InvalidConfigurationError) as first:
        await txn.send("counts", b"2")
    for call in (txn.enqueue("counts", b"3"), txn.commit()):
        with pytest.raises(InvalidConfigurationError) as caught:
            await call
        assert caught.value is first.value
    await txn.abort()
