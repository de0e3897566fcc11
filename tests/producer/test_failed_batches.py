"""Transactions with a failed batch: the error that is raised, and the producer afterwards.

Each error code meets a batch of a transaction, with batches in flight and queued behind it. Those
in flight come back out of order, which is a consequence: the first error is the one that is raised,
and an abort makes the producer usable. `tests/integration/test_java_producer.py` compares that with
Kafka's producer.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import errors
from kafka_async.errors import (
    ApplicationRecoverableError,
    Category,
    InvalidConfigurationError,
    KafkaError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
)
from kafka_async.producer.transactions.state import TransactionState
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.protocol.messages.produce import ProduceRequest
from tests.embedded_client import settle
from tests.producer.bench import GROUP, OFFSETS, Bench, transactional
from tests.producer.produce_errors import CASES, CODES, LAYOUTS, VERSIONS, Layout, handling_of
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.embedded.faults import Fault
    from kafka_async.producer.producer import Producer
    from kafka_async.producer.transactions.transaction import Transaction
    from kafka_async.types import RecordMetadata

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

CLASSES = {
    Category.ABORTABLE: TransactionAbortableError,
    Category.APPLICATION_RECOVERABLE: ApplicationRecoverableError,
    Category.INVALID_CONFIGURATION: InvalidConfigurationError,
}
RETRIED_WITHOUT_TRANSACTION = (
    errors.OutOfOrderSequenceError.code,
    errors.UnknownProducerIdError.code,
)
"""Codes after which a producer without transactions bumps its epoch and sends the batch again."""


def case_id(part: int | Layout) -> str:
    return "-".join(map(str, part)) if isinstance(part, Layout) else str(part)


def one_record_per_batch(layout: Layout, version: int, **options: Any) -> Bench:
    in_flight = 1 + layout.behind
    return transactional(
        version, batch_size=0, max_in_flight_requests_per_connection=in_flight, **options
    )


async def refuse_batch(
    bench: Bench, txn: Transaction, code: int, layout: Layout
) -> list[RecordMetadata | BaseException]:
    """Send records of which one is refused; return the outcomes from that one on."""
    for _ in range(layout.before):
        await txn.send("counts", b"before")
    written = code == errors.DuplicateSequenceError.code
    held = bench.hold("Produce", error=code, applied=written)
    sent = bench.sent
    deliveries = [
        await txn.enqueue("counts", b"%01000d" % number)  # each in a batch
        for number in range(1 + layout.behind + layout.queued)
    ]
    await settle()
    assert bench.sent == sent + 1 + layout.behind
    held.release()
    return await asyncio.gather(*deliveries, return_exceptions=True)


async def check_refused_batch(code: int, layout: Layout, version: int, **options: Any) -> None:
    """Check the first error of a transaction in all calls, and the next transaction."""
    category = handling_of(code)
    async with one_record_per_batch(layout, version, **options) as bench:
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"earlier")
        txn = await bench.producer.begin()
        outcomes = await refuse_batch(bench, txn, code, layout)
        if category is None:
            assert not any(isinstance(outcome, BaseException) for outcome in outcomes)
            await txn.commit()
        else:
            first = outcomes[0]
            assert isinstance(first, CLASSES[category])
            assert first.category is category
            assert code in (first.code, getattr(first.__cause__, "code", None))
            assert all(outcome is first for outcome in outcomes)
            # Nothing was sent after the error.
            assert len(bench.requests(ProduceRequest)) == 1 + layout.before + 1 + layout.behind
            for call in (txn.enqueue("counts", b"more"), txn.commit()):
                with pytest.raises(KafkaError) as caught:
                    await call
                assert caught.value is first
        if category is Category.APPLICATION_RECOVERABLE:
            assert bench.transaction_state is TransactionState.FATAL_ERROR
            return
        if category is not None:
            await txn.abort()
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"next")
        assert bench.values("counts")[-1] == b"next"


async def test_first_error_of_a_transaction_is_raised_everywhere() -> None:
    for code, layout, version in CASES:
        with row(code, layout, version):
            await check_refused_batch(code, layout, version)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_first_error_of_every_code_is_raised_everywhere(layout: Layout, version: int) -> None:
    for code in CODES:
        await check_refused_batch(code, layout, version)


# -- brokers before KIP-360, where a request cannot contain the epoch that it replaces -------------

BEFORE_KIP_360 = {"api_versions": {InitProducerIdRequest.API_KEY: (0, 2)}}


@pytest.mark.parametrize("code", [errors.RecordTooLargeError.code, errors.UnknownServerError.code])
async def test_refused_batch_leaves_the_producer_usable_before_kip_360(code: int) -> None:
    for layout in LAYOUTS[::4]:  # the first, a middle one, the last
        await check_refused_batch(code, layout, 1, settings=BEFORE_KIP_360)


async def test_commit_whose_response_was_lost_leaves_the_producer_usable_before_kip_360() -> None:
    async with transactional(1, settings=BEFORE_KIP_360) as bench:
        txn = await bench.open_transaction()
        bench.faults.add(api="EndTxn", disconnect="after")
        await txn.commit()
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"next")


async def test_refused_abort_fences_no_new_producer_before_kip_360() -> None:
    """Without the epoch, a request for another one would."""
    async with transactional(1, settings=BEFORE_KIP_360) as bench:
        txn = await bench.open_transaction()
        bench.faults.add(api="EndTxn", error="UNKNOWN_SERVER_ERROR")
        with pytest.raises(ApplicationRecoverableError) as caught:
            await txn.abort()
        assert isinstance(caught.value.__cause__, errors.UnknownServerError)
        assert len(bench.requests(InitProducerIdRequest)) == 1


async def test_producer_whose_transaction_timed_out_is_fenced_before_kip_360() -> None:
    async with transactional(1, transaction_timeout_ms=10_000, settings=BEFORE_KIP_360) as bench:
        txn = await time_out(bench)
        with pytest.raises(errors.ProducerFencedError):
            await txn.abort()


async def test_refused_batch_without_transaction_fails_alone() -> None:
    for code, layout in zip(CODES, cycle(LAYOUTS), strict=False):
        with row(code, layout):
            await check_refused_batch_without_transaction_fails_alone(code, layout)


async def check_refused_batch_without_transaction_fails_alone(code: int, layout: Layout) -> None:
    in_flight = 1 + layout.behind
    options: dict[str, Any] = {"batch_size": 0, "max_in_flight_requests_per_connection": in_flight}
    async with Bench({"counts": [1]}, **options) as bench:
        await bench.producer.send("counts", b"earlier")
        written = code == errors.DuplicateSequenceError.code
        held = bench.hold("Produce", error=code, applied=written)
        values = [b"%01000d" % number for number in range(in_flight + layout.queued)]
        deliveries = [await bench.producer.enqueue("counts", value) for value in values]
        await settle()
        held.release()
        first, *others = await asyncio.gather(*deliveries, return_exceptions=True)
        delivered = handling_of(code) is None or code in RETRIED_WITHOUT_TRANSACTION
        assert isinstance(first, KafkaError) is not delivered
        if isinstance(first, KafkaError):
            assert first.code == code
        assert not [each for each in others if isinstance(each, BaseException)]
        assert bench.values("counts") == [b"earlier", *values[not delivered :]]


@pytest.mark.parametrize("version", [1, 2])
async def test_refused_batch_fails_records_of_other_partitions(version: int) -> None:
    async with transactional(version) as bench:
        txn = await bench.producer.begin()
        await txn.send("lines", b"written")
        bench.faults.add(api="Produce", topic="counts", error="INVALID_RECORD")
        held = bench.hold("Produce", topic="lines", error="NOT_ENOUGH_REPLICAS")
        retried = await txn.enqueue("lines", b"to be retried")
        await settle()
        refused = await txn.enqueue("counts", b"refused")
        held.release()
        outcomes = await asyncio.gather(refused, retried, return_exceptions=True)
        assert isinstance(outcomes[0], InvalidConfigurationError)
        await txn.abort()


# -- other calls that find the error ---------------------------------------------------------------


async def refuse_while_another_hangs(bench: Bench) -> tuple[Transaction, Fault]:
    """Open a transaction with a batch of "lines" in flight, and one of "counts" that is refused."""
    txn = await bench.producer.begin()
    held = bench.hold("Produce", topic="lines", broker=2)
    await txn.enqueue("lines", b"v" * 900)
    await settle()
    bench.faults.add(api="Produce", topic="counts", error="INVALID_RECORD", delay=1)
    await txn.enqueue("counts", b"refused")
    return txn, held


def two_brokers(**options: Any) -> Bench:
    return Bench({"counts": [1], "lines": [2]}, transactional_id="t", **options)


async def test_commit_that_is_out_of_time_raises_the_first_error() -> None:
    async with two_brokers() as bench:
        txn, held = await refuse_while_another_hangs(bench)
        with pytest.raises(InvalidConfigurationError):
            await txn.commit(timeout=5)
        held.release()
        await txn.abort()


async def test_call_that_waits_for_memory_raises_the_first_error() -> None:
    options = {"max_block_ms": 5_000, "batch_size": 0, "buffer_memory": 4_000}
    async with two_brokers(**options) as bench:
        txn, held = await refuse_while_another_hangs(bench)
        with pytest.raises(InvalidConfigurationError):
            await txn.enqueue("lines", b"v" * 2_500)
        held.release()
        await txn.abort()


async def test_offsets_that_are_refused_after_a_batch_raise_the_first_error() -> None:
    async with transactional() as bench:
        txn = await bench.open_transaction()
        held = bench.hold("TxnOffsetCommit", error="TRANSACTION_ABORTABLE")
        committing = asyncio.ensure_future(txn.commit_offsets(OFFSETS, GROUP))
        await settle()
        bench.refuse("INVALID_RECORD")
        with pytest.raises(InvalidConfigurationError) as first:
            await txn.send("counts", b"2")
        held.release()
        with pytest.raises(KafkaError) as caught:
            await committing
        assert caught.value is first.value
        await txn.abort()


# -- time-outs of the coordinator ------------------------------------------------------------------


async def time_out(bench: Bench) -> Transaction:
    """Send a record, and another one after the coordinator has aborted the transaction."""
    async with bench.producer.transaction() as txn:
        await txn.send("counts", b"earlier")
    txn = await bench.producer.begin()
    await txn.send("counts", b"1")
    await asyncio.sleep(11)
    with pytest.raises(TransactionAbortableError, match=r"timed out: .* 11 s .*_ms=10000"):
        await txn.send("counts", b"2")
    return txn


@pytest.mark.parametrize("version", VERSIONS)
async def test_transaction_that_timed_out_can_be_aborted(version: int) -> None:
    async with transactional(version, transaction_timeout_ms=10_000) as bench:
        txn = await time_out(bench)
        await txn.abort()
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"next")
        assert bench.values("counts")[-1] == b"next"


@pytest.mark.parametrize("version", VERSIONS)
async def test_block_that_fails_after_a_timeout_leaves_the_producer_usable(version: int) -> None:
    """No record has found out about the time-out: the abort is the first request after it."""

    async def fail_late(producer: Producer) -> None:
        async with producer.transaction() as txn:
            await txn.send("counts", b"1")
            await asyncio.sleep(11)
            raise ZeroDivisionError

    async with transactional(version, transaction_timeout_ms=10_000) as bench:
        with pytest.raises(ZeroDivisionError):
            await fail_late(bench.producer)
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"next")
        assert bench.values("counts")[-1] == b"next"


@pytest.mark.parametrize("version", VERSIONS)
async def test_first_request_after_a_timeout_does_not_fence_a_new_producer(version: int) -> None:
    async with transactional(version, transaction_timeout_ms=10_000) as bench:
        txn = await bench.open_transaction()
        await asyncio.sleep(11)
        newer = bench.memory.producer(transactional_id="t")
        await newer.start()
        with pytest.raises(ApplicationRecoverableError):
            await txn.abort()
        async with newer.transaction() as txn:
            await txn.send("counts", b"newer")
        await newer.stop()


@pytest.mark.parametrize("version", VERSIONS)
async def test_abort_after_a_timeout_does_not_fence_a_new_producer(version: int) -> None:
    async with transactional(version, transaction_timeout_ms=10_000) as bench:
        txn = await time_out(bench)
        newer = bench.memory.producer(transactional_id="t")
        await newer.start()
        with pytest.raises(ApplicationRecoverableError):
            await txn.abort()
        async with newer.transaction() as txn:
            await txn.send("counts", b"newer")
        await newer.stop()


async def test_fenced_producer_asks_for_no_epoch_unless_its_transaction_timed_out() -> None:
    async with transactional(1) as bench:
        txn = await bench.open_transaction()
        bench.faults.add(api="EndTxn", error="PRODUCER_FENCED")
        before = len(bench.requests(InitProducerIdRequest))
        with pytest.raises(ApplicationRecoverableError):
            await txn.abort()
        assert len(bench.requests(InitProducerIdRequest)) == before


@pytest.mark.parametrize(
    ("version", "kind"), [(1, "ProducerFencedError"), (2, "InvalidTxnStateError")]
)
async def test_commit_after_a_timeout_names_it(version: int, kind: str) -> None:
    async with transactional(version, transaction_timeout_ms=10_000) as bench:
        txn = await bench.open_transaction()
        await asyncio.sleep(11)
        with pytest.raises(ApplicationRecoverableError, match="probably timed out") as caught:
            await txn.commit()
        assert kind in (type(caught.value).__name__, type(caught.value.__cause__).__name__)


# -- outcomes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_unknown_error_of_a_commit_is_an_unknown_outcome(version: int) -> None:
    async with transactional(version) as bench:
        txn = await bench.open_transaction()
        bench.faults.add(api="EndTxn", error="UNKNOWN_SERVER_ERROR", applied=True)
        with pytest.raises(TransactionOutcomeUnknownError):
            await txn.commit()
        await txn.commit()
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"next")
        assert bench.values("counts") == [b"1", b"next"]
