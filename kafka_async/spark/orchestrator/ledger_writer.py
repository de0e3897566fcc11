"""Reads the ledger, and writes changes to it in transactions of the active driver.

Changes that arrive during a transaction share the next one. If a shared transaction fails, its
changes are committed one by one, so that no change fails another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import (
    ApplicationRecoverableError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TransactionOutcomeUnknownError,
)
from kafka_async.foundation.backoff import Backoff
from kafka_async.spark.orchestrator.errors import DriverFencedError
from kafka_async.spark.orchestrator.job_ledger import (
    LedgerState,
    LedgerTransaction,
    RangeAlreadyProcessedError,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafka_async.client.client import Client
    from kafka_async.producer.producer import Producer
    from kafka_async.spark.orchestrator.job_ledger import LedgerChange
    from kafka_async.types import GroupMetadata

logger = logging.getLogger("kafka_async.spark")

MAX_CHANGES: Final = 100
"""Changes per transaction."""
RETRY_TIMEOUT: Final = 30.0
"""Seconds for which an aborted transaction is retried."""


async def read_ledger(client: Client, topic: str) -> LedgerState:
    """Read the ledger to its end.

    Raises:
        DecodeError: The topic has a record that no orchestrator wrote.
    """
    state = LedgerState()
    partition = TopicPartition(topic, 0)
    async with Consumer(
        client, partitions=[partition], isolation_level="read_committed", auto_offset_reset="none"
    ) as consumer:
        await consumer.seek_to_beginning()
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for record in await consumer.poll(timeout=0.25):
                state.load(record.key, record.value)
    return state


def fencing_error(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is a fencing error."""
    while error is not None:
        if isinstance(error, ProducerFencedError | InvalidProducerEpochError | DriverFencedError):
            return True
        error = error.__cause__
    return False


@dataclass(slots=True)
class _PendingChange:
    change: LedgerChange
    committed: asyncio.Future[None]


class LedgerWriter:
    """Commits changes to the ledger, in order.

    Args:
        producer: The started transactional producer.
        state: The ledger's state, which committed changes update.
        topic: The ledger's topic.
        control: The control topic's partition.
        control_offset: The committed position in the control topic.
        generation: Returns the driver's group metadata; raises DriverFencedError unless the group
            has assigned the control topic's partition to the driver.
        group_of: Returns the consumer group that a scope's offsets are committed to, or None.

    Attributes:
        failure: The error that has stopped the writer; None while it works.
    """

    def __init__(
        self,
        producer: Producer,
        state: LedgerState,
        *,
        topic: str,
        control: TopicPartition,
        control_offset: int,
        generation: Callable[[], GroupMetadata],
        group_of: Callable[[str], str | None],
    ) -> None:
        self._producer = producer
        self._state = state
        self._topic = topic
        self._control = control
        self._control_offset = control_offset
        self._generation = generation
        self._group_of = group_of
        self._pending: deque[_PendingChange] = deque()
        self._wakeup = asyncio.Event()
        self.failure: KafkaError | None = None

    def submit(self, change: LedgerChange) -> asyncio.Future[None]:
        """Append a change; the future is done once the change is committed or has failed.

        Errors of the future: RangeAlreadyProcessedError; DriverFencedError or another
        ApplicationRecoverableError if the writer has stopped; the transaction's error if the change
        cannot be committed.
        """
        committed = asyncio.get_running_loop().create_future()
        # Retrieve an error here too, since the waiting job may be cancelled.
        committed.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.failure is not None:
            committed.set_exception(self.failure)
        else:
            self._pending.append(_PendingChange(change, committed))
            self._wakeup.set()
        return committed

    async def run(self) -> None:
        """Commit changes until an error stops the writer, and raise that error."""
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup.clear()
                while self._pending:
                    count = min(MAX_CHANGES, len(self._pending))
                    await self._commit_all([self._pending.popleft() for _ in range(count)])
        except KafkaError as error:
            self.stop(error)
            raise self.failure or error from error

    def stop(self, error: KafkaError) -> None:
        """Fail pending and later changes."""
        if self.failure is None:
            self.failure = error
        while self._pending:
            self._fail([self._pending.popleft()], self.failure)

    # -- transactions -----------------------------------------------------------------------------

    async def _commit_all(self, changes: list[_PendingChange]) -> None:
        """Commit changes in one transaction, or else one by one."""
        try:
            await self._commit_together(changes)
        except ApplicationRecoverableError as error:
            failure = error
            if fencing_error(error) and not isinstance(error, DriverFencedError):
                failure = DriverFencedError("another driver has become active")
                failure.__cause__ = error
            self.failure = failure
            self._fail(changes, failure)
            raise failure from error
        except asyncio.CancelledError:
            self._fail(changes, DriverFencedError("the driver was stopped"))
            raise
        except KafkaError as error:
            # One of the changes may be at fault: commit each alone, so that only that one fails.
            if len(changes) == 1:
                self._fail(changes, error)
                return
            logger.warning("a transaction of the job ledger failed, retrying singly: %s", error)
            for change in changes:
                if not change.committed.done():
                    await self._commit_all([change])

    def _fail(self, changes: Sequence[_PendingChange], error: KafkaError) -> None:
        for change in changes:
            if not change.committed.done():
                change.committed.set_exception(error)

    async def _commit_together(self, changes: list[_PendingChange]) -> None:
        transaction = LedgerTransaction(self._state, self._topic)
        included: list[_PendingChange] = []
        for change in changes:
            try:
                transaction.add(change.change)
            except RangeAlreadyProcessedError as error:
                self._fail([change], error)
            else:
                included.append(change)
        if not included:
            return
        await self._commit_with_retries(transaction)
        transaction.commit()
        if transaction.control_offset is not None:
            self._control_offset = max(self._control_offset, transaction.control_offset)
        for change in included:
            if not change.committed.done():
                change.committed.set_result(None)

    async def _commit_with_retries(self, transaction: LedgerTransaction) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_TIMEOUT
        backoff = Backoff(0.02, 1.0)
        records = transaction.close()
        offsets = transaction.group_offsets()
        position = max(self._control_offset, transaction.control_offset or 0)
        while True:
            try:
                async with self._producer.transaction() as txn:
                    await txn.send_records(records)
                    await txn.commit_offsets({self._control: position}, self._generation())
                    for scope, positions in offsets.items():
                        group = self._group_of(scope)
                        if group is not None:
                            await txn.commit_offsets(positions, group)
                    while True:
                        try:
                            await txn.commit()
                            break
                        except TransactionOutcomeUnknownError as error:
                            # The outcome is unknown: wait for the coordinator's response before an
                            # abort or a stop.
                            logger.warning(
                                "the outcome of a ledger transaction is unknown: %s", error
                            )
                return
            except ApplicationRecoverableError:
                raise
            except KafkaError as error:
                # Aborted, for example after a rebalance: the next attempt uses the new generation.
                if loop.time() >= deadline or not _may_succeed_later(error):
                    raise
                logger.info("a transaction of the job ledger was aborted: %s", error)
                await asyncio.sleep(backoff.next())


def _may_succeed_later(error: KafkaError) -> bool:
    from kafka_async.errors import InvalidConfigurationError, RecordTooLargeError

    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    return not any(
        isinstance(one, InvalidConfigurationError | RecordTooLargeError) for one in causes
    )
