"""Consumes, processes and produces in transactions; handles each error by its category."""

from __future__ import annotations

import asyncio
import enum
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from kafka_async.consumer.consumer import Consumer, partitions_outside_group
from kafka_async.errors import (
    Category,
    IllegalStateError,
    IncompleteTransactionError,
    InvalidConfigurationError,
    KafkaError,
    RetriableError,
    TransactionStateError,
)
from kafka_async.foundation.arguments import awaitable_result, function, instance_of, whole_number
from kafka_async.foundation.backoff import Backoff
from kafka_async.producer.producer import Producer
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from uuid import UUID

    from kafka_async.kernel import Record
    from kafka_async.producer.transactions.transaction import Transaction

__all__ = ["transactional"]

K = TypeVar("K")
V = TypeVar("V")
"""Types of keys and values that the consumer returns."""
P = TypeVar("P")
Q = TypeVar("Q")
"""Types of keys and values that the producer takes."""
T = TypeVar("T")

logger = logging.getLogger("kafka_async.app")

FIRST_DELAY, LONGEST_DELAY = 0.1, 10.0
"""Seconds before the records of a failed transaction are read again."""
STOP_TIMEOUT: Final = 5.0
"""Maximum seconds to close a producer that is replaced."""


class LoopErrorAction(enum.Enum):
    """Action after an error that has aborted the transaction."""

    AGAIN = "read the same records again"
    NEW_PRODUCER = "make a new producer, and read the same records again"
    RAISE = "raise the error"


LOOP_ERROR_ACTIONS: Final[Mapping[Category | None, LoopErrorAction]] = {
    Category.RETRIABLE: LoopErrorAction.AGAIN,
    Category.REFRESH_RETRIABLE: LoopErrorAction.AGAIN,
    Category.ABORTABLE: LoopErrorAction.AGAIN,
    Category.APPLICATION_RECOVERABLE: LoopErrorAction.NEW_PRODUCER,
    Category.INVALID_CONFIGURATION: LoopErrorAction.RAISE,
    None: LoopErrorAction.RAISE,  # Errors of transactional calls have a category.
}


async def transactional(
    fn: Callable[[list[Record[K, V]], Transaction[P, Q]], Awaitable[object]],
    *,
    consumer: Consumer[K, V],
    producer_factory: Callable[[], Producer[P, Q]],
    max_restarts: int | None = None,
) -> NoReturn:
    """Process records exactly once, until the task is cancelled or an error is raised.

    Calls `fn` with the records of each poll and a transaction. `fn` sends its output through the
    transaction. The output and the consumer's offsets are committed atomically. The consumer must
    be started; a transaction has at most max_poll_records records. The loop begins at the committed
    offsets, so records that were returned and not committed are read again. Unless
    auto_offset_reset is "earliest", a partition without a committed offset first gets the offset of
    its first record committed: otherwise its next owner would skip the records of a failed
    transaction.

        async def copy(records, txn):
            for record in records:
                await txn.enqueue("copies", record.value)

        async with Consumer(
            servers,
            topics=["lines"],
            group_id="copy",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer:
            await transactional(
                copy,
                consumer=consumer,
                producer_factory=lambda: Producer(servers, transactional_id="copy-1"),
            )

    An error aborts the transaction. The next step depends on its category (KIP-1050):

    - abortable or retriable, as after a rebalance: the partitions' new owner calls `fn` again with
    the same records; - application-recoverable, as after a transaction time-out: the same, with a
    new producer; - invalid configuration, an exception that is no KafkaError, a call that does not
    fit the state, such as `commit()` or `abort()` in `fn`, and a consumer error that the consumer
    does not retry: raised.

    The delay before the next attempt is 0.1 s, and grows to 10 s until a transaction is committed.

    Args:
        fn: An `async def` function, called with a list of records and the transaction. It may be
            called again with the same records, so it should have no other lasting effect.
        consumer: A started consumer of a group, with enable_auto_commit=False and
            isolation_level="read_committed". Partitions outside its subscription are refused.
        producer_factory: Returns a producer that has a transactional_id and was not started. It is
            called at the beginning and for each restart, and must use the same id each time; no
            other worker may use this id.
        max_restarts: Maximum number of restarts without a committed transaction between them; then
            the error is raised. None: no limit.

    Raises:
        InvalidConfigurationError: An option of the consumer or the producer does not allow
            exactly-once processing, or an error requires a change of the configuration.
        ApplicationRecoverableError: There were more than `max_restarts` restarts.
        ClientClosedError: The consumer is not started, or was stopped.
        KafkaError: Another error of the consumer.
        Exception: The exception of `fn`.
    """
    check_consumer(instance_of(consumer, Consumer, "consumer"))
    if max_restarts is not None:
        max_restarts = whole_number(max_restarts, "max_restarts", low=0)
    loop = _TransactionalLoop(
        function(fn, "fn"),
        consumer,
        function(producer_factory, "producer_factory"),
        max_restarts,
    )
    try:
        await loop.run()
    finally:
        await loop.close()


def check_consumer(consumer: Consumer[K, V]) -> None:
    """Raise InvalidConfigurationError unless the consumer's options fit transactions."""
    config = consumer.config
    if config.group_id is None:
        raise InvalidConfigurationError(
            "transactional() needs a consumer with a group_id", option="group_id"
        )
    if config.enable_auto_commit:
        raise InvalidConfigurationError(
            "enable_auto_commit=True commits offsets outside of transactions: give the consumer of "
            "transactional() enable_auto_commit=False",
            option="enable_auto_commit",
        )
    if config.isolation_level != "read_committed":
        raise InvalidConfigurationError(
            f"isolation_level={config.isolation_level!r} returns records of aborted transactions: "
            'give the consumer of transactional() isolation_level="read_committed"',
            option="isolation_level",
        )


def check_in_group(consumer: Consumer[K, V], records: list[Record[K, V]]) -> None:
    """Raise InvalidConfigurationError if the group has no offset for a record's partition."""
    outside = partitions_outside_group(consumer)
    found = {TopicPartition(r.topic, r.partition) for r in records} & outside if outside else ()
    if found:
        raise InvalidConfigurationError(
            f"{min(found)} is manually assigned to a consumer that subscribes to topics, so the "
            "group has no offset for it: subscribe to its topic, or use another consumer"
        )


class _TransactionalLoop(Generic[K, V, P, Q]):
    """Holds the producer of `transactional`, and counts its restarts."""

    def __init__(
        self,
        fn: Callable[[list[Record[K, V]], Transaction[P, Q]], Awaitable[object]],
        consumer: Consumer[K, V],
        producer_factory: Callable[[], Producer[P, Q]],
        max_restarts: int | None,
    ) -> None:
        self._fn = fn
        self._consumer = consumer
        self._producer_factory = producer_factory
        self._max_restarts = max_restarts
        self._restarts = 0
        self._topic_ids: Mapping[str, UUID] = {}  # of the last records, where known
        self._with_offset: set[tuple[TopicPartition, UUID | None]] = set()
        """Partitions with a committed offset, and the ids of their topics."""
        self._producer: Producer[P, Q] | None = None
        self._backoff = Backoff(FIRST_DELAY, LONGEST_DELAY)

    async def run(self) -> NoReturn:
        records: list[Record[K, V]] = []
        while True:
            # Start the producer first: it ends a transaction whose outcome is unknown.
            producer = await self._started_producer()
            await self._with_retries(partial(self._rewind, records))
            while True:
                records = await self._with_retries(self._consumer.poll)
                self._topic_ids = self._current_ids(records)
                if not await self._commit(producer, records):
                    break

    async def _rewind(self, records: list[Record[K, V]]) -> None:
        """Seek to the committed offsets, else to the first of these records.

        For a topic that was created again, auto_offset_reset applies.
        """
        await self._consumer.seek_to_committed()
        first = _first_offsets(records)
        if not first:
            return
        committed = await self._consumer.committed(first)
        former, current = self._topic_ids, self._current_ids(records)
        for partition in self._consumer.assignment() & first.keys():
            same = former.get(partition.topic) == current.get(partition.topic)
            if committed[partition] is None and same:
                self._consumer.seek(partition, first[partition])

    async def close(self) -> None:
        """Stop the producer, if any; a cancellation is raised after that."""
        from anyio import CancelScope

        producer, self._producer = self._producer, None
        if producer is None:
            return
        with CancelScope(shield=True):
            try:
                await producer.stop(STOP_TIMEOUT)
            except KafkaError as error:  # Its transaction's error was already reported.
                logger.debug("%s: %s", producer.config.transactional_id, error)

    async def _started_producer(self) -> Producer[P, Q]:
        """Return the current producer, or start a new one."""
        while self._producer is None:
            producer = self._producer_factory()
            instance_of(producer, Producer, "the result of producer_factory")
            if producer.config.transactional_id is None:
                raise InvalidConfigurationError(
                    "producer_factory returned a producer without a transactional_id: give it one",
                    option="transactional_id",
                )
            self._producer = producer
            try:
                await producer.start()
            except KafkaError as error:
                await self._react(error, if_retriable=LoopErrorAction.NEW_PRODUCER)
        return self._producer

    async def _commit(self, producer: Producer[P, Q], records: list[Record[K, V]]) -> bool:
        """Process records in a transaction; return False if the caller must read them again."""
        if not records:
            return True
        check_in_group(self._consumer, records)
        try:
            await self._commit_start(producer, records)
            async with producer.transaction() as txn:
                await awaitable_result(self._fn(records, txn), self._fn, "fn")
                await self._commit_offsets(txn)
        except KafkaError as error:
            await self._react(error)
            return False
        self._restarts = 0
        self._backoff.reset()
        return True

    async def _commit_offsets(self, txn: Transaction[P, Q]) -> None:
        try:
            await txn.commit_offsets(self._consumer)
        except TransactionStateError as error:
            raise TransactionStateError(
                "the transaction was ended before fn returned, by commit(), abort() or prepare(): "
                "remove that call, since transactional() commits when fn returns, and aborts when "
                "it raises"
            ) from error

    async def _commit_start(self, producer: Producer[P, Q], records: list[Record[K, V]]) -> None:
        """Commit the offsets of the first records of partitions that have no committed offset.

        Otherwise the partition's next owner would skip the records of a failed transaction, unless
        auto_offset_reset is "earliest".
        """
        if self._consumer.config.auto_offset_reset == "earliest":
            return
        first = _first_offsets(records)
        ids = self._topic_ids
        unknown = {p for p in first if (p, ids.get(p.topic)) not in self._with_offset}
        if not unknown:
            return
        committed = await self._consumer.committed(unknown)
        missing = {partition: first[partition] for partition in unknown if not committed[partition]}
        if missing:
            async with producer.transaction() as txn:
                await txn.commit_offsets(missing, self._consumer.group_metadata())
        self._with_offset |= {(p, ids.get(p.topic)) for p in unknown}

    def _current_ids(self, records: list[Record[K, V]]) -> Mapping[str, UUID]:
        """Return the current ids of these records' topics, where known."""
        return self._consumer.__offset_source__().topic_ids({record.topic for record in records})

    async def _react(
        self, error: KafkaError, *, if_retriable: LoopErrorAction = LoopErrorAction.AGAIN
    ) -> None:
        """Raise the error, or wait for a retry; close the producer if a new one is required."""
        is_misuse = isinstance(error, IllegalStateError) or isinstance(
            error.__cause__, IllegalStateError
        )
        reaction = LoopErrorAction.RAISE if is_misuse else LOOP_ERROR_ACTIONS[_category(error)]
        if reaction is LoopErrorAction.AGAIN:
            reaction = if_retriable
        if reaction is LoopErrorAction.RAISE:
            raise error
        if reaction is LoopErrorAction.NEW_PRODUCER:
            if self._restarts == self._max_restarts:
                raise error
            self._restarts += 1
            await self.close()
        level = logging.WARNING if reaction is LoopErrorAction.NEW_PRODUCER else logging.INFO
        logger.log(level, "transaction aborted, will %s: %s", reaction.value, error)
        await asyncio.sleep(self._backoff.next())

    async def _with_retries(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call of the consumer while its error is retriable."""
        while True:
            try:
                return await call()
            except RetriableError as error:
                logger.info("transactional: will try again: %s", error)
                await asyncio.sleep(self._backoff.next())


def _category(error: KafkaError) -> Category | None:
    """Return an error's category; for an incomplete transaction, its cause's category."""
    if not isinstance(error, IncompleteTransactionError):
        return error.category
    return error.__cause__.category if isinstance(error.__cause__, KafkaError) else None


def _first_offsets(records: Iterable[Record[Any, Any]]) -> dict[TopicPartition, int]:
    """Return the offset of the first record of each partition."""
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    return first
