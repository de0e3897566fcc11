"""Sends the requests of an exactly-once sink: its ledger, and the transactions of its tasks."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from kafka_async.admin import Admin, ConfigResource, NewTopic, OffsetSpec, ResourceType
from kafka_async.client.client import Client, services_of
from kafka_async.client.metadata.request_router import CoordinatorOfTransactionalId, Leader
from kafka_async.client.wire.requested_rows import requested_row
from kafka_async.client.wire.topic_ids import LAST_VERSION_WITH_NAMES
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import (
    IncompleteResponseError,
    InvalidConfigurationError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    InvalidTxnTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RetriableError,
    TopicExistsError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
    error_for,
    raise_for,
)
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.records.batch import iter_batches
from kafka_async.spark.sink.ledger import (
    Ledger,
    LedgerRecord,
    Outcome,
    has_head,
    ids_of_plans,
    read_ledger,
)
from kafka_async.spark.sink.sink_driver import LedgerLockLostError
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from kafka_async.config import ProducerConfig
    from kafka_async.types import PreparedTransaction

logger = logging.getLogger("kafka_async.spark")

LEDGER_TRANSACTION_TIMEOUT_MS: Final = 30_000
"""Transaction time-out of the ledger's producer; usually the next driver's lock ends a killed
driver's transaction earlier.
"""
READ_TIMEOUT: Final = 60.0
"""Seconds to wait for open ledger transactions of other sinks."""
OUTCOME_TIMEOUT: Final = 30.0
"""Seconds to wait for the markers of a transaction."""
TAIL: Final = 200
"""Offsets at the end of the ledger to read first; then eight times as many each time they do not
suffice.
"""
READ_COMMITTED: Final = 1
_ENDED_OTHERWISE: Final = (
    InvalidTxnStateError,
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidPidMappingError,
    TransactionAbortableError,
)
"""Errors for a transaction that has ended, committed or not."""
LEDGER_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}


@asynccontextmanager
async def open_cluster(
    config: ProducerConfig, sink: str, ledger_topic: str
) -> AsyncGenerator[KafkaSinkCluster]:
    """Connect; disconnect at the end of the block."""
    async with Client(config=config) as client:
        cluster = KafkaSinkCluster(client, sink, ledger_topic)
        try:
            yield cluster
        finally:
            await cluster.unlock()


class KafkaSinkCluster:
    """Implements `SinkCluster` for one sink.

    Args:
        client: A started client.
        sink: The sinkId.
        ledger_topic: Topic of the ledger, which is created if it does not exist.
    """

    def __init__(self, client: Client, sink: str, ledger_topic: str) -> None:
        self._client = client
        self._admin = Admin(client)
        self._sink = sink
        self._ledger = TopicPartition(ledger_topic, 0)
        self._producer: Producer | None = None
        self._name = f"{sink}:ledger"

    async def check(self, transaction_timeout_ms: int) -> None:
        """Create a missing ledger topic; check the topic and the transaction time-out.

        Raises:
            InvalidConfigurationError: The topic is not compacted, or the time-out is above the
                brokers' transaction.max.timeout.ms.
        """
        request = InitProducerIdRequest(
            transactional_id=f"{self._sink}:timeout-check",
            transaction_timeout_ms=transaction_timeout_ms,
        )
        to = CoordinatorOfTransactionalId(f"{self._sink}:timeout-check")
        response = await self._client.request(request, to=to)
        error = error_for(response.error_code, needs="WRITE") if response.error_code else None
        if isinstance(error, InvalidTxnTimeoutError):
            raise InvalidConfigurationError(
                f"transactionTimeoutMs={transaction_timeout_ms} is above the brokers' "
                "transaction.max.timeout.ms: lower it, or raise the brokers' limit"
            ) from error
        if error is not None and not isinstance(error, RetriableError):
            raise error
        topic = NewTopic(self._ledger.topic, 1, configs=LEDGER_CONFIGS)
        resource = ConfigResource(ResourceType.TOPIC, self._ledger.topic)
        try:
            await self._admin.describe_topics([self._ledger.topic])
        except UnknownTopicOrPartitionError:
            try:
                await self._admin.create_topics([topic])
            except TopicExistsError:
                pass
        configs = (await self._admin.describe_configs([resource]))[resource]
        policy = configs["cleanup.policy"].value
        if policy != "compact":
            raise InvalidConfigurationError(
                f"the ledger's topic {self._ledger.topic} has cleanup.policy={policy}, so it would "
                "forget what is committed: set cleanup.policy=compact, or another ledgerTopic"
            )

    # -- the ledger -------------------------------------------------------------------------------

    async def lock(self) -> None:
        """Fence earlier writers of the sink's ledger."""
        await self.unlock()
        self._producer = Producer(
            self._client,
            transactional_id=self._name,
            transaction_timeout_ms=LEDGER_TRANSACTION_TIMEOUT_MS,
            linger_ms=0,
        )
        await self._producer.start()

    async def unlock(self) -> None:
        """Close the ledger's producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def write(self, records: Sequence[LedgerRecord]) -> None:
        """Write records in one transaction."""
        assert self._producer is not None, "the ledger is not locked"
        try:
            async with self._producer.transaction() as txn:
                for key, value in records:
                    await txn.enqueue(self._ledger.topic, value, key=key, partition=0)
        except KafkaError as error:
            if _is_fenced(error):
                raise LedgerLockLostError(
                    f"another driver writes to the ledger: {error}"
                ) from error
            raise

    async def read(self, *, everything: bool = False) -> Ledger:
        """Read the ledger's committed records up to its present end.

        Waits for another sink's open transaction, since this sink's records may follow it.
        """
        latest = await self._admin.list_offsets({self._ledger: OffsetSpec.LATEST})
        end = latest[self._ledger].offset
        size = end if everything else TAIL
        async with Consumer(
            self._client,
            partitions=[self._ledger],
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
        ) as consumer:
            while True:
                start = max(0, end - size)
                records = await self._read_from(consumer, start, end)
                found = read_ledger(self._sink, records)
                if start == 0 or (has_head(self._sink, records) and found.is_complete):
                    return found
                # Too short: it lacks the sink's head, or an entry of the open epoch. Other sinks
                # share the ledger.
                size *= 8

    async def _read_from(self, consumer: Consumer, start: int, end: int) -> list[LedgerRecord]:
        if start == 0:
            await consumer.seek_to_beginning()
        else:
            consumer.seek(self._ledger, start)
        records: list[LedgerRecord] = []
        deadline = asyncio.get_running_loop().time() + READ_TIMEOUT
        while await consumer.position(self._ledger) < end:
            polled = await consumer.poll(timeout=0.5)
            records += [(record.key or b"[null]", record.value) for record in polled]
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaTimeoutError(
                    "a transaction of another sink is open in the ledger: wait for its time-out, "
                    "or give this sink its own ledgerTopic",
                    topic=self._ledger.topic,
                    partition=0,
                )
        return records

    # -- transactions of tasks --------------------------------------------------------------------

    async def not_open(self, transactions: Sequence[PreparedTransaction]) -> dict[str, str]:
        """Return the states of transactions that have ended or belong to another producer."""
        if not transactions:
            return {}
        names = [each.transactional_id for each in transactions]
        rows = await self._admin.describe_transactions(names)
        over: dict[str, str] = {}
        for each in transactions:
            row = rows[each.transactional_id]
            if (row.producer_id, row.producer_epoch) != (each.producer_id, each.epoch):
                over[each.transactional_id] = f"{row.state} with another producer epoch"
            elif row.state != "Ongoing":
                over[each.transactional_id] = row.state
        return over

    async def commit(self, transaction: PreparedTransaction) -> Outcome:
        """Commit a transaction; if it has already ended, find its outcome in the log."""
        try:
            await self._admin.end_transaction(transaction, commit=True)
        except _ENDED_OTHERWISE as error:
            outcome = await self._outcome(transaction)
            logger.info("%s: %s: it is %s", transaction.transactional_id, error, outcome.value)
            return outcome
        return Outcome.COMMITTED

    async def unfinished(self, plans: Iterable[int]) -> list[str]:
        """Return the plans' transactional ids that have an open transaction or may begin one."""
        found = await self._admin.list_transactions(
            states=["Empty", "Ongoing"], pattern=ids_of_plans(self._sink, plans)
        )
        return sorted(found)

    async def fence(self, transactional_ids: Sequence[str]) -> None:
        """Fence producers and abort their transactions."""
        if transactional_ids:
            await self._admin.fence_producers(transactional_ids)

    async def _outcome(self, transaction: PreparedTransaction) -> Outcome:
        """Return the outcome of an ended transaction, from the partition of its first record."""
        deadline = asyncio.get_running_loop().time() + OUTCOME_TIMEOUT
        for partition, (first, _) in transaction.offsets.items():
            while (found := await self._fetch_outcome(transaction, partition, first)) is None:
                if asyncio.get_running_loop().time() > deadline:
                    raise KafkaTimeoutError(
                        "the markers of a transaction are not written: the partition may hold an "
                        "older open transaction",
                        topic=partition.topic,
                        partition=partition.partition,
                        offset=first,
                    )
                await asyncio.sleep(0.1)
            if found is not Outcome.UNKNOWN:
                return found
        return Outcome.UNKNOWN

    async def _fetch_outcome(
        self, transaction: PreparedTransaction, partition: TopicPartition, offset: int
    ) -> Outcome | None:
        """Fetch at an offset, with the aborted transactions; return None before it is stable."""
        request = FetchRequest.from_dict(
            {
                "max_wait_ms": 0,
                "max_bytes": 1,
                "isolation_level": READ_COMMITTED,
                "session_epoch": -1,
                "topics": [
                    {
                        "topic": partition.topic,
                        "partitions": [
                            {
                                "partition": partition.partition,
                                "fetch_offset": offset,
                                "partition_max_bytes": 1,
                            }
                        ],
                    }
                ],
            }
        )
        response = await services_of(self._client).request(
            request,
            to=Leader(partition),
            max_version=LAST_VERSION_WITH_NAMES[FetchRequest.API_KEY],
        )
        raise_for(response.error_code)
        try:
            topic = requested_row(partition.topic, response.responses, lambda row: row.topic)
            row = requested_row(
                partition.partition, topic.partitions, lambda row: row.partition_index
            )
        except IncompleteResponseError:
            return None
        if row.error_code:
            error = error_for(row.error_code, topic=partition.topic, partition=partition.partition)
            if isinstance(error, OffsetOutOfRangeError):
                return Outcome.UNKNOWN
            if isinstance(error, RetriableError):
                return None
            raise error
        # The transaction's end is decided once the last stable offset is past its record. Aborted
        # transactions are listed. Otherwise the log contains the record (committed), or retention
        # or compaction has removed it (unknown).
        if row.last_stable_offset <= offset:
            return None
        if any(
            each.producer_id == transaction.producer_id and each.first_offset <= offset
            for each in row.aborted_transactions or ()
        ):
            return Outcome.ABORTED
        for batch in iter_batches(bytes(row.records or b""), topic=partition.topic):
            header = batch.header
            if header.producer_id == transaction.producer_id and header.base_offset <= offset:
                return Outcome.COMMITTED
        return Outcome.UNKNOWN


def _is_fenced(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(
            error, ProducerFencedError | InvalidProducerEpochError | InvalidPidMappingError
        ):
            return True
        error = error.__cause__
    return False
