"""Each error of KIP-1050 in each request of a transactional producer, as `TABLE` describes it.

The fault is injected in the embedded cluster, or, for an exception of the client, where a request
is sent. With transactions v2 the producer sends neither AddPartitionsToTxn nor AddOffsetsToTxn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import errors
from kafka_async.client.client import services_of
from kafka_async.client.connection.broker_connection import BrokerConnection
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.errors import (
    ApplicationRecoverableError,
    Category,
    InvalidConfigurationError,
    KafkaError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
)
from kafka_async.producer.transactions.state import TransactionState
from kafka_async.protocol.api import lookup
from kafka_async.protocol.registry import Api
from tests.producer.bench import GROUP, OFFSETS, Bench, transactional
from tests.rows import row
from tools.transaction_errors import HANDLINGS, JAVA_EXCEPTIONS, OTHER_ERRORS, STEPS, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.producer.transactions.transaction import Transaction

CLASSES = {
    Category.ABORTABLE: TransactionAbortableError,
    Category.APPLICATION_RECOVERABLE: ApplicationRecoverableError,
    Category.INVALID_CONFIGURATION: InvalidConfigurationError,
}
KEY_TYPES = {"FindCoordinator (group)": 0, "FindCoordinator (transaction)": 1}
V1_ONLY = ("AddPartitionsToTxn", "AddOffsetsToTxn")
INITIALIZING = ("InitProducerId", "FindCoordinator (transaction)")
RETRIED = [word for word, handling in HANDLINGS.items() if handling.by_itself]


def cases(error: str) -> dict[str, int]:
    """Return each step with a version of transactions: half of them with v2, in a chessboard."""
    first = list(TABLE).index(error)
    return {
        step: 1 if step in V1_ONLY else 1 + (first + number) % 2
        for number, step in enumerate(STEPS)
    }


class Injection:
    """Injects an error into the requests of a step, `count` times or (None) until it is removed."""

    def __init__(
        self, bench: Bench, error: str, step: str, count: int | None, patch: pytest.MonkeyPatch
    ) -> None:
        api, key_type = step.split(maxsplit=1)[0], KEY_TYPES.get(step)
        self._remove: Callable[[], None]

        def selected(context: object, request: Any) -> bool:
            return key_type is None or request.key_type == key_type

        options: dict[str, Any] = {"api": api, "when": selected, "count": count}
        kind = getattr(errors, error, RuntimeError if error == "RuntimeError" else None)
        if kind is not None:
            self._left = count
            self._raise_in_connection(api, kind, selected, patch)
        elif error == "connection lost":
            self.remove = bench.faults.add(disconnect="before", **options).remove
        elif error == "no response":
            self.remove = bench.faults.add(hang=True, **options).remove
        else:
            self.remove = bench.faults.add(error=error, **options).remove

    def _raise_in_connection(
        self,
        api: str,
        kind: type[Exception],
        selected: Callable[[object, Any], bool],
        patch: pytest.MonkeyPatch,
    ) -> None:
        found = lookup(api)
        assert isinstance(found, Api)
        send, submit = BrokerConnection.send, BrokerConnection.submit_with_callback

        def check(request: Any) -> None:
            if found.key != request.API_KEY or self._left == 0 or not selected(None, request):
                return
            if self._left is not None:
                self._left -= 1
            raise kind("injected")

        async def failing_send(connection: Any, request: Any, **options: Any) -> Any:
            check(request)
            return await send(connection, request, **options)

        def failing_submit(connection: Any, request: Any, *args: Any, **options: Any) -> None:
            check(request)
            submit(connection, request, *args, **options)

        patch.setattr(BrokerConnection, "send", failing_send)
        patch.setattr(BrokerConnection, "submit_with_callback", failing_submit)

    def remove(self) -> None:
        """End the fault."""
        self._left = 0


async def call(bench: Bench, txn: Transaction | None, step: str) -> None:
    """Make the call that sends the request."""
    if txn is None:
        await bench.producer.init_transactions()
    elif step in ("Produce", "AddPartitionsToTxn"):
        outcomes = await asyncio.gather(  # in one batch
            txn.send("counts", b"1"), txn.send("counts", b"2"), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
    elif step == "EndTxn (commit)":
        await txn.commit()
    elif step == "EndTxn (abort)":
        await txn.abort()
    else:
        await txn.commit_offsets(OFFSETS, GROUP)


async def prepare(bench: Bench, step: str) -> Transaction | None:
    """Bring the producer into the state in which the call of a step sends the request."""
    txn = None
    if step not in INITIALIZING:
        txn = await bench.producer.begin()
        if step.startswith("EndTxn"):
            await txn.send("counts", b"1")
    coordinators = services_of(bench.producer.client).coordinators
    if step == "FindCoordinator (transaction)":
        coordinators.forget(CoordinatorKind.TRANSACTION, "t")
    coordinators.forget(CoordinatorKind.GROUP, GROUP.group_id)
    return txn


async def recover(bench: Bench, txn: Transaction | None) -> str:
    """Make the producer usable; return the call that this took."""
    if bench.transaction_state is TransactionState.UNINITIALIZED:
        await bench.producer.init_transactions()
        return "init_transactions"
    if bench.transaction_state is TransactionState.READY:
        return "usable"
    assert txn is not None
    if bench.transaction_state is TransactionState.OUTCOME_UNKNOWN:
        await txn.commit()
        return "commit"
    await txn.abort()
    return "abort"


async def use(bench: Bench) -> None:
    """Commit a transaction."""
    txn = await bench.producer.begin()
    await txn.send("counts", b"next")
    await txn.commit()
    assert bench.values("counts")[-1] == b"next"


@pytest.mark.one_kernel
@pytest.mark.virtual_clock
@pytest.mark.asyncio
@pytest.mark.parametrize("error", TABLE)
async def test_error_is_handled_as_in_the_table(error: str) -> None:
    for step, version in cases(error).items():
        with row(step, version), pytest.MonkeyPatch.context() as patch:
            await check_handling(error, step, version, patch)


@pytest.mark.slow
@pytest.mark.one_kernel
@pytest.mark.virtual_clock
@pytest.mark.asyncio
@pytest.mark.parametrize("error", TABLE)
async def test_error_is_handled_as_in_the_table_with_the_other_version(error: str) -> None:
    for step, version in cases(error).items():
        if step not in V1_ONLY:
            with row(step, 3 - version), pytest.MonkeyPatch.context() as patch:
                await check_handling(error, step, 3 - version, patch)


async def check_handling(error: str, step: str, version: int, patch: pytest.MonkeyPatch) -> None:
    word = TABLE[error][step]
    handling = HANDLINGS[word]
    async with transactional(
        version, max_block_ms=3_000, request_timeout_ms=1_000, delivery_timeout_ms=3_000
    ) as bench:
        if word in RETRIED:
            await check_single_fault_is_hidden(bench, error, step, patch)
        txn = await prepare(bench, step)
        before = len(bench.memory.received)
        injected = Injection(bench, error, step, None, patch)
        raised = None
        try:
            await call(bench, txn, step)
        except KafkaError as failure:
            raised = failure
        sent = Counter(type(each.request).__name__ for each in bench.memory.received[before:])
        injected.remove()
        check_category(raised, handling.category)
        check_cause(raised, error)
        assert isinstance(raised, TransactionOutcomeUnknownError) == (
            handling.afterwards == "commit"
        )
        check_requests(word, step, sent)
        if handling.afterwards == "close":
            assert bench.transaction_state is TransactionState.FATAL_ERROR
            with pytest.raises(ApplicationRecoverableError):
                await bench.producer.begin()
        else:
            after = await recover(bench, txn)
            if step != "EndTxn (abort)" and txn is not None:
                assert after == handling.afterwards
            else:
                assert after in ("usable", "init_transactions")
            await use(bench)


async def check_single_fault_is_hidden(
    bench: Bench, error: str, step: str, patch: pytest.MonkeyPatch
) -> None:
    """Check that the application does not see an error that occurs once."""
    txn = await prepare(bench, step)
    with patch.context() as once:
        Injection(bench, error, step, 1, once)
        await call(bench, txn, step)
    if txn is not None and not step.startswith("EndTxn"):
        await txn.commit()


def check_category(raised: KafkaError | None, category: Category | None) -> None:
    """Check that an error has a category and is of its class."""
    if category is None:
        assert raised is None
        return
    assert raised is not None
    assert raised.category is category
    assert isinstance(raised, CLASSES[category])


def check_cause(raised: KafkaError | None, error: str) -> None:
    """Check that the error names the injected one as its cause, unless it is the same."""
    chain: list[BaseException] = []
    cause: BaseException | None = raised
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__
    if raised is not None and error.isupper():
        assert error in [each.name for each in chain if isinstance(each, KafkaError)]


def check_requests(word: str, step: str, sent: Counter[str]) -> None:
    """Check what the producer did before it raised the error."""
    attempts = sent[step.split(maxsplit=1)[0] + "Request"]
    lookups = sent["MetadataRequest" if step == "Produce" else "FindCoordinatorRequest"]
    if word == "epoch":
        assert sent["InitProducerIdRequest"] >= 1
    elif word == "split":
        assert attempts > 1
    elif word.startswith(("retry", "refresh")):
        assert attempts > 1
        if not step.startswith("FindCoordinator"):
            first = step == "TxnOffsetCommit"  # the coordinator was not known
            assert (lookups > first) == word.startswith("refresh")
    else:
        assert attempts <= 1


def test_table_has_every_exception_of_the_kip() -> None:
    assert set(JAVA_EXCEPTIONS.values()) | OTHER_ERRORS == set(TABLE)
    assert not OTHER_ERRORS & set(JAVA_EXCEPTIONS.values())
    for words in TABLE.values():
        assert tuple(words) == STEPS
    assert {word for words in TABLE.values() for word in words.values()} == set(HANDLINGS)


@pytest.mark.one_kernel
@pytest.mark.virtual_clock
@pytest.mark.asyncio
async def test_table_has_every_request_of_a_transaction() -> None:
    async with transactional(1) as bench:
        for end in ("commit", "abort"):
            txn = await bench.producer.begin()
            await txn.send("counts", b"1")
            await txn.commit_offsets(OFFSETS, GROUP)
            await getattr(txn, end)()
        sent = {type(each.request).__name__ for each in bench.memory.received}
    in_table = {step.split(maxsplit=1)[0] + "Request" for step in STEPS}
    assert sent == in_table | {"ApiVersionsRequest", "MetadataRequest"}
