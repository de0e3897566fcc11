"""Transactions of which a batch fails: the error that is raised, and the producer afterwards.

Each error code meets a batch of a transaction, with batches in flight and queued behind it. Those
in flight come back out of order, which is a consequence: the first error is the one that is raised,
and an abort makes the producer usable. `tests/integration/test_java_producer.py` compares that with
Kafka's producer.
"""

from __future__ import annotations

import asyncio
from itertools import cycle, product
from typing import TYPE_CHECKING

import pytest

from kafka_async import errors
from kafka_async.errors import (
    ApplicationRecoverableError,
    Category,
    InvalidConfigurationError,
    KafkaError,
    TransactionAbortableError,
)
from kafka_async.producer.transactions.state import TransactionState
from kafka_async.protocol.messages.produce import ProduceRequest
from tests.embedded_client import settle
from tests.producer.bench import Bench, transactional
from tests.producer.produce_errors import CODES, LAYOUTS, Layout, handling_of

if TYPE_CHECKING:
    from kafka_async.producer.transactions.transaction import Transaction
    from kafka_async.types import RecordMetadata

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

CLASSES = {
    Category.ABORTABLE: TransactionAbortableError,
    Category.APPLICATION_RECOVERABLE: ApplicationRecoverableError,
    Category.INVALID_CONFIGURATION: InvalidConfigurationError,
}
VERSIONS = (1, 2)
CASES = [
    *((code, *each) for code, each in zip(CODES, cycle(product(LAYOUTS, VERSIONS)), strict=False)),
    *product(
        (errors.RecordTooLargeError.code, errors.OutOfOrderSequenceError.code), LAYOUTS, VERSIONS
    ),
]
"""Each code with one layout and version, two codes with all of them."""


def case_id(part: int | Layout) -> str:
    return "-".join(map(str, part)) if isinstance(part, Layout) else str(part)


def one_record_per_batch(layout: Layout, version: int) -> Bench:
    return transactional(
        version, batch_size=0, max_in_flight_requests_per_connection=1 + layout.behind
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


@pytest.mark.parametrize(("code", "layout", "version"), CASES, ids=case_id)
async def test_first_error_of_a_transaction_is_raised_everywhere(
    code: int, layout: Layout, version: int
) -> None:
    category = handling_of(code)
    async with one_record_per_batch(layout, version) as bench:
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
