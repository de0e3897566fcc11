"""Transactions: their states, and the requests sent to coordinators."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import pytest_asyncio

from kafka_async.errors import (
    ApplicationRecoverableError,
    Category,
    IllegalGenerationError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    for_code,
)
from kafka_async.hooks import TransactionEnded
from kafka_async.producer.transactions.state import (
    EVENT_FOR_CATEGORY,
    STATE_ERRORS,
    TransactionEvent,
    TransactionState,
    TransactionStateMachine,
)
from kafka_async.producer.writer import RecordWriter
from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_async.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_async.protocol.messages.end_txn import EndTxnRequest
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord, TopicPartition
from tests.embedded_client import now, settle
from tests.producer.bench import GROUP, OFFSETS, Bench, transactional

if TYPE_CHECKING:
    from kafka_async import Consumer
    from kafka_async.embedded.faults import Fault
    from kafka_async.producer.transactions.transaction import Transaction

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

ENDS = ["InitProducerId", "EndTxn"]
CONVERSATION = ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", *ENDS]


@pytest_asyncio.fixture
async def bench(version: int) -> AsyncGenerator[Bench]:
    async with transactional(version) as bench:
        yield bench


def requests_after_init(bench: Bench) -> list[str]:
    """Return the names of the requests received after the first InitProducerId, in order."""
    received = [type(row.request).__name__.removesuffix("Request") for row in bench.memory.received]
    names = [name for name in received if name in CONVERSATION]
    assert names[0] == "InitProducerId"
    return names[1:]


def versions(bench: Bench, kind: type[Any]) -> set[int]:
    return {row.version for row in bench.memory.received if isinstance(row.request, kind)}


def disconnect_responses(bench: Bench, *apis: str) -> list[Fault]:
    """Reset the connection in place of every response of some APIs."""
    return [bench.faults.add(api=api, disconnect="before", count=None) for api in apis]


async def leave_by_an_exception(bench: Bench) -> None:
    async with bench.producer.transaction() as txn:
        await txn.send("counts", b"1")
        raise ZeroDivisionError


# -- states ---------------------------------------------------------------------------------------


async def test_unknown_outcome_accepts_no_abortable_error() -> None:
    machine = TransactionStateMachine(lambda state: None)
    for event in (
        TransactionEvent.INIT,
        TransactionEvent.INITIALIZED,
        TransactionEvent.BEGIN,
        TransactionEvent.COMMIT,
        TransactionEvent.COMMIT_SENT,
        TransactionEvent.NO_RESPONSE,
    ):
        machine.apply(event)
    assert not machine.allows(TransactionEvent.ABORTABLE)
    with pytest.raises(IllegalStateError, match="outcome is unknown"):
        machine.apply(TransactionEvent.ABORTABLE, TransactionAbortableError("late"))


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        (EVENT_FOR_CATEGORY, set(Category) - {Category.RETRIABLE, Category.REFRESH_RETRIABLE}),
        (STATE_ERRORS, set(TransactionState)),
    ],
    ids=["an event per category", "a message per state"],
)
async def test_tables_are_complete(table: Mapping[Any, object], keys: set[Any]) -> None:
    assert set(table) == keys


async def test_keeps_the_first_error() -> None:
    machine = TransactionStateMachine(lambda state: None)
    for event in (TransactionEvent.INIT, TransactionEvent.INITIALIZED, TransactionEvent.BEGIN):
        machine.apply(event)
    first, second = TransactionAbortableError("first"), TransactionAbortableError("second")
    machine.apply(TransactionEvent.ABORTABLE, first)
    machine.apply(TransactionEvent.ABORTABLE, second)
    assert machine.error is first
    machine.apply(TransactionEvent.ABORT)
    machine.apply(TransactionEvent.ENDED)
    assert (machine.state, machine.error) == (TransactionState.READY, None)


# -- the five calls -------------------------------------------------------------------------------


async def test_version_2_sends_only_end_txn(bench: Bench) -> None:
    txn = await bench.producer.begin()
    await txn.enqueue("counts", b"1")
    await txn.commit_offsets(OFFSETS, GROUP)
    await txn.commit()
    assert requests_after_init(bench) == ["TxnOffsetCommit", "Produce", "EndTxn"]
    assert versions(bench, TxnOffsetCommitRequest) == {5}
    assert versions(bench, EndTxnRequest) == {5}
    assert versions(bench, ProduceRequest) == {13}
    assert bench.values("counts") == [b"1"]
    assert bench.transaction_state is TransactionState.READY


async def test_version_1_adds_partitions_and_offsets_first() -> None:
    async with transactional(1) as bench:
        txn = await bench.open_transaction()
        await txn.commit_offsets(OFFSETS, GROUP)
        await txn.send("counts", b"2")
        await txn.commit()
        assert requests_after_init(bench) == [
            "AddPartitionsToTxn",
            "Produce",
            "AddOffsetsToTxn",
            "TxnOffsetCommit",
            "Produce",
            "EndTxn",
        ]
        assert versions(bench, AddPartitionsToTxnRequest) == {3}
        assert versions(bench, TxnOffsetCommitRequest) == {4}
        assert versions(bench, EndTxnRequest) == {4}
        assert versions(bench, ProduceRequest) == {11}


async def test_version_2_bumps_the_epoch_per_transaction(bench: Bench) -> None:
    for _ in range(2):
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"a")
            await txn.send("counts", b"b")
    headers = [batch.header for batch in bench.batches("counts")]
    assert [(h.producer_epoch, h.base_sequence) for h in headers] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert all(header.is_transactional for header in headers)


async def test_version_1_continues_sequences() -> None:
    async with transactional(1) as bench:
        for _ in range(2):
            async with bench.producer.transaction() as txn:
                await txn.send("counts", b"a")
        headers = [batch.header for batch in bench.batches("counts")]
        assert [(h.producer_epoch, h.base_sequence) for h in headers] == [(0, 0), (0, 1)]
        # Each transaction adds its partitions.
        assert len(bench.requests(AddPartitionsToTxnRequest)) == 2


@pytest.mark.parametrize("version", [1, 2])
async def test_transaction_without_records_sends_no_request(bench: Bench) -> None:
    async with bench.producer.transaction():
        pass
    txn = await bench.producer.begin()
    await txn.abort()
    assert requests_after_init(bench) == []
    assert bench.transaction_state is TransactionState.READY


@pytest.mark.parametrize("version", [1, 2])
async def test_block_aborts_and_raises_the_exception_of_its_body(bench: Bench) -> None:

    with pytest.raises(ZeroDivisionError) as caught:
        await leave_by_an_exception(bench)
    assert not hasattr(caught.value, "__notes__")
    assert [end.committed for end in bench.requests(EndTxnRequest)] == [False]
    async with bench.producer.transaction() as txn:
        assert (await txn.send("counts", b"2")).offset == 2, "after the abort marker"


async def test_abort_drops_unsent_records() -> None:
    async with transactional(linger_ms=60_000) as bench:
        txn = await bench.producer.begin()
        delivery = await txn.enqueue("counts", b"1")
        await txn.abort()
        assert isinstance(delivery.exception(), TransactionAbortableError)
        assert bench.values("counts") == []
        await bench.producer.flush()


async def test_abort_waits_for_records_in_flight(bench: Bench) -> None:
    hold = bench.hold(error="NOT_LEADER_OR_FOLLOWER")
    txn = await bench.producer.begin()
    delivery = await txn.enqueue("counts", b"1")
    await settle()
    aborting = asyncio.ensure_future(txn.abort())
    await settle()
    assert requests_after_init(bench) == ["Produce"]
    hold.release()
    await aborting
    # The failed batch was not retried.
    assert requests_after_init(bench) == ["Produce", "EndTxn"]
    assert isinstance(delivery.exception(), TransactionAbortableError)


@pytest_asyncio.fixture
async def consumer(bench: Bench) -> AsyncGenerator[Consumer]:
    """Yield a group member that has returned a record and not committed its offset."""
    await bench.cluster.create_topic("words")
    async with bench.memory.producer() as producer:
        await producer.send("words", b"a")
    options: dict[str, Any] = {"group_id": "counters", "auto_offset_reset": "earliest"}
    async with bench.memory.consumer("words", enable_auto_commit=False, **options) as consumer:
        assert len(await consumer.poll(timeout=10)) == 1
        yield consumer


async def test_marks_offsets_of_a_consumer_once_committed(bench: Bench, consumer: Consumer) -> None:
    offsets = consumer.__offset_source__().uncommitted()
    assert [place.offset for place in offsets.values()] == [1]
    txn = await bench.producer.begin()
    await txn.commit_offsets(consumer)
    assert consumer.__offset_source__().uncommitted() == offsets
    await txn.commit()
    assert consumer.__offset_source__().uncommitted() == {}
    (request,) = bench.requests(TxnOffsetCommitRequest)
    member = consumer.group_metadata()
    assert (request.group_id, request.member_id) == ("counters", member.member_id)
    assert request.generation_id_or_member_epoch == member.generation_id > 0
    assert request.member_id


async def test_does_not_mark_offsets_of_an_aborted_transaction(
    bench: Bench, consumer: Consumer
) -> None:
    offsets = consumer.__offset_source__().uncommitted()
    txn = await bench.producer.begin()
    await txn.commit_offsets(consumer)
    await txn.abort()
    assert consumer.__offset_source__().uncommitted() == offsets != {}


async def test_consumer_without_new_positions_commits_no_offsets(
    bench: Bench, consumer: Consumer
) -> None:
    await consumer.commit()
    bench.memory.received[:] = [
        row for row in bench.memory.received if isinstance(row.request, InitProducerIdRequest)
    ][:1]
    async with bench.producer.transaction() as txn:
        await txn.commit_offsets(consumer)
    assert requests_after_init(bench) == []


@asynccontextmanager
async def commit_during_a_rebalance(
    bench: Bench, strategy: str, records: list[int]
) -> AsyncGenerator[tuple[Consumer, Consumer, Transaction, asyncio.Task[None]]]:
    """Let a second member join while the first one's TxnOffsetCommit request is in flight.

    Yields both members of group "counters", the open transaction and its `commit_offsets`, whose
    request with the former generation the coordinator handles when the body runs. `records` are
    the partitions of a topic of two that the first member has read a record of.
    """
    await bench.cluster.create_topic("words", 2)
    async with bench.memory.producer() as producer:
        for partition in records:
            await producer.send("words", b"a", partition=partition)
    options: dict[str, Any] = {
        "group_id": "counters",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "partition_assignment_strategy": [strategy],
    }
    first = bench.memory.consumer("words", **options)
    second = bench.memory.consumer("words", **options)
    async with first:
        read = 0
        while read < len(records):
            read += len(await first.poll(timeout=10))
        await first.poll(timeout=0)
        txn = await bench.open_transaction()
        held = bench.hold("TxnOffsetCommit")
        offsets = asyncio.ensure_future(txn.commit_offsets(first))
        await settle()
        async with second, asyncio.timeout(60):
            while not (len(first.assignment()) == len(second.assignment()) == 1):
                assert await first.poll(timeout=0.1) == []
                await second.poll(timeout=0.1)
            held.release()
            yield first, second, txn, offsets


async def test_sends_offsets_again_with_the_next_generation_after_a_cooperative_rebalance() -> None:
    async with (
        transactional() as bench,
        commit_during_a_rebalance(bench, "cooperative-sticky", [0]) as (member, _, txn, task),
    ):
        assert member.assignment() == {TopicPartition("words", 0)}  # it kept the partition
        await task
        await txn.commit()
        former, current = bench.requests(TxnOffsetCommitRequest)
        assert former.generation_id_or_member_epoch < current.generation_id_or_member_epoch
        assert current.generation_id_or_member_epoch == member.group_metadata().generation_id
        assert [end.committed for end in bench.requests(EndTxnRequest)] == [True]
        (row,) = (await member.committed()).values()
        assert row is not None
        assert row.offset == 1


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
async def test_member_that_lost_partitions_does_not_commit_with_the_next_generation(
    strategy: str,
) -> None:
    """It is still a member, so the coordinator would accept offsets of another's partitions."""
    async with (
        transactional() as bench,
        commit_during_a_rebalance(bench, strategy, [0, 1]) as (member, other, txn, task),
    ):
        former = bench.requests(TxnOffsetCommitRequest)[0].member_id
        assert member.group_metadata().member_id == former
        with pytest.raises(TransactionAbortableError) as raised:
            await task
        assert isinstance(raised.value.__cause__, IllegalGenerationError)
        assert len(bench.requests(TxnOffsetCommitRequest)) == 1
        await txn.abort()
        committed = {**await member.committed(), **await other.committed()}
        assert list(committed.values()) == [None, None]


# -- calls out of order ---------------------------------------------------------------------------


async def test_transactional_producer_refuses_records_outside_a_transaction(bench: Bench) -> None:
    producer = bench.producer
    record = ProducerRecord("counts", b"1")
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "send": lambda: producer.send("counts", b"1"),
        "enqueue": lambda: producer.enqueue("counts", b"1"),
        "enqueue_nowait": lambda: producer.enqueue_nowait("counts", b"1"),
        "send_many": lambda: producer.send_many("counts", [b"1"]),
        "send_records": lambda: producer.send_records([record]),
        "send_batch": lambda: producer.send_batch(
            TopicPartition("counts", 0), RecordBatch.build([record])
        ),
        "send_arrow": lambda: producer.send_arrow(pa.table({"value": [b"1"]}), "counts"),
    }
    assert calls.keys() == {n for n in dir(RecordWriter) if n.startswith(("send", "enqueue"))}
    for begun in (False, True):
        txn = await producer.begin() if begun else None
        for name, call in calls.items():
            with pytest.raises(IllegalStateError, match=r"use txn\.send") as caught:
                await call()
            assert re.search(rf"\b{name}\b", str(caught.value))
        if txn is not None:
            await txn.abort()


async def test_ended_transaction_refuses_records_and_offsets(bench: Bench) -> None:
    txn = await bench.open_transaction()
    await txn.commit()
    for call in (txn.send("counts", b"2"), txn.commit(), txn.abort()):
        with pytest.raises(IllegalStateError, match="over"):
            await call
    following = await bench.producer.begin()
    with pytest.raises(IllegalStateError, match="over"):
        await txn.enqueue("counts", b"3")
    await following.abort()


async def test_refuses_transactions_without_transactional_id() -> None:
    async with Bench({"counts": [1]}) as bench:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            bench.producer.transaction()


# -- errors ---------------------------------------------------------------------------------------


async def commit_refused_record(bench: Bench, code: int) -> tuple[Transaction, KafkaError]:
    """Commit a transaction whose record is refused with a code; return it and the error."""
    bench.refuse(code)
    txn = await bench.producer.begin()
    await txn.enqueue("counts", b"1")
    with pytest.raises(KafkaError) as caught:
        await txn.commit()
    return txn, caught.value


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        *((TransactionAbortableError, code) for code in (-1, 45, 47, 48, 59, 120)),
        *((InvalidConfigurationError, code) for code in (10, 17, 29, 87)),
    ],
)
async def test_refused_record_can_be_aborted(
    bench: Bench, kind: type[KafkaError], code: int
) -> None:
    txn, error = await commit_refused_record(bench, code)
    assert isinstance(error, kind)
    assert isinstance(error.__cause__ or error, for_code(code))
    assert bench.transaction_state is TransactionState.ABORTABLE_ERROR
    await txn.abort()
    async with bench.producer.transaction() as txn:
        await txn.send("counts", b"2")


@pytest.mark.parametrize("code", [49, 90])
async def test_application_recoverable_error_fails_the_producer(bench: Bench, code: int) -> None:
    txn, error = await commit_refused_record(bench, code)
    assert isinstance(error, ApplicationRecoverableError)
    assert bench.transaction_state is TransactionState.FATAL_ERROR
    for call in (
        bench.producer.begin(),
        bench.producer.init_transactions(),
        txn.enqueue("counts", b"2"),
        txn.commit_offsets(OFFSETS, GROUP),
        txn.commit(),
        txn.abort(),
    ):
        with pytest.raises(ApplicationRecoverableError):
            await call


async def test_expired_record_makes_the_transaction_abortable() -> None:
    options: dict[str, Any] = {"delivery_timeout_ms": 10_000, "request_timeout_ms": 5_000}
    async with Bench({"counts": [-1]}, transactional_id="t", **options) as bench:
        txn = await bench.producer.begin()
        with pytest.raises(TransactionAbortableError) as caught:
            await txn.send("counts", b"1")
        assert isinstance(caught.value.__cause__, KafkaTimeoutError)
        with pytest.raises(TransactionAbortableError):
            await txn.enqueue("counts", b"2")
        await txn.abort()
        assert bench.transaction_state is TransactionState.READY


async def test_block_aborts_if_its_commit_fails(bench: Bench) -> None:
    bench.refuse("TRANSACTION_ABORTABLE")
    with pytest.raises(TransactionAbortableError):
        async with bench.producer.transaction() as txn:
            await txn.enqueue("counts", b"1")
    assert bench.transaction_state is TransactionState.READY


@pytest.mark.parametrize("code", [22, 25, 82])
async def test_fenced_consumer_fails_the_producer(bench: Bench, code: int) -> None:
    bench.faults.add(api="TxnOffsetCommit", error=code)
    txn = await bench.producer.begin()
    with pytest.raises(for_code(code)) as caught:
        await txn.commit_offsets(OFFSETS, GROUP)
    assert isinstance(caught.value, ApplicationRecoverableError)
    assert bench.transaction_state is TransactionState.FATAL_ERROR


@pytest.mark.parametrize("code", [3, 14, 15, 16, 51])
async def test_retries_retriable_errors_of_coordinators(code: int) -> None:
    async with transactional(1) as bench:
        for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
            bench.faults.add(api=api, error=code)
        txn = await bench.open_transaction()
        await txn.commit_offsets(OFFSETS, GROUP)
        await txn.commit()
        for kind in (
            AddPartitionsToTxnRequest,
            AddOffsetsToTxnRequest,
            TxnOffsetCommitRequest,
            EndTxnRequest,
        ):
            assert len(bench.requests(kind)) == 2, kind


@pytest.mark.parametrize(("code", "pauses"), [(51, 0.02 + 0.04 + 0.08), (15, 0.1 + 0.2 + 0.4)])
async def test_retries_soon_while_markers_are_written(code: int, pauses: float) -> None:
    async with transactional(1, linger_ms=0) as bench:
        bench.faults.add(api="AddPartitionsToTxn", error=code, count=3)
        begun = now()
        txn = await bench.open_transaction()
        took = now() - begun
        assert took == pytest.approx(pauses, rel=0.25)  # the jitter is 20 %
        await txn.commit()


async def test_fails_records_whose_partitions_cannot_be_added() -> None:
    async with transactional(1) as bench:
        bench.faults.add(api="AddPartitionsToTxn", error="TOPIC_AUTHORIZATION_FAILED")
        txn = await bench.producer.begin()
        with pytest.raises(for_code(29)):
            await txn.send("counts", b"1")
        await txn.abort()
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"2")


async def test_each_partition_is_added_once_per_transaction() -> None:
    """A duplicate request might be retried after the end of the transaction."""
    async with transactional(1, batch_size=100) as bench:
        held = bench.hold("AddPartitionsToTxn")
        txn = await bench.producer.begin()
        for _ in range(5):
            await txn.enqueue("counts", b"v" * 90)
            await settle()
        held.release()
        await txn.commit()
        assert len(bench.requests(AddPartitionsToTxnRequest)) == 1
        assert len(bench.values("counts")) == 5


async def test_partition_that_was_not_added_is_not_requested_again() -> None:
    async with transactional(1, batch_size=100) as bench:
        refused = bench.faults.add(api="AddPartitionsToTxn", error="TOPIC_AUTHORIZATION_FAILED")
        txn = await bench.producer.begin()
        deliveries = [await txn.enqueue("counts", b"v" * 90) for _ in range(5)]
        await refused.wait()
        await settle()
        assert all(isinstance(each.exception(), for_code(29)) for each in deliveries)
        with suppress(KafkaError):
            await bench.producer.flush()  # runs the sender
        await settle()
        await txn.abort()
        assert requests_after_init(bench) == ["AddPartitionsToTxn", "InitProducerId"]


async def test_abort_ends_the_retries_of_add_partitions() -> None:
    """A retry would open a transaction that no request ends."""
    async with transactional(1) as bench:
        refused = bench.faults.add(
            api="AddPartitionsToTxn", error="CONCURRENT_TRANSACTIONS", count=3
        )
        txn = await bench.producer.begin()
        await txn.enqueue("counts", b"1")
        await refused.wait()
        await settle()
        await txn.abort()
        await asyncio.sleep(90)  # transaction_timeout_ms is 60 s
        assert requests_after_init(bench) == ["AddPartitionsToTxn"]
        async with bench.producer.transaction() as following:
            await following.send("counts", b"2")
        assert bench.values("counts") == [b"2"]


@pytest.mark.parametrize("applied", [False, True])
async def test_abort_obtains_a_new_epoch_if_add_partitions_has_no_response(applied: bool) -> None:
    """The request may be handled after the abort."""
    async with transactional(1) as bench:
        held = bench.hold("AddPartitionsToTxn", applied=applied)
        txn = await bench.producer.begin()
        await txn.enqueue("counts", b"1")
        await held.wait()
        await settle()
        aborting = asyncio.ensure_future(txn.abort())
        await settle()
        held.release()
        await aborting
        assert set(requests_after_init(bench)[1:]) == {"InitProducerId"}
        async with bench.producer.transaction() as following:
            await following.send("counts", b"2")
        assert bench.values("counts") == [b"2"]


async def test_add_partitions_of_an_aborted_transaction_does_not_fail_the_next() -> None:
    """The abort obtains a new epoch, which a retry with the old one would not have."""
    async with transactional(1) as bench:
        txn = await bench.open_transaction()
        refused = bench.faults.add(
            api="AddPartitionsToTxn", error="COORDINATOR_LOAD_IN_PROGRESS", count=3
        )
        await txn.enqueue("lines", b"1")
        await refused.wait(3)
        await settle()
        bench.faults.add(api="EndTxn", disconnect="after")
        await txn.abort()
        assert requests_after_init(bench)[-1] == "InitProducerId"
        async with bench.producer.transaction() as following:
            await following.send("lines", b"2")
            await asyncio.sleep(5)  # longer than the back-off of the aborted transaction's request
        assert bench.values("lines") == [b"2"]


# -- initialising ---------------------------------------------------------------------------------


async def test_start_obtains_a_producer_id(bench: Bench) -> None:
    (request,) = bench.requests(InitProducerIdRequest)
    assert request.transactional_id == "t"
    assert (request.producer_id, request.producer_epoch) == (-1, -1)


async def test_init_transactions_sends_the_current_epoch(bench: Bench) -> None:
    await bench.producer.init_transactions()
    request = bench.requests(InitProducerIdRequest)[1]
    entry = bench.cluster.transactions.get("t")
    assert entry is not None
    assert (request.producer_id, request.producer_epoch) == (entry.producer_id, 0)


async def test_init_transactions_raises_if_the_producer_is_fenced(bench: Bench) -> None:
    async with bench.memory.producer(transactional_id="t"):
        pass
    with pytest.raises(ProducerFencedError):
        await bench.producer.init_transactions()
    assert bench.transaction_state is TransactionState.FATAL_ERROR


# -- outcomes that are unknown --------------------------------------------------------------------


async def test_commit_without_a_response_cannot_be_aborted() -> None:
    async with transactional(max_block_ms=5_000) as bench:
        txn = await bench.open_transaction()
        lost = disconnect_responses(bench, "EndTxn")
        with pytest.raises(TransactionOutcomeUnknownError) as caught:
            await txn.commit()
        assert isinstance(caught.value, ApplicationRecoverableError)
        for call in (txn.send("counts", b"2"), txn.abort(), bench.producer.begin()):
            with pytest.raises(IllegalStateError, match="outcome is unknown"):
                await call
        lost[0].remove()
        await txn.commit()
        assert bench.transaction_state is TransactionState.READY


@pytest.mark.parametrize("version", [1, 2])
async def test_init_transactions_ends_an_unknown_outcome(version: int) -> None:
    async with transactional(version, max_block_ms=5_000) as bench:
        txn = await bench.open_transaction()
        lost = disconnect_responses(bench, "EndTxn")
        with pytest.raises(TransactionOutcomeUnknownError):
            await txn.commit()
        lost[0].remove()
        await bench.producer.init_transactions()
        async with bench.producer.transaction() as again:
            await again.send("counts", b"2")


async def test_block_does_not_abort_an_unknown_outcome() -> None:
    async with transactional(max_block_ms=5_000) as bench:

        async def body() -> None:
            async with bench.producer.transaction() as txn:
                await txn.send("counts", b"1")
                disconnect_responses(bench, "EndTxn")

        with pytest.raises(TransactionOutcomeUnknownError):
            await body()
        assert all(end.committed for end in bench.requests(EndTxnRequest))


async def test_unsent_commit_can_be_aborted() -> None:
    topics = {"counts": [1], "lines": [2]}
    async with Bench(topics, transactional_id="wordcount-2", max_block_ms=5_000) as bench:
        coordinator = bench.memory.coordinator("wordcount-2")
        topic = next(name for name, leaders in topics.items() if leaders != [coordinator])
        txn = await bench.producer.begin()
        await txn.send(topic, b"1")
        await bench.memory.cut_off(coordinator)
        with pytest.raises(TransactionAbortableError):
            await txn.commit()
        assert bench.requests(EndTxnRequest) == []
        bench.memory.reconnect(coordinator)
        await txn.abort()
        assert bench.transaction_state is TransactionState.READY


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(("version", "epochs"), [(1, 2), (2, 1)])
async def test_version_1_needs_a_new_epoch_after_a_lost_end_txn(
    bench: Bench, epochs: int, applied: bool
) -> None:
    """A delayed EndTxn must not end the next transaction (Jepsen); only version 2 prevents that."""
    txn = await bench.open_transaction()
    bench.faults.add(api="EndTxn", disconnect="after" if applied else "before")
    await txn.commit()
    async with bench.producer.transaction() as txn:
        await txn.send("counts", b"2")
    assert len(bench.requests(InitProducerIdRequest)) == epochs


@pytest.mark.parametrize("version", [1, 2])
async def test_refused_abort_is_replaced_by_a_new_epoch(version: int) -> None:
    async with transactional(version, max_block_ms=5_000) as bench:
        txn = await bench.open_transaction()
        bench.faults.add(api="EndTxn", error="INVALID_TXN_STATE")
        await txn.abort()
        requests = requests_after_init(bench)
        ended = requests.index("EndTxn")
        assert set(requests[ended + 1 :]) == {"InitProducerId"}  # retried until markers are written
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"2")


async def test_end_txn_response_may_make_the_transaction_abortable(bench: Bench) -> None:
    txn = await bench.open_transaction()
    bench.faults.add(api="EndTxn", error="TRANSACTION_ABORTABLE")
    with pytest.raises(TransactionAbortableError):
        await txn.commit()
    assert bench.transaction_state is TransactionState.ABORTABLE_ERROR
    await txn.abort()


# -- cancellation ---------------------------------------------------------------------------------


async def test_cancelling_while_aborting_does_not_stop_the_abort(bench: Bench) -> None:
    slow = bench.hold("EndTxn")

    task = asyncio.ensure_future(leave_by_an_exception(bench))
    await settle()
    assert bench.transaction_state is TransactionState.ABORTING_TRANSACTION
    task.cancel()
    await settle()
    assert not task.done()
    slow.release()
    await asyncio.wait({task})
    assert task.cancelled()
    assert bench.transaction_state is TransactionState.READY


async def test_block_waits_for_its_abort_at_most_10_s(bench: Bench) -> None:
    for api in ("EndTxn", "InitProducerId"):
        bench.hold(api, count=None)

    with pytest.raises(ZeroDivisionError) as caught:
        await leave_by_an_exception(bench)
    assert now() == pytest.approx(10, abs=0.1)
    assert "continues in the background" in caught.value.__notes__[0]


async def test_sent_commit_cannot_be_aborted(bench: Bench) -> None:
    txn = await bench.open_transaction()
    held = bench.hold("EndTxn")
    commit = asyncio.ensure_future(txn.commit())
    await settle()
    with pytest.raises(IllegalStateError, match="being committed"):
        await txn.abort()
    held.release()
    await commit
    assert [end.committed for end in bench.requests(EndTxnRequest)] == [True]


async def test_cancelling_commit_offsets_requires_an_abort(bench: Bench) -> None:
    txn = await bench.producer.begin()
    bench.hold("TxnOffsetCommit")
    task = asyncio.ensure_future(txn.commit_offsets(OFFSETS, GROUP))
    await settle()
    task.cancel()
    await asyncio.wait({task})
    with pytest.raises(TransactionAbortableError, match="cancelled"):
        await txn.commit()
    await txn.abort()


async def test_emits_an_event_for_commit_and_abort(bench: Bench) -> None:
    events = bench.events(TransactionEnded)
    async with bench.producer.transaction() as txn:
        await txn.send("counts", b"1")
    await (await bench.open_transaction()).abort()
    assert [(event.transactional_id, event.committed) for event in events] == [
        ("t", True),
        ("t", False),
    ]


async def test_stop_aborts_an_open_transaction(bench: Bench) -> None:
    await bench.open_transaction()
    await bench.producer.stop()
    assert [end.committed for end in bench.requests(EndTxnRequest)] == [False]
    assert now() < 0.1


async def test_no_transaction_begins_while_the_producer_stops(bench: Bench) -> None:
    later = bench.producer.transaction()
    await bench.open_transaction()
    held = bench.hold("EndTxn")
    stopping = asyncio.ensure_future(bench.producer.stop())
    await settle()
    with pytest.raises(ApplicationRecoverableError, match="is closed"):
        await later.__aenter__()
    held.release()
    await stopping


@pytest.mark.parametrize("version", [1, 2])
async def test_begin_that_waits_for_a_cancelled_commit_fails_if_the_producer_stops(
    bench: Bench,
) -> None:
    txn = await bench.open_transaction()
    held = bench.hold("EndTxn", applied=True)
    task = asyncio.ensure_future(txn.commit())
    await settle()
    task.cancel()
    await asyncio.wait({task})
    beginning = asyncio.ensure_future(bench.producer.begin())
    await settle()
    stopping = asyncio.ensure_future(bench.producer.stop())
    await settle()
    held.release()
    with pytest.raises(ApplicationRecoverableError, match="is closed"):
        await beginning
    await stopping
    assert bench.values("counts") == [b"1"]
    assert bench.transaction_state is TransactionState.READY


async def test_start_raises_without_permission(bench: Bench) -> None:
    await bench.producer.stop()
    bench.renew()
    bench.faults.add(api="InitProducerId", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    with pytest.raises(for_code(53)):
        await bench.producer.start()


async def test_refuses_a_second_open_transaction(bench: Bench) -> None:
    txn = await bench.producer.begin()
    with pytest.raises(IllegalStateError, match=r"is open, .*: commit or abort it first"):
        await bench.producer.begin()
    await txn.send("counts", b"1")
    await txn.commit()


async def test_records_partitioned_after_a_refused_add_fail_at_once() -> None:
    """More records wait for metadata than one iteration of the event loop moves into batches."""
    async with transactional(1) as bench:
        await bench.cluster.create_topic("new", 1)
        bench.faults.add(api="AddPartitionsToTxn", error="TOPIC_AUTHORIZATION_FAILED", count=None)
        txn = await bench.producer.begin()
        for _ in range(1_500):
            await txn.enqueue("new", b"v")
        with pytest.raises(for_code(29)):
            await txn.commit()
        assert now() < 1
