"""Errors of transactional calls: each belongs to a class of KIP-1050."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.errors import (
    ApplicationRecoverableError,
    CommitFailedError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
)
from kafka_async.producer.producer import Producer
from kafka_async.producer.transactions.state import TransactionState
from kafka_async.producer.transactions.transaction import Transaction
from kafka_async.protocol.messages.end_txn import EndTxnRequest
from tests.embedded_client import now, settle
from tests.producer.bench import GROUP, OFFSETS, Bench, Source, transactional

if TYPE_CHECKING:
    from kafka_async.embedded.faults import Fault
    from kafka_async.types import GroupMetadata

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

CATEGORIES = (TransactionAbortableError, ApplicationRecoverableError, InvalidConfigurationError)
CODES = [
    *(-1, 2, 3, 6, 7, 10, 12, 14, 15, 16, 17, 22, 25, 27, 29, 30, 31, 35, 38, 41, 42, 45, 47, 48),
    *(49, 50, 51, 53, 56, 59, 74, 82, 87, 89, 90, 110, 113, 120, 129),
]
COORDINATION = (
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
)

Call = Callable[[Producer, Transaction], Awaitable[object]]


@pytest_asyncio.fixture
async def bench(version: int) -> AsyncGenerator[Bench]:
    async with transactional(version, max_block_ms=3_000) as bench:
        yield bench


def fail_coordinators(bench: Bench, code: int | None) -> None:
    """Respond to each request of a coordinator with an error; None: reset its connection."""
    for api in COORDINATION:
        if code is None:
            bench.faults.add(api=api, disconnect="before", count=None)
        else:
            bench.faults.add(api=api, error=code, count=None)


async def caught(call: Awaitable[object]) -> KafkaError | None:
    try:
        await call
    except KafkaError as error:
        return error
    return None


@pytest.mark.one_kernel
@pytest.mark.parametrize("code", [*CODES, None])
@pytest.mark.parametrize("name", ["start", "init_transactions", "begin"])
async def test_each_error_of_init_producer_id_has_a_category(
    bench: Bench, name: str, code: int | None
) -> None:
    producer = bench.producer
    if name == "begin":  # after a failed initialization
        lost = bench.faults.add(api="InitProducerId", disconnect="before", count=None)
        assert isinstance(await caught(producer.init_transactions()), ApplicationRecoverableError)
        lost.remove()
    fail_coordinators(bench, code)
    if name == "start":
        former = producer
        bench.renew()
        producer = bench.producer
        await former.stop()
    error = await caught(getattr(producer, name)())
    assert isinstance(error, (ApplicationRecoverableError, InvalidConfigurationError))
    assert error.__cause__ is not error
    if name == "start":
        await producer.stop()


async def test_missing_bootstrap_servers_are_application_recoverable(bench: Bench) -> None:
    await bench.cluster.stop_broker(1)
    producer = bench.memory.producer(transactional_id="t", default_api_timeout_ms=3_000)
    with pytest.raises(ApplicationRecoverableError, match="bootstrap") as raised:
        await producer.start()
    assert isinstance(raised.value.__cause__, KafkaConnectionError)


class FormerMember(Source):
    """A consumer that is no longer a member of its group."""

    def group_metadata(self) -> GroupMetadata:
        raise CommitFailedError("the group has given the partitions to another member")

    def mark_committed(self, offsets: object) -> None:
        raise AssertionError


def fails(*_: object) -> bytes:
    raise ZeroDivisionError


BEFORE_SENDING: list[tuple[Call, type[KafkaError], type[Exception], dict[str, Any]]] = [
    (
        lambda producer, txn: txn.commit_offsets(FormerMember()),
        ApplicationRecoverableError,
        CommitFailedError,
        {},
    ),
    (
        lambda producer, txn: txn.enqueue("counts", b"v" * 2_000),
        InvalidConfigurationError,
        RecordTooLargeError,
        {"max_request_size": 1_000},
    ),
    (
        lambda producer, txn: txn.enqueue("counts", b"v"),
        ApplicationRecoverableError,
        SerializationError,
        {"value_serializer": fails},
    ),
]


@pytest.mark.parametrize(
    ("call", "kind", "cause", "options"),
    BEFORE_SENDING,
    ids=["no member", "too large", "serializer"],
)
async def test_errors_of_the_client_have_a_category(
    call: Call, kind: type[KafkaError], cause: type[Exception], options: dict[str, Any]
) -> None:
    async with transactional(**options) as bench:
        txn = await bench.producer.begin()
        with pytest.raises(kind) as raised:
            await call(bench.producer, txn)
        assert isinstance(raised.value.__cause__, cause)


async def test_calls_after_stop_are_application_recoverable(bench: Bench) -> None:
    txn = await bench.producer.begin()
    await bench.producer.stop()
    for call in (txn.enqueue("counts", b"1"), txn.commit(), bench.producer.begin()):
        with pytest.raises(ApplicationRecoverableError):
            await call


async def test_each_call_refuses_a_record_over_the_limit() -> None:
    async with transactional(max_request_size=1_000) as bench:
        txn = await bench.producer.begin()
        large = b"v" * 2_000
        with pytest.raises(InvalidConfigurationError):
            txn.enqueue_nowait("counts", large)
        for call in (txn.send("counts", large), txn.send_many("counts", [large])):
            with pytest.raises(InvalidConfigurationError):
                await call


MISUSE: dict[str, Call] = {
    "commit": lambda producer, txn: txn.commit(),
    "abort": lambda producer, txn: txn.abort(),
    "commit_offsets": lambda producer, txn: txn.commit_offsets(OFFSETS, GROUP),
    "enqueue": lambda producer, txn: txn.enqueue("counts", b"1"),
    "begin": lambda producer, txn: begin_twice(producer),
    "init_transactions": lambda producer, txn: init_in_transaction(producer),
}


async def begin_twice(producer: Producer) -> None:
    await producer.begin()
    await producer.begin()


async def init_in_transaction(producer: Producer) -> None:
    await producer.begin()
    await producer.init_transactions()


@pytest.mark.parametrize("name", MISUSE)
async def test_misuse_raises_an_application_recoverable_state_error(
    bench: Bench, name: str
) -> None:
    txn = await bench.producer.begin()
    await txn.commit()
    with pytest.raises(TransactionStateError) as raised:
        await MISUSE[name](bench.producer, txn)
    assert isinstance(raised.value, ApplicationRecoverableError)
    assert isinstance(raised.value, IllegalStateError)


# -- time-outs and cancelled ends ------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
async def test_abort_keeps_its_timeout(bench: Bench) -> None:
    txn = await bench.open_transaction()
    fail_coordinators(bench, None)
    with pytest.raises(ApplicationRecoverableError):
        await txn.abort(timeout=2)
    assert now() <= 2.1


@pytest.mark.parametrize("version", [1, 2])
async def test_abort_ends_the_transaction_even_if_its_records_get_no_response(bench: Bench) -> None:
    """Waiting for responses to Produce takes a third of the time, the end has the rest."""
    txn = await bench.open_transaction()
    bench.hold("Produce", count=None)
    delivery = await txn.enqueue("counts", b"2")
    await settle()
    await txn.abort(timeout=3)
    assert now() < 2
    assert [end.committed for end in bench.requests(EndTxnRequest)] == [False]
    assert isinstance(await caught(delivery), CATEGORIES)


async def cancelled_commit(bench: Bench, error: str | None) -> tuple[Transaction, Fault]:
    """Cancel a commit after EndTxn was sent; the fault holds its response."""
    held = bench.hold("EndTxn", error=error)
    txn = await bench.open_transaction()
    task = asyncio.ensure_future(txn.commit())
    await settle()
    task.cancel()
    await asyncio.wait({task})
    return txn, held


async def test_next_transaction_waits_for_a_cancelled_commit(bench: Bench) -> None:
    _, held = await cancelled_commit(bench, None)
    beginning = asyncio.ensure_future(bench.producer.begin())
    await settle()
    assert not beginning.done()
    held.release()
    txn = await beginning
    await txn.send("counts", b"2")
    await txn.commit()
    assert [end.committed for end in bench.requests(EndTxnRequest)] == [True, True]


async def test_begin_raises_the_error_of_a_cancelled_commit_once(bench: Bench) -> None:
    _, held = await cancelled_commit(bench, "TRANSACTION_ABORTABLE")
    held.release()
    with pytest.raises(TransactionAbortableError):
        await bench.producer.begin()
    assert [end.committed for end in bench.requests(EndTxnRequest)] == [True, False]
    await (await bench.producer.begin()).commit()


async def test_awaiting_a_cancelled_commit_again_raises_its_error(bench: Bench) -> None:
    txn, held = await cancelled_commit(bench, "TRANSACTION_ABORTABLE")
    held.release()
    await settle()
    with pytest.raises(TransactionAbortableError):
        await txn.commit()
    await txn.abort()
    await (await bench.producer.begin()).commit()


async def test_timeout_of_a_second_commit_call_has_an_unknown_outcome(bench: Bench) -> None:
    txn, held = await cancelled_commit(bench, None)
    with pytest.raises(TransactionOutcomeUnknownError, match="await it again"):
        await txn.commit(timeout=0.5)
    held.release()
    await txn.commit()
    assert bench.transaction_state is TransactionState.READY


async def test_begin_refuses_while_another_task_commits(bench: Bench) -> None:
    bench.hold("EndTxn")
    txn = await bench.open_transaction()
    task = asyncio.ensure_future(txn.commit())
    await settle()
    with pytest.raises(TransactionStateError, match="being committed"):
        await bench.producer.begin()
    task.cancel()
    await asyncio.wait({task})
