"""Transactions: the table, and what is said to coordinators that answer from a script."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kafka_async.errors import (
    ApplicationRecoverableError,
    Category,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    for_code,
)
from kafka_async.producer.transactions import (
    EVENT_OF_CATEGORY,
    REASONS,
    TRANSITIONS,
    Event,
    State,
    TransactionMachine,
)
from kafka_async.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kafka_async.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_async.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_async.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafka_async.records.batch import iter_batches
from kafka_async.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.producer.scripted import (
    Answer,
    Bench,
    Reply,
    add_partitions_response,
    offsets_response,
    turns,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

TOPICS = {"counts": [1]}
LOST = KafkaConnectionError("the connection was lost")
OFFSETS = {TopicPartition("lines", 0): OffsetAndMetadata(5)}
GROUP = GroupMetadata("words", 3, "member-1")


def bench(v: int = 2, **options: Any) -> Bench:
    made = Bench(TOPICS, transactional_id="wordcount-1", **options)
    made.features = {"transaction.version": v}
    return made


def state(made: Bench) -> State:
    assert made.producer.driver is not None
    return made.producer.driver.machine.state


def conversation(made: Bench) -> list[str]:
    """The kinds of requests that were sent after the first InitProducerId, in order."""
    names = [type(request).__name__.removesuffix("Request") for _, request, _ in made.cluster.sent]
    assert names[0] == "InitProducerId"
    return names[1:]


def versions(made: Bench, kind: type[Any]) -> set[int | None]:
    return {version for _, request, version in made.cluster.sent if isinstance(request, kind)}


class Source:
    """A consumer, as far as a transaction sees it."""

    def __init__(self) -> None:
        self.offsets: Mapping[TopicPartition, OffsetAndMetadata] = OFFSETS
        self.marked: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def uncommitted(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.offsets

    def group_metadata(self) -> GroupMetadata:
        return GROUP

    async def next_generation(self, former: GroupMetadata, timeout: float) -> GroupMetadata | None:
        return None

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.marked.append(offsets)


# -- the table ------------------------------------------------------------------------------------


async def test_every_state_can_be_reached_and_has_a_reason() -> None:
    reached = {State.UNINITIALIZED} | set(TRANSITIONS.values())
    assert reached == set(State) == set(REASONS)
    assert {event for _, event in TRANSITIONS} == set(Event)


async def test_only_a_fatal_error_follows_failure() -> None:
    assert {event for at, event in TRANSITIONS if at is State.FAILED} == {Event.FATAL}


async def test_an_unknown_outcome_allows_commit_and_init_only() -> None:
    allowed = {event for at, event in TRANSITIONS if at is State.OUTCOME_UNKNOWN}
    assert allowed == {Event.COMMIT, Event.INIT, Event.FATAL}


async def test_a_sent_commit_can_never_be_aborted() -> None:
    assert (State.COMMIT_SENT, Event.ABORT) not in TRANSITIONS
    assert (State.OUTCOME_UNKNOWN, Event.ABORT) not in TRANSITIONS
    assert (State.OUTCOME_UNKNOWN, Event.ABORTABLE) not in TRANSITIONS


async def test_a_missing_row_is_refused_with_the_reason() -> None:
    machine = TransactionMachine(lambda state: None)
    with pytest.raises(IllegalStateError, match="no producer id yet"):
        machine.apply(Event.BEGIN)
    assert machine.state is State.UNINITIALIZED


async def test_the_first_error_is_the_one_that_is_kept() -> None:
    machine = TransactionMachine(lambda state: None)
    for event in (Event.INIT, Event.INITIALIZED, Event.BEGIN):
        machine.apply(event)
    first, second = TransactionAbortableError("first"), TransactionAbortableError("second")
    machine.apply(Event.ABORTABLE, first)
    machine.apply(Event.ABORTABLE, second)
    assert machine.error is first
    machine.apply(Event.ABORT)
    machine.apply(Event.ENDED)
    assert (machine.state, machine.error) == (State.READY, None)


async def test_what_leaves_a_transaction_has_an_event() -> None:
    leaving = set(Category) - {Category.RETRIABLE, Category.REFRESH_RETRIABLE}
    assert set(EVENT_OF_CATEGORY) == leaving


# -- the five calls -------------------------------------------------------------------------------


async def test_version_2_needs_no_request_but_the_end() -> None:
    async with bench() as made:
        txn = await made.producer.begin()
        await txn.enqueue("counts", b"1")
        await txn.commit_offsets(OFFSETS, GROUP)
        await txn.commit()
        assert conversation(made) == ["TxnOffsetCommit", "Produce", "EndTxn"]
        assert versions(made, TxnOffsetCommitRequest) == {5}
        assert versions(made, EndTxnRequest) == {5}
        assert versions(made, ProduceRequest) == {12}
        assert made.cluster.log("counts").values == [b"1"]
        assert state(made) is State.READY


async def test_version_1_tells_the_coordinator_first() -> None:
    async with bench(v=1) as made:
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        await txn.commit_offsets(OFFSETS, GROUP)
        await txn.send("counts", b"2")
        await txn.commit()
        assert conversation(made) == [
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
async def test_a_block_commits_at_its_end(v: int) -> None:
    async with bench(v) as made:
        for number in range(3):
            async with made.producer.transaction() as txn:
                await txn.enqueue("counts", b"%d" % number)
        assert [end.committed for end in made.cluster.requests(EndTxnRequest)] == [True] * 3
        assert made.cluster.log("counts").values == [b"0", b"1", b"2"]


async def test_with_version_2_each_transaction_has_its_epoch() -> None:
    async with bench() as made:
        for _ in range(2):
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"a")
                await txn.send("counts", b"b")
        headers = [next(iter_batches(frame)).header for frame in made.cluster.log("counts").batches]
        assert [(h.producer_epoch, h.base_sequence) for h in headers] == [
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 1),
        ]
        assert all(header.is_transactional for header in headers)


async def test_with_version_1_sequences_go_on() -> None:
    async with bench(v=1) as made:
        for _ in range(2):
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"a")
        headers = [next(iter_batches(frame)).header for frame in made.cluster.log("counts").batches]
        assert [(h.producer_epoch, h.base_sequence) for h in headers] == [(0, 0), (0, 1)]
        # A partition belongs to one transaction: it is added to each.
        assert len(made.cluster.requests(AddPartitionsToTxnRequest)) == 2


@pytest.mark.parametrize("v", [1, 2])
async def test_a_transaction_without_records_says_nothing(v: int) -> None:
    async with bench(v) as made:
        async with made.producer.transaction():
            pass
        txn = await made.producer.begin()
        await txn.abort()
        assert conversation(made) == []
        assert state(made) is State.READY


@pytest.mark.parametrize("v", [1, 2])
async def test_an_exception_aborts_and_leaves_as_it_is(v: int) -> None:
    async with bench(v) as made:

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            await body()
        assert not hasattr(caught.value, "__notes__")
        assert [end.committed for end in made.cluster.requests(EndTxnRequest)] == [False]
        async with made.producer.transaction() as txn:
            assert (await txn.send("counts", b"2")).offset == 1


async def test_records_that_were_not_sent_are_dropped_by_an_abort() -> None:
    async with bench(linger_ms=60_000) as made:
        txn = await made.producer.begin()
        delivery = await txn.enqueue("counts", b"1")
        await txn.abort()
        assert isinstance(delivery.exception(), TransactionAbortableError)
        assert made.cluster.log("counts").values == []
        await made.producer.flush()


async def test_records_on_the_wire_are_waited_for_by_an_abort() -> None:
    async with bench() as made:
        hold = asyncio.Event()
        made.cluster.script.append(Answer(hold=hold, code=6))
        txn = await made.producer.begin()
        delivery = await txn.enqueue("counts", b"1")
        await turns()
        aborting = asyncio.ensure_future(txn.abort())
        await turns()
        assert conversation(made) == ["Produce"]
        hold.set()
        await aborting
        # What came back was not sent again.
        assert conversation(made) == ["Produce", "EndTxn"]
        assert isinstance(delivery.exception(), TransactionAbortableError)


async def test_offsets_of_a_consumer_are_marked_when_they_are_committed() -> None:
    async with bench() as made:
        source = Source()
        txn = await made.producer.begin()
        await txn.commit_offsets(source)
        assert source.marked == []
        await txn.commit()
        assert source.marked == [OFFSETS]
        (request,) = made.cluster.requests(TxnOffsetCommitRequest)
        assert (request.group_id, request.member_id) == ("words", "member-1")
        assert request.generation_id_or_member_epoch == 3


async def test_offsets_of_an_aborted_transaction_are_not_marked() -> None:
    async with bench() as made:
        source = Source()
        txn = await made.producer.begin()
        await txn.commit_offsets(source)
        await txn.abort()
        assert source.marked == []


async def test_a_consumer_with_nothing_new_commits_nothing() -> None:
    async with bench() as made:
        source = Source()
        source.offsets = {}
        async with made.producer.transaction() as txn:
            await txn.commit_offsets(source)
        assert conversation(made) == []


# -- calls out of order ---------------------------------------------------------------------------


async def test_a_transactional_producer_sends_in_transactions_only() -> None:
    async with bench() as made:
        with pytest.raises(IllegalStateError, match="transaction"):
            await made.producer.send("counts", b"1")
        txn = await made.producer.begin()
        with pytest.raises(IllegalStateError, match="transaction"):
            made.producer.enqueue_nowait("counts", b"1")
        await txn.abort()


async def test_one_transaction_at_a_time() -> None:
    async with bench() as made:
        txn = await made.producer.begin()
        with pytest.raises(IllegalStateError, match="a transaction is open"):
            await made.producer.begin()
        await txn.send("counts", b"1")
        await txn.commit()


async def test_a_transaction_that_is_over_takes_nothing_more() -> None:
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


async def test_a_producer_without_transactional_id_has_no_transactions() -> None:
    async with Bench(TOPICS) as made:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            made.producer.transaction()


# -- errors ---------------------------------------------------------------------------------------


async def failing(made: Bench, code: int) -> KafkaError:
    """A transaction whose record is refused with a code; what commit raised."""
    made.cluster.script.append(Answer(code=code))
    txn = await made.producer.begin()
    await txn.enqueue("counts", b"1")
    with pytest.raises(KafkaError) as caught:
        await txn.commit()
    return caught.value


@pytest.mark.parametrize("code", [48, 120])
async def test_an_abortable_refusal_of_records_can_be_aborted(code: int) -> None:
    async with bench() as made:
        error = await failing(made, code)
        assert isinstance(error, TransactionAbortableError)
        assert isinstance(error.__cause__ or error, for_code(code))
        assert state(made) is State.MUST_ABORT
        assert made.producer.current is not None
        await made.producer.current.abort()
        async with made.producer.transaction() as txn:
            await txn.send("counts", b"2")


@pytest.mark.parametrize("code", [10, 17, 29, 87])
async def test_after_a_refusal_of_configuration_the_producer_goes_on(code: int) -> None:
    async with bench() as made:
        error = await failing(made, code)
        assert isinstance(error, InvalidConfigurationError)
        assert error.category is Category.INVALID_CONFIGURATION
        assert made.producer.current is not None
        await made.producer.current.abort()
        async with made.producer.transaction() as txn:
            await txn.send("counts", b"2")


@pytest.mark.parametrize("code", [-1, 45, 47, 49, 59, 90])
async def test_what_is_application_recoverable_ends_the_producer(code: int) -> None:
    async with bench() as made:
        error = await failing(made, code)
        assert isinstance(error, ApplicationRecoverableError)
        assert state(made) is State.FAILED
        with pytest.raises(ApplicationRecoverableError):
            await made.producer.begin()
        assert made.producer.current is not None
        with pytest.raises(ApplicationRecoverableError):
            await made.producer.current.abort()


async def test_a_record_that_times_out_makes_the_transaction_abortable() -> None:
    async with bench(delivery_timeout_ms=10_000, request_timeout_ms=5_000) as made:
        made.cluster.set_topic("counts", [-1])
        txn = await made.producer.begin()
        with pytest.raises(TransactionAbortableError) as caught:
            await txn.send("counts", b"1")
        assert isinstance(caught.value.__cause__, KafkaTimeoutError)
        with pytest.raises(TransactionAbortableError):
            await txn.enqueue("counts", b"2")
        await txn.abort()
        assert state(made) is State.READY


async def test_the_block_aborts_what_it_could_not_commit() -> None:
    async with bench() as made:
        made.cluster.script.append(Answer(code=120))
        with pytest.raises(TransactionAbortableError):
            async with made.producer.transaction() as txn:
                await txn.enqueue("counts", b"1")
        assert state(made) is State.READY


@pytest.mark.parametrize("code", [22, 25, 82])
async def test_a_fenced_consumer_ends_the_producer(code: int) -> None:
    async with bench() as made:
        made.cluster.replies.append(lambda request: offsets_response(request, code))
        txn = await made.producer.begin()
        with pytest.raises(for_code(code)) as caught:
            await txn.commit_offsets(OFFSETS, GROUP)
        assert isinstance(caught.value, ApplicationRecoverableError)
        assert state(made) is State.FAILED


@pytest.mark.parametrize("code", [3, 14, 15, 16, 51])
async def test_a_coordinator_in_trouble_is_asked_again(code: int) -> None:
    async with bench(v=1) as made:
        replies: list[Reply] = [
            lambda request: add_partitions_response(request, code),
            None,
            AddOffsetsToTxnResponse(error_code=code),
            None,
            lambda request: offsets_response(request, code),
            None,
            EndTxnResponse(error_code=code),
        ]
        made.cluster.replies += replies
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
            assert len(made.cluster.requests(kind)) == 2, kind


@pytest.mark.parametrize(("code", "pauses"), [(51, 0.02 + 0.04 + 0.08), (15, 0.1 + 0.2 + 0.4)])
async def test_the_markers_of_the_last_transaction_are_waited_for_shortly(
    code: int, pauses: float
) -> None:
    async with bench(v=1, linger_ms=0) as made:
        refused: Reply = lambda request: add_partitions_response(request, code)  # noqa: E731
        made.cluster.replies += [refused] * 3
        begun = asyncio.get_running_loop().time()
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        took = asyncio.get_running_loop().time() - begun
        assert took == pytest.approx(pauses, rel=0.25)  # the jitter is 20 %
        await txn.commit()


async def test_partitions_that_may_not_be_added_fail_their_records() -> None:
    async with bench(v=1) as made:
        made.cluster.replies.append(lambda request: add_partitions_response(request, 29))
        txn = await made.producer.begin()
        with pytest.raises(for_code(29)):
            await txn.send("counts", b"1")
        await txn.abort()
        async with made.producer.transaction() as txn:
            await txn.send("counts", b"2")


async def test_serializers_that_fail_leave_the_transaction_open() -> None:
    def broken(*_: object) -> bytes:
        raise ValueError("no such schema")

    async with bench(value_serializer=broken) as made:
        txn = await made.producer.begin()
        with pytest.raises(ApplicationRecoverableError):
            await txn.enqueue("counts", b"1")
        await txn.abort()


# -- initialising ---------------------------------------------------------------------------------


async def test_starting_gets_a_producer_id() -> None:
    async with bench() as made:
        (request,) = made.cluster.requests(InitProducerIdRequest)
        assert request.transactional_id == "wordcount-1"
        assert (request.producer_id, request.producer_epoch) == (-1, -1)


async def test_starting_without_permission_says_so() -> None:
    made = bench()
    made.replies = [InitProducerIdResponse(error_code=53)]
    with pytest.raises(for_code(53)):
        async with made:
            pass


async def test_initialising_again_offers_the_epoch_it_has() -> None:
    async with bench() as made:
        await made.producer.init_transactions()
        request = made.cluster.requests(InitProducerIdRequest)[1]
        assert (request.producer_id, request.producer_epoch) == (7, 0)


async def test_a_fenced_producer_learns_it_when_it_initialises() -> None:
    async with bench() as made:
        made.cluster.replies.append(InitProducerIdResponse(error_code=90))
        with pytest.raises(ProducerFencedError):
            await made.producer.init_transactions()
        assert state(made) is State.FAILED


# -- outcomes that are unknown --------------------------------------------------------------------


async def committing(made: Bench) -> Any:
    txn = await made.producer.begin()
    await txn.send("counts", b"1")
    return txn


async def test_a_commit_without_an_answer_is_never_abortable() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)
        made.cluster.replies.extend([LOST] * 100)
        with pytest.raises(TransactionOutcomeUnknownError) as caught:
            await txn.commit()
        assert isinstance(caught.value, ApplicationRecoverableError)
        for call in (txn.send("counts", b"2"), txn.abort(), made.producer.begin()):
            with pytest.raises(IllegalStateError, match="outcome is unknown"):
                await call
        made.cluster.replies.clear()
        await txn.commit()
        assert state(made) is State.READY


async def test_an_unknown_outcome_is_left_by_initialising_too() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)
        made.cluster.replies.extend([LOST] * 100)
        with pytest.raises(TransactionOutcomeUnknownError):
            await txn.commit()
        made.cluster.replies.clear()
        await made.producer.init_transactions()
        async with made.producer.transaction() as again:
            await again.send("counts", b"2")


async def test_the_block_leaves_an_unknown_outcome_alone() -> None:
    async with bench(max_block_ms=5_000) as made:

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                made.cluster.replies.extend([LOST] * 100)

        with pytest.raises(TransactionOutcomeUnknownError):
            await body()
        assert all(end.committed for end in made.cluster.requests(EndTxnRequest))


async def test_a_commit_that_was_never_sent_is_abortable() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)

        async def nobody(*_: Any, **__: Any) -> int:
            raise KafkaTimeoutError("no coordinator")

        good, made.cluster.coordinator = made.cluster.coordinator, nobody
        with pytest.raises(TransactionAbortableError):
            await txn.commit()
        made.cluster.coordinator = good
        await txn.abort()
        assert state(made) is State.READY


@pytest.mark.parametrize(("v", "epochs"), [(1, 2), (2, 1)])
async def test_with_version_1_a_lost_end_costs_an_epoch(v: int, epochs: int) -> None:
    """A delayed EndTxn must not end the next transaction (Jepsen): only version 2 sees to it."""
    async with bench(v) as made:
        txn = await committing(made)
        made.cluster.replies.append(LOST)
        await txn.commit()
        async with made.producer.transaction() as txn:
            await txn.send("counts", b"2")
        assert len(made.cluster.requests(InitProducerIdRequest)) == epochs


async def test_an_abort_that_nobody_answers_is_replaced_by_a_new_epoch() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)
        made.cluster.replies.append(EndTxnResponse(error_code=48))
        await txn.abort()
        assert conversation(made)[-2:] == ["EndTxn", "InitProducerId"]
        assert state(made) is State.READY


async def test_an_abort_never_asks_for_an_abort() -> None:
    async with bench(max_block_ms=5_000) as made:
        txn = await committing(made)
        made.cluster.replies.extend([LOST] * 200)
        with pytest.raises(ApplicationRecoverableError) as caught:
            await txn.abort()
        assert not isinstance(caught.value, TransactionAbortableError)
        assert state(made) is State.FAILED


async def test_an_answer_that_demands_an_abort_is_obeyed() -> None:
    async with bench() as made:
        txn = await committing(made)
        made.cluster.replies.append(EndTxnResponse(error_code=120))
        with pytest.raises(TransactionAbortableError):
            await txn.commit()
        assert state(made) is State.MUST_ABORT
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
        assert [end.committed for end in made.cluster.requests(EndTxnRequest)] == [False]
        assert state(made) is State.READY


async def test_cancelling_while_aborting_does_not_stop_the_abort() -> None:
    async with bench() as made:
        slow = asyncio.Event()

        async def slowly() -> None:
            await slow.wait()

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                made.cluster.replies.append(lambda request: slowly())
                raise ZeroDivisionError

        task = asyncio.ensure_future(body())
        await turns(50)
        assert state(made) is State.ABORTING
        task.cancel()
        await turns()
        assert not task.done()
        slow.set()
        await asyncio.wait({task})
        assert task.cancelled()
        assert state(made) is State.READY


async def test_leaving_does_not_wait_for_an_abort_for_ever() -> None:
    async with bench() as made:

        async def never() -> None:
            await asyncio.Event().wait()

        async def body() -> None:
            async with made.producer.transaction() as txn:
                await txn.send("counts", b"1")
                for _ in range(50):
                    made.cluster.replies.append(lambda request: never())
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            await body()
        assert asyncio.get_running_loop().time() == pytest.approx(10, abs=0.1)
        assert "goes on in the background" in caught.value.__notes__[0]
        made.cluster.replies.clear()


async def test_cancelling_a_commit_before_it_is_sent_takes_it_back() -> None:
    async with bench() as made:
        hold = asyncio.Event()
        made.cluster.script.append(Answer(hold=hold))
        txn = await made.producer.begin()
        await txn.enqueue("counts", b"1")
        task = asyncio.ensure_future(txn.commit())
        await turns()
        task.cancel()
        await asyncio.wait({task})
        assert state(made) is State.IN_TRANSACTION
        hold.set()
        await txn.commit()
        assert state(made) is State.READY


async def test_cancelling_a_commit_after_it_was_sent_leaves_it_to_the_coordinator() -> None:
    async with bench() as made:
        txn = await committing(made)
        slow = asyncio.Event()

        async def slowly() -> None:
            await slow.wait()

        made.cluster.replies.append(lambda request: slowly())
        task = asyncio.ensure_future(txn.commit())
        await turns()
        assert state(made) is State.COMMIT_SENT
        task.cancel()
        await asyncio.wait({task})
        assert state(made) is State.COMMIT_SENT
        again = asyncio.ensure_future(txn.commit())
        await turns()
        slow.set()
        await again
        assert len(made.cluster.requests(EndTxnRequest)) == 1
        assert state(made) is State.READY


async def test_cancelling_the_commit_of_offsets_forces_an_abort() -> None:
    async with bench() as made:
        txn = await made.producer.begin()

        async def never() -> None:
            await asyncio.Event().wait()

        made.cluster.replies.append(lambda request: never())
        task = asyncio.ensure_future(txn.commit_offsets(OFFSETS, GROUP))
        await turns()
        task.cancel()
        await asyncio.wait({task})
        with pytest.raises(TransactionAbortableError, match="cancelled"):
            await txn.commit()
        await txn.abort()


async def test_stopping_aborts_what_is_open() -> None:
    async with bench() as made:
        txn = await made.producer.begin()
        await txn.send("counts", b"1")
        await made.producer.stop()
        assert [end.committed for end in made.cluster.requests(EndTxnRequest)] == [False]
