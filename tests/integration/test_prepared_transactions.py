"""Transactions that one producer prepares and another process ends, and EndTxn sent twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kafka_async import Admin, PreparedTransaction, Producer, TopicPartition
from kafka_async.errors import (
    ApplicationRecoverableError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionStateError,
)
from tests.integration.helpers import create_topic, read_values

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]

ENDED_OTHERWISE = (
    InvalidTxnStateError,
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidPidMappingError,
)
PROGRAM = """
import asyncio, json, sys
from kafka_async import Admin, PreparedTransaction

async def main():
    servers, name, producer_id, epoch, version = json.loads(sys.argv[1])
    prepared = PreparedTransaction(name, producer_id, epoch, version)
    async with Admin(servers) as admin:
        await admin.end_transaction(prepared, commit=True)

asyncio.run(main())
"""


async def prepare(
    cluster: ClusterHandle, topic: str, value: bytes = b"v", *, timeout_ms: int = 60_000
) -> PreparedTransaction:
    """Prepare a transaction with one record, and stop its producer."""
    async with Producer(
        cluster.bootstrap_servers,
        transactional_id=cluster.transactional_id(topic),
        transaction_timeout_ms=timeout_ms,
    ) as producer:
        txn = await producer.begin()
        await txn.enqueue(topic, value)
        prepared = await txn.prepare()
    assert prepared is not None
    return prepared


async def end(cluster: ClusterHandle, prepared: PreparedTransaction, *, commit: bool) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.end_transaction(prepared, commit=commit)


async def state(cluster: ClusterHandle, prepared: PreparedTransaction) -> str:
    async with Admin(cluster.bootstrap_servers) as admin:
        rows = await admin.describe_transactions([prepared.transactional_id])
    return rows[prepared.transactional_id].state


async def until_state(cluster: ClusterHandle, prepared: PreparedTransaction, wanted: str) -> None:
    async with asyncio.timeout(60):
        while await state(cluster, prepared) != wanted:  # noqa: ASYNC110  # There is no event.
            await asyncio.sleep(0.1)


async def test_another_process_commits_twice_with_the_prepared_epoch(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = await create_topic(kafka_cluster)
    prepared = await prepare(kafka_cluster, topic)
    assert prepared.offsets == {TopicPartition(topic, 0): (0, 0)}
    assert await state(kafka_cluster, prepared) == "Ongoing"
    arguments = json.dumps(
        [
            kafka_cluster.bootstrap_servers,
            prepared.transactional_id,
            prepared.producer_id,
            prepared.epoch,
            prepared.version,
        ]
    )
    for _ in range(2):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", PROGRAM, arguments],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    await until_state(kafka_cluster, prepared, "CompleteCommit")
    await end(kafka_cluster, prepared, commit=True)  # After its markers, too.
    assert await read_values(kafka_cluster, topic) == [b"v"]


async def test_a_committed_transaction_cannot_be_aborted_nor_the_reverse(
    kafka_cluster: ClusterHandle,
) -> None:
    for commit in (True, False):
        topic = await create_topic(kafka_cluster, f"topic-{commit}")
        prepared = await prepare(kafka_cluster, topic)
        await end(kafka_cluster, prepared, commit=commit)
        await until_state(kafka_cluster, prepared, "CompleteCommit" if commit else "CompleteAbort")
        with pytest.raises(InvalidTxnStateError):
            await end(kafka_cluster, prepared, commit=not commit)
        assert await read_values(kafka_cluster, topic) == [b"v"] * commit


async def test_an_expired_transaction_is_not_committed(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    prepared = await prepare(kafka_cluster, topic, timeout_ms=1_000)
    await until_state(kafka_cluster, prepared, "CompleteAbort")
    for _ in range(2):
        with pytest.raises(ENDED_OTHERWISE):
            await end(kafka_cluster, prepared, commit=True)
    assert await read_values(kafka_cluster, topic) == []


@pytest.mark.parametrize("committed", [True, False])
async def test_a_new_producer_makes_the_prepared_epoch_useless(
    kafka_cluster: ClusterHandle, committed: bool
) -> None:
    """The error is the same in both cases, so it does not tell the transaction's outcome."""
    topic = await create_topic(kafka_cluster)
    prepared = await prepare(kafka_cluster, topic)
    if committed:
        await end(kafka_cluster, prepared, commit=True)
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        await admin.fence_producers([prepared.transactional_id])
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        await end(kafka_cluster, prepared, commit=True)
    assert await read_values(kafka_cluster, topic) == [b"v"] * committed


async def test_lists_open_transactions_by_state_and_pattern(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    prepared = await prepare(kafka_cluster, topic)
    name = prepared.transactional_id
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        for pattern in (name, name[:-1] + "."):
            found = await admin.list_transactions(states=["Ongoing"], pattern=pattern)
            assert [(row.transactional_id, row.state) for row in found.values()] == [
                (name, "Ongoing")
            ]
        assert name not in await admin.list_transactions(pattern=name[:-1])
        assert name not in await admin.list_transactions(states=["Empty"])
        row = (await admin.describe_transactions([name]))[name]
        assert (row.producer_id, row.producer_epoch) == (prepared.producer_id, prepared.epoch)
        assert row.partitions == {TopicPartition(topic, 0)}
        assert row.timeout_ms == 60_000
        assert row.start_time is not None
        await admin.fence_producers([name])
        assert await admin.list_transactions(states=["Ongoing"], pattern=name) == {}
    assert await read_values(kafka_cluster, topic) == []


async def test_a_prepared_transaction_can_be_ended_by_its_producer(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = await create_topic(kafka_cluster)
    async with Producer(
        kafka_cluster.bootstrap_servers, transactional_id=kafka_cluster.transactional_id()
    ) as producer:
        txn = await producer.begin()
        assert await txn.prepare() is None  # Without contents it is over.
        with pytest.raises(TransactionStateError):
            await txn.commit()
        for end_it, value in (("commit", b"1"), ("abort", b"2"), ("commit", b"3")):
            txn = await producer.begin()
            await txn.enqueue(topic, value)
            await txn.prepare()
            with pytest.raises(TransactionStateError, match="prepared"):
                await txn.enqueue(topic, b"late")
            with pytest.raises(TransactionStateError, match="prepared"):
                await producer.begin()
            await getattr(txn, end_it)()
        with pytest.raises(ZeroDivisionError):
            await fail_after_prepare(producer, topic)
    assert await read_values(kafka_cluster, topic) == [b"1", b"3"]


async def fail_after_prepare(producer: Producer, topic: str) -> None:
    async with producer.transaction() as txn:
        await txn.enqueue(topic, b"4")
        await txn.prepare()
        raise ZeroDivisionError


async def test_prepare_raises_the_error_of_a_record(kafka_cluster: ClusterHandle) -> None:
    async with Producer(
        kafka_cluster.bootstrap_servers,
        transactional_id=kafka_cluster.transactional_id(),
        max_request_size=20_000_000,
        buffer_memory=40_000_000,
    ) as producer:
        topic = await create_topic(kafka_cluster, configs={"max.message.bytes": "1000"})
        txn = await producer.begin()
        await txn.enqueue(topic, bytes(2_000))
        with pytest.raises(KafkaError) as raised:
            await txn.prepare()
        assert not isinstance(raised.value, ApplicationRecoverableError)
        await txn.abort()
