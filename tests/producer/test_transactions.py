"""Transactions: the state table, and the requests sent to coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

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
from kafka_async.producer.transaction_state import (
    EVENT_FOR_CATEGORY,
    STATE_ERRORS,
    TRANSITIONS,
    TransactionEvent,
    TransactionState,
    TransactionStateMachine,
)
from kafka_async.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
)
from kafka_async.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_async.protocol.messages.end_txn import EndTxnRequest
from kafka_async.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
)
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafka_async.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.embedded_client import settle
from tests.producer.bench import Bench

if TYPE_CHECKING:
    from kafka_async import Consumer
    from kafka_async.embedded.faults import Fault
    from kafka_async.producer.transaction import Transaction

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

TOPICS = {"counts": [1], "lines": [1]}
ENDS = ["InitProducerId", "EndTxn"]
CONVERSATION = ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", *ENDS]
OFFSETS = {TopicPartition("lines", 0): OffsetAndMetadata(5)}
GROUP = GroupMetadata("words")


def bench(v: int = 2, **options: Any) -> Bench:
    settings = {"transaction_version": v}
    return Bench(TOPICS, transactional_id="wordcount-1", settings=settings, **options)


def state(made: Bench) -> TransactionState:
    assert made.producer.transaction_manager is not None
    return made.producer.transaction_manager.state_machine.state


def requests_after_init(made: Bench) -> list[str]:
    """Return the names of the requests received after the first InitProducerId, in order."""
    received = [type(row.request).__name__.removesuffix("Request") for row in made.memory.received]
    names = [name for name in received if name in CONVERSATION]
    assert names[0] == "InitProducerId"
    return names[1:]


def versions(made: Bench, kind: type[Any]) -> set[int]:
    return {row.version for row in made.memory.received if isinstance(row.request, kind)}


def disconnect_responses(made: Bench, *apis: str) -> list[Fault]:
    """Reset the connection in place of every response of some APIs."""
    return [made.faults.add(api=api, disconnect="before", count=None) for api in apis]


# -- the table ------------------------------------------------------------------------------------


async def test_each_state_is_reachable_and_has_an_error_message() -> None:
    reached = {TransactionState.UNINITIALIZED} | set(TRANSITIONS.values())
    assert reached == set(TransactionState) == set(STATE_ERRORS)
    assert {event for _, event in TRANSITIONS} == set(TransactionEvent)


async def test_failed_state_accepts_only_fatal_errors() -> None:
    assert {event for at, event in TRANSITIONS if at is TransactionState.FAILED} == {
        TransactionEvent.FATAL
    }


async def test_unknown_outcome_allows_only_commit_and_init() -> None:
    allowed = {event for at, event in TRANSITIONS if at is TransactionState.OUTCOME_UNKNOWN}
    assert allowed == {TransactionEvent.COMMIT, TransactionEvent.INIT, TransactionEvent.FATAL}


async def test_sent_commit_cannot_be_aborted() -> None:
    assert (TransactionState.COMMIT_SENT, TransactionEvent.ABORT) not in TRANSITIONS
    assert (TransactionState.OUTCOME_UNKNOWN, TransactionEvent.ABORT) not in TRANSITIONS
    assert (TransactionState.OUTCOME_UNKNOWN, TransactionEvent.ABORTABLE) not in TRANSITIONS


async def test_illegal_call_raises_with_the_reason() -> None:
    machine = TransactionStateMachine(lambda state: None)
    with pytest.raises(IllegalStateError, match="no producer id yet"):
        machine.apply(TransactionEvent.BEGIN)
    assert machine.state is TransactionState.UNINITIALIZED


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


async def test_each_category_raised_by_calls_has_an_event() -> None:
    leaving = set(Category) - {Category.RETRIABLE, Category.REFRESH_RETRIABLE}
    assert set(EVENT_FOR_CATEGORY) == leaving


# -- the five calls -------------------------------------------------------------------------------


async def test_version_2_sends_only_end_txn() -> None:
    async with bench() as made:
        txn = await made.producer.begin()
        await txn.enqueue("counts", b"1")
        await txn.commit_offsets(OFFSETS, GROUP)
        await txn.commit()
        assert requests_after_init(made) == ["TxnOffsetCommit", "Produce", "EndTxn"]
        assert versions(made, TxnOffsetCommitRequest) == {5}
        assert versions(made, EndTxnRequest) == {5}
        assert versions(made, ProduceRequest) == {13}
        assert made.values("counts") == [b"1"]
        assert state(made) is TransactionState.READY


async def test_version_1_adds_partitions_and_offsets_first() -> None:
    async with bench(v=1) as made:
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        await txn.commit_offsets(OFFSETS, GROUP)
        await txn.send("counts", b"2")
        await txn.commit()
        assert requests_after_init(made) == [
            "AddPartitionsToTxn",
            "Produce",
            "AddOffsetsToTxn",
            "TxnOffsetCommit",
            "Produce",
            "EndTxn",
        ]
        assert versions(made, AddPartitionsToTxnRequest) == {3}
        assert versions(made, TxnOffsetCommitRequest) == {4}
        assert versions(made, EndTxnRequest) == {4}
        assert versions(made, ProduceRequest) == {11}


@pytest.mark.parametrize("v", [1, 2])
async def test_block_commits_at_its_end(v: int) -> None:
    async with bench(v) as made:
        for number in range(3):
            async with made.producer.transaction() as txn:
                await txn.enqueue("counts", b"%d" % number)
        assert [end.committed for end in made.requests(EndTxnRequest)] == [True] * 3
        assert made.values("counts") == [b"0", b"1", b"2"]


async def test_version_2_bumps_the_epoch_per_transaction() -> None:
    async with bench() as made:
        for _ in range(2):
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"a")
                await txn.send("counts", b"b")
        headers = [batch.header for batch in made.batches("counts")]
        assert [(h.producer_epoch, h.base_sequence) for h in headers] == [
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 1),
        ]
        assert all(header.is_transactional for header in headers)


async def test_version_1_continues_sequences() -> None:
    async with bench(v=1) as made:
        for _ in range(2):
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"a")
        headers = [batch.header for batch in made.batches("counts")]
        assert [(h.producer_epoch, h.base_sequence) for h in headers] == [(0, 0), (0, 1)]
        # Each transaction adds its partitions.
        assert len(made.requests(AddPartitionsToTxnRequest)) == 2


@pytest.mark.parametrize("v", [1, 2])
async def test_transaction_without_records_sends_no_request(v: int) -> None:
    async with bench(v) as made:
        async with made.producer.transaction():
            pass
        txn = await made.producer.begin()
        await txn.abort()
        assert requests_after_init(made) == []
        assert state(made) is TransactionState.READY


@pytest.mark.parametrize("v", [1, 2])
async def test_block_aborts_and_raises_the_exception_of_its_body(v: int) -> None:
    async with bench(v) as made:

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            await body()
        assert not hasattr(caught.value, "__notes__")
        assert [end.committed for end in made.requests(EndTxnRequest)] == [False]
        async with made.producer.transaction() as txn:
            assert (await txn.send("counts", b"2")).offset == 2, "after the abort marker"


async def test_abort_drops_unsent_records() -> None:
    async with bench(linger_ms=60_000) as made:
        txn = await made.producer.begin()
        delivery = await txn.enqueue("counts", b"1")
        await txn.abort()
        assert isinstance(delivery.exception(), TransactionAbortableError)
        assert made.values("counts") == []
        await made.producer.flush()


async def test_abort_waits_for_records_in_flight() -> None:
    async with bench() as made:
        hold = made.hold(error="NOT_LEADER_OR_FOLLOWER")
        txn = await made.producer.begin()
        delivery = await txn.enqueue("counts", b"1")
        await settle()
        aborting = asyncio.ensure_future(txn.abort())
        await settle()
        assert requests_after_init(made) == ["Produce"]
        hold.release()
        await aborting
        # The failed batch was not retried.
        assert requests_after_init(made) == ["Produce", "EndTxn"]
        assert isinstance(delivery.exception(), TransactionAbortableError)


@asynccontextmanager
async def consumer_of(made: Bench) -> AsyncGenerator[Consumer]:
    """Yield a group member that has returned a record and not committed its offset."""
    await made.cluster.create_topic("words")
    async with made.memory.producer() as producer:
        await producer.send("words", b"a")
    options: dict[str, Any] = {"group_id": "counters", "auto_offset_reset": "earliest"}
    async with made.memory.consumer("words", enable_auto_commit=False, **options) as consumer:
        assert len(await consumer.poll(timeout=10)) == 1
        yield consumer


async def test_marks_offsets_of_a_consumer_once_committed() -> None:
    async with bench() as made, consumer_of(made) as consumer:
        offsets = consumer.uncommitted()
        assert [place.offset for place in offsets.values()] == [1]
        txn = await made.producer.begin()
        await txn.commit_offsets(consumer)
        assert consumer.uncommitted() == offsets
        await txn.commit()
        assert consumer.uncommitted() == {}
        (request,) = made.requests(TxnOffsetCommitRequest)
        member = consumer.group_metadata()
        assert (request.group_id, request.member_id) == ("counters", member.member_id)
        assert request.generation_id_or_member_epoch == member.generation_id > 0
        assert request.member_id


async def test_does_not_mark_offsets_of_an_aborted_transaction() -> None:
    async with bench() as made, consumer_of(made) as consumer:
        offsets = consumer.uncommitted()
        txn = await made.producer.begin()
        await txn.commit_offsets(consumer)
        await txn.abort()
        assert consumer.uncommitted() == offsets != {}


async def test_consumer_without_new_positions_commits_no_offsets() -> None:
    async with bench() as made, consumer_of(made) as consumer:
        await consumer.commit()
        made.memory.received[:] = [
            row for row in made.memory.received if isinstance(row.request, InitProducerIdRequest)
        ][:1]
        async with made.producer.transaction() as txn:
            await txn.commit_offsets(consumer)
        assert requests_after_init(made) == []


@asynccontextmanager
async def commit_during_a_rebalance(
    made: Bench, strategy: str, records: list[int]
) -> AsyncGenerator[tuple[Consumer, Consumer, Transaction, asyncio.Task[None]]]:
    """Let a second member join while the first one's TxnOffsetCommit request is in flight.

    Yields both members of group "counters", the open transaction and its `commit_offsets`, whose
    request with the former generation the coordinator handles when the body runs. `records` are
    the partitions of a topic of two that the first member has read a record of.
    """
    await made.cluster.create_topic("words", 2)
    async with made.memory.producer() as producer:
        for partition in records:
            await producer.send("words", b"a", partition=partition)
    options: dict[str, Any] = {
        "group_id": "counters",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "partition_assignment_strategy": [strategy],
    }
    first = made.memory.consumer("words", **options)
    second = made.memory.consumer("words", **options)
    async with first:
        read = 0
        while read < len(records):
            read += len(await first.poll(timeout=10))
        await first.poll(timeout=0)
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        held = made.hold("TxnOffsetCommit")
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
        bench() as made,
        commit_during_a_rebalance(made, "cooperative-sticky", [0]) as (member, _, txn, task),
    ):
        assert member.assignment() == {TopicPartition("words", 0)}  # it kept the partition
        await task
        await txn.commit()
        former, current = made.requests(TxnOffsetCommitRequest)
        assert former.generation_id_or_member_epoch < current.generation_id_or_member_epoch
        assert current.generation_id_or_member_epoch == member.group_metadata().generation_id
        assert [end.committed for end in made.requests(EndTxnRequest)] == [True]
        (row,) = (await member.committed()).values()
        assert row is not None
        assert row.offset == 1


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
async def test_member_that_lost_partitions_does_not_commit_with_the_next_generation(
    strategy: str,
) -> None:
    """It is still a member, so the coordinator would accept offsets of another's partitions."""
    async with (
        bench() as made,
        commit_during_a_rebalance(made, strategy, [0, 1]) as (member, other, txn, task),
    ):
        former = made.requests(TxnOffsetCommitRequest)[0].member_id
        assert member.group_metadata().member_id == former
        with pytest.raises(TransactionAbortableError) as raised:
            await task
        assert isinstance(raised.value.__cause__, IllegalGenerationError)
        assert len(made.requests(TxnOffsetCommitRequest)) == 1
        await txn.abort()
        committed = {**await member.committed(), **await other.committed()}
        assert list(committed.values()) == [None, None]


# -- calls out of order ---------------------------------------------------------------------------


async def test_transactional_producer_refuses_records_outside_a_transaction() -> None:
    async with bench() as made:
        with pytest.raises(IllegalStateError, match="transaction"):
            await made.producer.send("counts", b"1")
        txn = await made.producer.begin()
        with pytest.raises(IllegalStateError, match="transaction"):
            made.producer.enqueue_nowait("counts", b"1")
        await txn.abort()


async def test_refuses_a_second_open_transaction() -> None:
    async with bench() as made:
        txn = await made.producer.begin()
        with pytest.raises(IllegalStateError, match="a transaction is open"):
            await made.producer.begin()
        await txn.send("counts", b"1")
        await txn.commit()


async def test_ended_transaction_refuses_records_and_offsets() -> None:
    async with bench() as made:
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        await txn.commit()
        for call in (txn.send("counts", b"2"), txn.commit(), txn.abort()):
            with pytest.raises(IllegalStateError, match="over"):
                await call
        following = await made.producer.begin()
        with pytest.raises(IllegalStateError, match="over"):
            await txn.enqueue("counts", b"3")
        await following.abort()


async def test_refuses_transactions_without_transactional_id() -> None:
    async with Bench(TOPICS) as made:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            made.producer.transaction()


# -- errors ---------------------------------------------------------------------------------------


async def commit_refused_record(made: Bench, code: int) -> KafkaError:
    """Return the error of committing a transaction whose record is refused with a code."""
    made.refuse(code)
    txn = await made.producer.begin()
    await txn.enqueue("counts", b"1")
    with pytest.raises(KafkaError) as caught:
        await txn.commit()
    return caught.value


@pytest.mark.parametrize("code", [48, 120])
async def test_abortable_produce_error_can_be_aborted(code: int) -> None:
    async with bench() as made:
        error = await commit_refused_record(made, code)
        assert isinstance(error, TransactionAbortableError)
        assert isinstance(error.__cause__ or error, for_code(code))
        assert state(made) is TransactionState.MUST_ABORT
        assert made.producer.current_transaction is not None
        await made.producer.current_transaction.abort()
        async with made.producer.transaction() as txn:
            await txn.send("counts", b"2")


@pytest.mark.parametrize("code", [10, 17, 29, 87])
async def test_producer_is_usable_after_a_configuration_error(code: int) -> None:
    async with bench() as made:
        error = await commit_refused_record(made, code)
        assert isinstance(error, InvalidConfigurationError)
        assert error.category is Category.INVALID_CONFIGURATION
        assert made.producer.current_transaction is not None
        await made.producer.current_transaction.abort()
        async with made.producer.transaction() as txn:
            await txn.send("counts", b"2")


@pytest.mark.parametrize("code", [-1, 45, 47, 49, 59, 90])
async def test_application_recoverable_error_fails_the_producer(code: int) -> None:
    async with bench() as made:
        error = await commit_refused_record(made, code)
        assert isinstance(error, ApplicationRecoverableError)
        assert state(made) is TransactionState.FAILED
        with pytest.raises(ApplicationRecoverableError):
            await made.producer.begin()
        assert made.producer.current_transaction is not None
        with pytest.raises(ApplicationRecoverableError):
            await made.producer.current_transaction.abort()


async def test_expired_record_makes_the_transaction_abortable() -> None:
    options: dict[str, Any] = {"delivery_timeout_ms": 10_000, "request_timeout_ms": 5_000}
    async with Bench({"counts": [-1]}, transactional_id="wordcount-1", **options) as made:
        txn = await made.producer.begin()
        with pytest.raises(TransactionAbortableError) as caught:
            await txn.send("counts", b"1")
        assert isinstance(caught.value.__cause__, KafkaTimeoutError)
        with pytest.raises(TransactionAbortableError):
            await txn.enqueue("counts", b"2")
        await txn.abort()
        assert state(made) is TransactionState.READY


async def test_block_aborts_if_its_commit_fails() -> None:
    async with bench() as made:
        made.refuse("TRANSACTION_ABORTABLE")
        with pytest.raises(TransactionAbortableError):
            async with made.producer.transaction() as txn:
                await txn.enqueue("counts", b"1")
        assert state(made) is TransactionState.READY


@pytest.mark.parametrize("code", [22, 25, 82])
async def test_fenced_consumer_fails_the_producer(code: int) -> None:
    async with bench() as made:
        made.faults.add(api="TxnOffsetCommit", error=code)
        txn = await made.producer.begin()
        with pytest.raises(for_code(code)) as caught:
            await txn.commit_offsets(OFFSETS, GROUP)
        assert isinstance(caught.value, ApplicationRecoverableError)
        assert state(made) is TransactionState.FAILED


@pytest.mark.parametrize("code", [3, 14, 15, 16, 51])
async def test_retries_retriable_errors_of_coordinators(code: int) -> None:
    async with bench(v=1) as made:
        for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
            made.faults.add(api=api, error=code)
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        await txn.commit_offsets(OFFSETS, GROUP)
        await txn.commit()
        for kind in (
            AddPartitionsToTxnRequest,
            AddOffsetsToTxnRequest,
            TxnOffsetCommitRequest,
            EndTxnRequest,
        ):
            assert len(made.requests(kind)) == 2, kind


@pytest.mark.parametrize(("code", "pauses"), [(51, 0.02 + 0.04 + 0.08), (15, 0.1 + 0.2 + 0.4)])
async def test_retries_soon_while_markers_are_written(code: int, pauses: float) -> None:
    async with bench(v=1, linger_ms=0) as made:
        made.faults.add(api="AddPartitionsToTxn", error=code, count=3)
        begun = asyncio.get_running_loop().time()
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        took = asyncio.get_running_loop().time() - begun
        assert took == pytest.approx(pauses, rel=0.25)  # the jitter is 20 %
        await txn.commit()


async def test_fails_records_whose_partitions_cannot_be_added() -> None:
    async with bench(v=1) as made:
        made.faults.add(api="AddPartitionsToTxn", error="TOPIC_AUTHORIZATION_FAILED")
        txn = await made.producer.begin()
        with pytest.raises(for_code(29)):
            await txn.send("counts", b"1")
        await txn.abort()
        async with made.producer.transaction() as txn:
            await txn.send("counts", b"2")


async def test_serializer_error_leaves_the_transaction_open() -> None:
    def broken(*_: object) -> bytes:
        raise ValueError("no such schema")

    async with bench(value_serializer=broken) as made:
        txn = await made.producer.begin()
        with pytest.raises(ApplicationRecoverableError):
            await txn.enqueue("counts", b"1")
        await txn.abort()


# -- initialising ---------------------------------------------------------------------------------


async def test_start_obtains_a_producer_id() -> None:
    async with bench() as made:
        (request,) = made.requests(InitProducerIdRequest)
        assert request.transactional_id == "wordcount-1"
        assert (request.producer_id, request.producer_epoch) == (-1, -1)


async def test_start_raises_without_permission() -> None:
    async with bench() as made:
        await made.producer.stop()
        made.renew()
        made.faults.add(api="InitProducerId", error=53)
        with pytest.raises(for_code(53)):
            await made.producer.start()


async def test_init_transactions_sends_the_current_epoch() -> None:
    async with bench() as made:
        await made.producer.init_transactions()
        request = made.requests(InitProducerIdRequest)[1]
        entry = made.cluster.transactions.get("wordcount-1")
        assert entry is not None
        assert (request.producer_id, request.producer_epoch) == (entry.producer_id, 0)


async def test_init_transactions_raises_if_the_producer_is_fenced() -> None:
    async with bench() as made:
        async with made.memory.producer(transactional_id="wordcount-1"):
            pass
        with pytest.raises(ProducerFencedError):
            await made.producer.init_transactions()
        assert state(made) is TransactionState.FAILED


# -- outcomes that are unknown --------------------------------------------------------------------


async def committing(made: Bench) -> Any:
    txn = await made.producer.begin()
    await txn.send("counts", b"1")
    return txn


async def test_commit_without_a_response_cannot_be_aborted() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)
        lost = disconnect_responses(made, "EndTxn")
        with pytest.raises(TransactionOutcomeUnknownError) as caught:
            await txn.commit()
        assert isinstance(caught.value, ApplicationRecoverableError)
        for call in (txn.send("counts", b"2"), txn.abort(), made.producer.begin()):
            with pytest.raises(IllegalStateError, match="outcome is unknown"):
                await call
        lost[0].remove()
        await txn.commit()
        assert state(made) is TransactionState.READY


async def test_init_transactions_ends_an_unknown_outcome() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)
        lost = disconnect_responses(made, "EndTxn")
        with pytest.raises(TransactionOutcomeUnknownError):
            await txn.commit()
        lost[0].remove()
        await made.producer.init_transactions()
        async with made.producer.transaction() as again:
            await again.send("counts", b"2")


async def test_block_does_not_abort_an_unknown_outcome() -> None:
    async with bench(max_block_ms=5_000) as made:

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                disconnect_responses(made, "EndTxn")

        with pytest.raises(TransactionOutcomeUnknownError):
            await body()
        assert all(end.committed for end in made.requests(EndTxnRequest))


async def test_unsent_commit_can_be_aborted() -> None:
    topics = {"counts": [1], "lines": [2]}
    async with Bench(topics, transactional_id="wordcount-2", max_block_ms=5_000) as made:
        coordinator = made.cluster.coordinator_for("wordcount-2")
        assert coordinator is not None
        topic = next(name for name, leaders in topics.items() if leaders != [coordinator])
        txn = await made.producer.begin()
        await txn.send(topic, b"1")
        await made.memory.cut_off(coordinator)
        with pytest.raises(TransactionAbortableError):
            await txn.commit()
        assert made.requests(EndTxnRequest) == []
        made.memory.reconnect(coordinator)
        await txn.abort()
        assert state(made) is TransactionState.READY


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(("v", "epochs"), [(1, 2), (2, 1)])
async def test_version_1_needs_a_new_epoch_after_a_lost_end_txn(
    v: int, epochs: int, applied: bool
) -> None:
    """A delayed EndTxn must not end the next transaction (Jepsen); only version 2 prevents that."""
    async with bench(v) as made:
        txn = await committing(made)
        made.faults.add(api="EndTxn", disconnect="after" if applied else "before")
        await txn.commit()
        async with made.producer.transaction() as txn:
            await txn.send("counts", b"2")
        assert len(made.requests(InitProducerIdRequest)) == epochs


async def test_refused_abort_is_replaced_by_a_new_epoch() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)
        made.faults.add(api="EndTxn", error="INVALID_TXN_STATE")
        await txn.abort()
        produced, *others = requests_after_init(made)
        assert (produced, others[0]) == ("Produce", "EndTxn")
        assert set(others[1:]) == {"InitProducerId"}  # retried until the markers are written
        assert state(made) is TransactionState.READY


async def test_abort_never_raises_an_abortable_error() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)
        disconnect_responses(made, "EndTxn", "InitProducerId")
        with pytest.raises(ApplicationRecoverableError) as caught:
            await txn.abort()
        assert not isinstance(caught.value, TransactionAbortableError)
        assert state(made) is TransactionState.FAILED


async def test_end_txn_response_may_make_the_transaction_abortable() -> None:
    async with bench() as made:
        txn = await committing(made)
        made.faults.add(api="EndTxn", error="TRANSACTION_ABORTABLE")
        with pytest.raises(TransactionAbortableError):
            await txn.commit()
        assert state(made) is TransactionState.MUST_ABORT
        await txn.abort()


# -- cancellation ---------------------------------------------------------------------------------


async def test_cancelling_the_body_aborts() -> None:
    async with bench() as made:

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                await asyncio.sleep(1000)

        task = asyncio.ensure_future(body())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert [end.committed for end in made.requests(EndTxnRequest)] == [False]
        assert state(made) is TransactionState.READY


async def test_cancelling_while_aborting_does_not_stop_the_abort() -> None:
    async with bench() as made:
        slow = made.hold("EndTxn")

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                raise ZeroDivisionError

        task = asyncio.ensure_future(body())
        await settle()
        assert state(made) is TransactionState.ABORTING
        task.cancel()
        await settle()
        assert not task.done()
        slow.release()
        await asyncio.wait({task})
        assert task.cancelled()
        assert state(made) is TransactionState.READY


async def test_block_waits_for_its_abort_at_most_10_s() -> None:
    async with bench() as made:
        for api in ("EndTxn", "InitProducerId"):
            made.hold(api, count=None)

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            await body()
        assert asyncio.get_running_loop().time() == pytest.approx(10, abs=0.1)
        assert "continues in the background" in caught.value.__notes__[0]


async def test_cancelling_a_commit_before_end_txn_leaves_the_transaction_open() -> None:
    async with bench() as made:
        hold = made.hold()
        txn = await made.producer.begin()
        await txn.enqueue("counts", b"1")
        task = asyncio.ensure_future(txn.commit())
        await settle()
        task.cancel()
        await asyncio.wait({task})
        assert state(made) is TransactionState.IN_TRANSACTION
        hold.release()
        await txn.commit()
        assert state(made) is TransactionState.READY


async def test_cancelling_a_commit_after_end_txn_does_not_abort_it() -> None:
    async with bench() as made:
        txn = await committing(made)
        slow = made.hold("EndTxn", applied=True)
        task = asyncio.ensure_future(txn.commit())
        await settle()
        assert state(made) is TransactionState.COMMIT_SENT
        task.cancel()
        await asyncio.wait({task})
        assert state(made) is TransactionState.COMMIT_SENT
        again = asyncio.ensure_future(txn.commit())
        await settle()
        slow.release()
        await again
        assert len(made.requests(EndTxnRequest)) == 1
        assert state(made) is TransactionState.READY


async def test_cancelling_commit_offsets_requires_an_abort() -> None:
    async with bench() as made:
        txn = await made.producer.begin()
        made.hold("TxnOffsetCommit")
        task = asyncio.ensure_future(txn.commit_offsets(OFFSETS, GROUP))
        await settle()
        task.cancel()
        await asyncio.wait({task})
        with pytest.raises(TransactionAbortableError, match="cancelled"):
            await txn.commit()
        await txn.abort()


async def test_stop_aborts_an_open_transaction() -> None:
    async with bench() as made:
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        await made.producer.stop()
        assert [end.committed for end in made.requests(EndTxnRequest)] == [False]
