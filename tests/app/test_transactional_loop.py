"""Exactly-once processing on virtual time: what follows each error."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.app import transactional
from kafka_async.app.transactional_loop import LOOP_ERROR_ACTIONS
from kafka_async.client.client import services_of
from kafka_async.errors import (
    ApplicationRecoverableError,
    Category,
    ClientClosedError,
    FencedInstanceIdError,
    IncompleteTransactionError,
    InvalidConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    SerializationError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionStateError,
)
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from kafka_async import Consumer, Producer, Record, Transaction
    from kafka_async.embedded.faults import Fault

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LINES = [b"%d" % number for number in range(6)]
PARTITION = TopicPartition("lines", 0)
PRODUCER_OPTIONS: dict[str, Any] = {
    "transactional_id": "copy-1",
    "max_block_ms": 3_000,
    "delivery_timeout_ms": 5_000,
    "request_timeout_ms": 1_000,
}
CONSUMER_OPTIONS: dict[str, Any] = {
    "group_id": "copy",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "max_poll_records": 2,
}


async def copy(records: list[Record], txn: Transaction) -> None:
    for record in records:
        await txn.enqueue("copies", record.value)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail after an hour of virtual time."""
    async with asyncio.timeout(3600):
        while not condition():  # noqa: ASYNC110  # virtual time costs nothing
            await asyncio.sleep(0.1)


class Copying:
    """Copies lines in a task; `failing` has exceptions that the next calls of `fn` raise."""

    def __init__(self, memory: InMemory, consumer: Consumer, **options: Any) -> None:
        self.memory = memory
        self.consumer = consumer
        self.producers: list[Producer] = []
        self.calls: list[list[bytes | None]] = []
        self.failing: list[Exception] = []
        self.before_failure: Callable[[], object] = lambda: None
        self.copy = copy
        self.task: asyncio.Task[None] = asyncio.create_task(
            transactional(
                self._copy, consumer=consumer, producer_factory=self._make_producer, **options
            )
        )

    def _make_producer(self) -> Producer:
        producer = self.memory.producer(**PRODUCER_OPTIONS)
        self.producers.append(producer)
        return producer

    async def _copy(self, records: list[Record], txn: Transaction) -> None:
        self.calls.append([record.value for record in records])
        await self.copy(records, txn)
        if self.failing:
            self.before_failure()
            raise self.failing.pop(0)

    async def until_copied(self) -> list[bytes | None]:
        """Wait until all lines are copied; return the committed copies."""
        while await self._committed() < len(LINES):
            if self.task.done():
                self.task.result()
            await asyncio.sleep(1)
        return await committed_values(self.memory)

    async def _committed(self) -> int:
        offset = (await self.consumer.committed([PARTITION]))[PARTITION]
        return 0 if offset is None else offset.offset


async def committed_values(memory: InMemory) -> list[bytes | None]:
    async with memory.consumer(
        partitions=[TopicPartition("copies", 0)],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        return [record.value for record in await consumer.poll(timeout=5)]


@asynccontextmanager
async def copying(
    consumer_options: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[Copying]:
    async with InMemory() as memory:
        async with memory.producer() as producer:
            await producer.send_many("lines", LINES, partition=0)
        async with memory.consumer("lines", **CONSUMER_OPTIONS | (consumer_options or {})) as one:
            copying = Copying(memory, one, **options)
            try:
                yield copying
            finally:
                copying.task.cancel()
                await asyncio.wait([copying.task])
        assert all(producer.health().state == "closed" for producer in copying.producers)


async def test_commits_copies_with_their_offsets() -> None:
    async with copying() as case:
        assert await case.until_copied() == LINES
        assert case.calls == [LINES[0:2], LINES[2:4], LINES[4:6]]
        assert len(case.producers) == 1


async def test_empty_poll_begins_no_transaction() -> None:
    async with copying() as case:
        await case.until_copied()
        before = len(case.calls), len(case.memory.values("copies"))
        end = case.memory.partition("copies").log.end_offset
        await asyncio.sleep(60)
        assert (len(case.calls), len(case.memory.values("copies"))) == before
        assert case.memory.partition("copies").log.end_offset == end


# -- what follows an error -------------------------------------------------------------------------

TRANSACTION_ABORTABLE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 120, 47, 48
ILLEGAL_GENERATION, PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING = 22, 90, 49
TOPIC_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE = 29, 15


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("Produce", TRANSACTION_ABORTABLE),
        ("Produce", INVALID_TXN_STATE),
        ("Produce", INVALID_PRODUCER_EPOCH),
        ("TxnOffsetCommit", TRANSACTION_ABORTABLE),
        ("TxnOffsetCommit", ILLEGAL_GENERATION),
        ("EndTxn", TRANSACTION_ABORTABLE),
    ],
)
async def test_abortable_error_keeps_the_producer_and_reads_the_records_again(
    api: str, code: int
) -> None:
    async with copying() as case:
        fault = case.memory.cluster.faults.add(api=api, error=code, count=1)
        assert await case.until_copied() == LINES
        assert fault.hits == 1
        assert case.calls[:2] == [LINES[:2], LINES[:2]]
        assert len(case.producers) == 1


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("Produce", PRODUCER_FENCED),
        ("TxnOffsetCommit", INVALID_PRODUCER_ID_MAPPING),
        ("EndTxn", PRODUCER_FENCED),
        ("EndTxn", INVALID_TXN_STATE),
    ],
)
async def test_application_recoverable_error_makes_a_new_producer(api: str, code: int) -> None:
    async with copying() as case:
        case.memory.cluster.faults.add(api=api, error=code, count=1)
        assert await case.until_copied() == LINES
        assert case.calls[:2] == [LINES[:2], LINES[:2]]
        assert len(case.producers) == 2
        assert case.producers[0].health().state == "closed"


@pytest.mark.parametrize("applied", [True, False])
async def test_unknown_outcome_of_a_commit_is_resolved_before_the_next_read(
    *, applied: bool
) -> None:
    """No response to EndTxn comes in time; the records are copied once, committed or not."""
    async with copying() as case:
        when = "after" if applied else "before"
        lost = case.memory.cluster.faults.add(api="EndTxn", disconnect=when, count=None)
        await until(lambda: len(case.producers) == 2)
        lost.remove()
        assert await case.until_copied() == LINES


async def test_unavailable_coordinator_is_tried_again_at_the_start() -> None:
    async with InMemory() as memory:
        async with memory.producer() as producer:
            await producer.send_many("lines", LINES, partition=0)
        async with memory.consumer("lines", **CONSUMER_OPTIONS) as consumer:
            fault = memory.cluster.faults.add(
                api="InitProducerId", error=COORDINATOR_NOT_AVAILABLE, count=None
            )
            case = Copying(memory, consumer)
            await until(lambda: len(case.producers) == 3)
            fault.remove()
            assert await case.until_copied() == LINES
            case.task.cancel()
            await asyncio.wait([case.task])


async def test_missing_permission_is_raised_and_nothing_is_committed() -> None:
    async with copying() as case:
        case.memory.cluster.faults.add(
            api="Produce", topic="copies", error=TOPIC_AUTHORIZATION_FAILED, count=None
        )
        with pytest.raises(TopicAuthorizationError):
            await case.task
        assert (await case.consumer.committed([PARTITION]))[PARTITION] is None


async def test_error_that_the_function_overlooks_is_raised_and_nothing_is_committed() -> None:
    async def overlook(records: list[Record], txn: Transaction) -> None:
        await txn.enqueue("copies", b"a part")
        with suppress(InvalidConfigurationError):
            await txn.enqueue("copies", bytes(2_000_000))

    async with copying() as case:
        case.copy = overlook
        with pytest.raises(IncompleteTransactionError):
            await case.task
        assert (await case.consumer.committed([PARTITION]))[PARTITION] is None


@pytest.mark.parametrize(
    "error", [TransactionAbortableError("wanted"), KafkaTimeoutError("another client's")]
)
async def test_function_may_ask_for_the_records_again(error: Exception) -> None:
    async with copying() as case:
        case.failing.append(error)
        assert await case.until_copied() == LINES
        assert case.calls[:2] == [LINES[:2], LINES[:2]]
        assert len(case.producers) == 1


async def test_records_after_which_nothing_is_committed_are_read_again() -> None:
    """With auto_offset_reset="latest" the group has no place to return to."""
    async with copying({"auto_offset_reset": "latest"}) as case:
        await asyncio.sleep(10)
        case.failing += [TransactionAbortableError("first"), TransactionAbortableError("again")]
        async with case.memory.producer() as producer:
            await producer.send_many("lines", [b"6", b"7", b"8"], partition=0)
        await until(lambda: len(case.calls) == 4)
        await asyncio.sleep(10)
        assert await committed_values(case.memory) == [b"6", b"7", b"8"]


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_function_that_ends_the_transaction_itself_is_refused(end: str) -> None:
    async def copy_and_end(records: list[Record], txn: Transaction) -> None:
        await copy(records, txn)
        await getattr(txn, end)()

    async with InMemory() as memory:
        async with memory.producer() as producer:
            await producer.send_many("lines", LINES, partition=0)
        async with memory.consumer("lines", **CONSUMER_OPTIONS) as consumer:
            with pytest.raises(TransactionStateError, match="was ended before fn returned"):
                await transactional(
                    copy_and_end,
                    consumer=consumer,
                    producer_factory=lambda: memory.producer(**PRODUCER_OPTIONS),
                )


async def test_factory_must_make_new_producers() -> None:
    async with (
        InMemory() as memory,
        memory.consumer("lines", **CONSUMER_OPTIONS) as consumer,
        memory.producer(**PRODUCER_OPTIONS) as started,
    ):
        with pytest.raises(KafkaError, match="was started before"):
            await transactional(copy, consumer=consumer, producer_factory=lambda: started)


@pytest.mark.parametrize("error", [ValueError("a bug"), SerializationError("not JSON")])
async def test_exception_of_the_function_is_raised_and_the_consumer_stays_usable(
    error: Exception,
) -> None:
    async with copying() as case:
        case.failing.append(error)
        with pytest.raises(type(error)) as raised:
            await case.task
        assert raised.value is error
        assert await committed_values(case.memory) == []
        await case.consumer.seek_to_committed()
        assert [record.value for record in await case.consumer.poll()] == LINES[:2]


async def test_call_after_an_exception_begins_at_the_committed_offsets() -> None:
    async with copying() as case:
        case.failing.append(ValueError("a bug"))
        with pytest.raises(ValueError, match="a bug"):
            await case.task
        again = Copying(case.memory, case.consumer)
        assert await again.until_copied() == LINES
        again.task.cancel()
        await asyncio.wait([again.task])


async def test_leader_change_while_the_consumer_returns_to_the_committed_offsets() -> None:
    async with InMemory(3) as memory:
        await memory.cluster.create_topic("lines", partitions=1, replication_factor=3)
        async with memory.producer() as producer:
            await producer.send_many("lines", LINES, partition=0)
        async with memory.consumer("lines", **CONSUMER_OPTIONS) as consumer:
            case = Copying(memory, consumer)
            case.failing.append(TransactionAbortableError("wanted"))
            held: list[Fault] = []
            case.before_failure = lambda: held.append(memory.hang("OffsetFetch"))
            await until(lambda: bool(held) and held[0].hits == 1)
            await memory.cluster.move_leader(PARTITION)
            await services_of(consumer.client).metadata.refresh()
            held[0].remove()
            assert await case.until_copied() == LINES
            case.task.cancel()
            await asyncio.wait([case.task])


async def test_restarts_are_limited_and_counted_from_the_last_commit() -> None:
    async with copying(max_restarts=2) as case:
        for skip in (0, 1):
            case.memory.cluster.faults.add(api="EndTxn", error=PRODUCER_FENCED, skip=skip, count=2)
        assert await case.until_copied() == LINES
        assert len(case.producers) > 3
        async with case.memory.producer() as producer:
            await producer.send("lines", b"more", partition=0)
            made = len(case.producers)
            case.memory.cluster.faults.add(api="EndTxn", error=PRODUCER_FENCED, count=None)
            with pytest.raises(ApplicationRecoverableError):
                await case.task
        assert len(case.producers) == made + 2


async def test_attempts_are_further_and_further_apart() -> None:
    async with copying() as case:
        case.memory.cluster.faults.add(api="Produce", error=TRANSACTION_ABORTABLE, count=None)
        begin = now()
        await until(lambda: len(case.calls) == 30)
        assert now() - begin > 150


async def test_error_of_the_consumer_that_it_does_not_retry_is_raised() -> None:
    async with copying({"group_instance_id": "one"}) as case:
        await case.until_copied()
        async with case.memory.consumer(
            "lines", **CONSUMER_OPTIONS | {"group_instance_id": "one"}
        ) as later:
            await later.poll(timeout=1)
            with pytest.raises(FencedInstanceIdError):
                await case.task


async def test_cancellation_aborts_the_transaction_and_closes_the_producer() -> None:
    async with copying() as case:
        held = case.memory.cluster.faults.add(api="TxnOffsetCommit", hang=True, count=1)
        await held.wait()
        case.task.cancel()
        held.release()
        await asyncio.wait([case.task])
        assert case.task.cancelled()
        assert case.producers[0].health().state == "closed"
        assert await committed_values(case.memory) == []
        again = Copying(case.memory, case.consumer)
        await case.consumer.seek_to_committed()
        assert await again.until_copied() == LINES
        again.task.cancel()
        await asyncio.wait([again.task])


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_id": None}, "group_id"),
        ({"enable_auto_commit": True}, "enable_auto_commit=False"),
        ({"isolation_level": "read_uncommitted"}, "read_committed"),
    ],
)
async def test_consumer_that_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    async with InMemory() as memory:
        consumer = memory.consumer("lines", **CONSUMER_OPTIONS | options)
        with pytest.raises(InvalidConfigurationError, match=message):
            await transactional(copy, consumer=consumer, producer_factory=memory.producer)


async def test_partition_without_an_offset_in_the_group_is_refused() -> None:
    extra = TopicPartition("extra", 0)
    async with copying({"partitions": [extra]}) as case:
        async with case.memory.producer() as producer:
            await producer.send("extra", b"v", partition=0)
        with pytest.raises(InvalidConfigurationError, match="extra-0 is manually assigned"):
            await case.task


async def test_producer_without_transactional_id_is_refused() -> None:
    async with InMemory() as memory, memory.consumer("lines", **CONSUMER_OPTIONS) as consumer:
        with pytest.raises(InvalidConfigurationError, match="without a transactional_id"):
            await transactional(copy, consumer=consumer, producer_factory=memory.producer)


async def test_consumer_must_be_started() -> None:
    async with InMemory() as memory:
        consumer = memory.consumer("lines", **CONSUMER_OPTIONS)
        make: Callable[[], Producer] = lambda: memory.producer(**PRODUCER_OPTIONS)  # noqa: E731
        with pytest.raises(ClientClosedError):
            await transactional(copy, consumer=consumer, producer_factory=make)
        assert memory.requests(InitProducerIdRequest)


async def test_next_member_reads_records_of_a_failed_first_transaction() -> None:
    """With auto_offset_reset="latest" it would begin behind them without a committed offset."""
    options = CONSUMER_OPTIONS | {"auto_offset_reset": "latest"}

    async def fail(records: list[Record], _: Transaction) -> None:
        raise ValueError([record.value for record in records])

    async with InMemory() as memory, memory.producer() as producer:
        await producer.send("lines", b"before", partition=0)
        async with memory.consumer("lines", **options) as first:
            while PARTITION not in first.assignment():
                await first.poll(timeout=0.1)
            await first.position(PARTITION)
            await producer.send_many("lines", LINES, partition=0)
            with pytest.raises(ValueError, match="b'0'"):
                await transactional(
                    fail,
                    consumer=first,
                    producer_factory=lambda: memory.producer(**PRODUCER_OPTIONS),
                )
        async with memory.consumer("lines", **options) as second:
            records = await second.poll(timeout=60, max_records=len(LINES))
    assert records[0].value == LINES[0]


def plain(_: list[Record], __: Transaction) -> None:
    """Return nothing to await."""


@pytest.mark.parametrize(
    ("wrong", "value", "message"),
    [
        ("fn", plain, r"fn must be `async def`: <function plain .*> returned NoneType"),
        ("fn", None, "fn must be callable, not None"),
        ("consumer", None, "consumer must be Consumer, not None"),
        ("producer_factory", lambda: None, "result of producer_factory must be Producer, not None"),
    ],
)
async def test_wrong_functions_are_named(wrong: str, value: object, message: str) -> None:
    async with InMemory() as memory:
        async with memory.producer() as producer:
            await producer.send_many("lines", LINES, partition=0)
        async with memory.consumer("lines", **CONSUMER_OPTIONS) as consumer:
            given: dict[str, Any] = {
                "fn": copy,
                "consumer": consumer,
                "producer_factory": lambda: memory.producer(**PRODUCER_OPTIONS),
                wrong: value,
            }
            call: Any = transactional
            with pytest.raises(TypeError, match=message):
                await call(given.pop("fn"), **given)


@pytest.mark.parametrize("wrong", ["fn", "producer_factory", "max_restarts"])
async def test_arguments_of_the_wrong_type_are_refused(wrong: str) -> None:
    async with InMemory() as memory, memory.consumer("lines", **CONSUMER_OPTIONS) as consumer:
        arguments: dict[str, Any] = {
            "fn": copy,
            "consumer": consumer,
            "producer_factory": memory.producer,
            "max_restarts": 1,
        }
        call: Any = transactional
        given = arguments | {wrong: "3"}
        with pytest.raises(TypeError, match=wrong):
            await call(given.pop("fn"), **given)


async def test_every_category_has_a_reaction() -> None:
    assert LOOP_ERROR_ACTIONS.keys() == {*Category, None}


async def test_topic_created_again_is_not_read_from_an_offset_of_the_former_one() -> None:
    later = [b"later-%d" % number for number in range(10)]
    async with copying({"metadata_max_age_ms": 1_000}) as case:
        await asyncio.sleep(10)
        before, memory = len(case.calls), case.memory

        async def copy_and_recreate(records: list[Record], txn: Transaction) -> None:
            await copy(records, txn)
            if len(case.calls) == before + 1:
                await memory.cluster.delete_topic("lines")
                await memory.cluster.create_topic("lines", 1)
                async with memory.producer() as producer:
                    await producer.send_many("lines", later, partition=0)

        case.copy = copy_and_recreate
        async with memory.producer() as producer:
            await producer.send("lines", b"former", partition=0)
        await until(lambda: case.calls[-1][-1:] == later[-1:])
        assert [value for call in case.calls[before + 1 :] for value in call] == later
        assert await committed_values(memory) == LINES + later
