"""Transactions on every kind of cluster: atomicity, exactly-once and fencing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async import Admin, OffsetAndMetadata, Producer, TopicPartition
from kafka_async.client.connection.brokers import Brokers
from kafka_async.errors import (
    ApplicationRecoverableError,
    InvalidConfigurationError,
    InvalidTxnStateError,
    KafkaError,
    TransactionAbortableError,
)
from kafka_async.hooks import RequestSent
from kafka_async.producer.transactions.manager import TransactionManager
from tests.integration.helpers import create_topic, read_values

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

END_TXN = 26
"""The key of EndTxn, whose version 5 belongs to transactions v2."""

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]


def producer_of(cluster: ClusterHandle) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id=cluster.transactional_id())


async def test_commits_and_aborts_all_partitions(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster, partitions=3)
    async with producer_of(kafka_cluster) as producer:
        for number in range(6):
            txn = await producer.begin()
            for partition in range(3):
                await txn.enqueue(topic, b"%d" % number, partition=partition)
            await (txn.abort() if number % 2 else txn.commit())
    assert await read_values(kafka_cluster, topic, 3) == [b"0", b"2", b"4"] * 3


async def test_fences_an_older_producer(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    async with producer_of(kafka_cluster) as zombie:
        txn = await zombie.begin()
        await txn.send(topic, b"zombie")
        async with producer_of(kafka_cluster) as successor:
            # Starting the successor has aborted the zombie's open transaction.
            async with successor.transaction() as fresh:
                await fresh.send(topic, b"fresh")
            with pytest.raises(KafkaError) as caught:
                await txn.commit()
            assert not isinstance(caught.value, TransactionAbortableError)
            assert isinstance(caught.value, ApplicationRecoverableError)
            with pytest.raises(ApplicationRecoverableError):
                await zombie.begin()
    assert await read_values(kafka_cluster, topic) == [b"fresh"]


async def test_commits_many_transactions_in_sequence(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    async with producer_of(kafka_cluster) as producer:
        for number in range(50):
            async with producer.transaction() as txn:
                await txn.send_many(topic, [b"%d" % number] * 3)
    expected = [b"%d" % number for number in range(50) for _ in range(3)]
    assert await read_values(kafka_cluster, topic) == expected


async def test_commits_a_transaction_of_many_batches(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    sent = [b"%0100d" % number for number in range(20_000)]
    async with producer_of(kafka_cluster) as producer, producer.transaction() as txn:
        await txn.send_many(topic, sent)
    assert await read_values(kafka_cluster, topic) == sent


@pytest.mark.parametrize("version", [1, 2])
async def test_epoch_bump_ends_an_open_transaction(
    kafka_cluster: ClusterHandle,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    """Checks that a retried InitProducerId, which the coordinator may fence, is not fatal.

    With version 1, as on Kafka 3.9, the producer does not use transactions v2 (KIP-890).
    """
    topic = await create_topic(kafka_cluster)
    of_cluster = Brokers.finalized_feature

    def finalized(brokers: Brokers, name: str) -> int:
        return min(version, of_cluster(brokers, name))

    monkeypatch.setattr(Brokers, "finalized_feature", finalized)

    async def refused(*_: object, **__: object) -> None:
        raise InvalidTxnStateError

    versions: list[int] = []
    async with producer_of(kafka_cluster) as producer:
        producer.client.hooks.listen(
            RequestSent,
            lambda event: versions.append(event.api_version) if event.api_key == END_TXN else None,
        )
        txn = await producer.begin()
        await txn.send(topic, b"aborted")
        with monkeypatch.context() as patch:
            patch.setattr(TransactionManager, "_send_end_txn", refused)
            await txn.abort()
        async with producer.transaction() as txn:
            await txn.send(topic, b"committed")
    has_v2 = not kafka_cluster.cluster.name.startswith("apache 3.")
    assert [number >= 5 for number in versions] == [version == 2 and has_v2]
    assert await read_values(kafka_cluster, topic) == [b"committed"]


async def test_exception_in_the_block_aborts(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)

    async def fail(producer: Producer) -> None:
        async with producer.transaction() as txn:
            await txn.send(topic, b"no")
            raise ZeroDivisionError

    async with producer_of(kafka_cluster) as producer:
        with pytest.raises(ZeroDivisionError):
            await fail(producer)
        async with producer.transaction() as txn:
            await txn.send(topic, b"yes")
    assert await read_values(kafka_cluster, topic) == [b"yes"]


async def test_commits_offsets_with_the_transaction(kafka_cluster: ClusterHandle) -> None:
    topic, group = await create_topic(kafka_cluster), kafka_cluster.group()
    place = TopicPartition(topic, 0)
    async with producer_of(kafka_cluster) as producer:
        async with producer.transaction() as txn:
            await txn.commit_offsets({place: OffsetAndMetadata(5, metadata="five")}, group)
        txn = await producer.begin()
        await txn.commit_offsets({place: 9}, group)
        await txn.abort()
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        offsets = await admin.list_group_offsets(group)
    assert offsets[place].offset == 5


async def test_stop_aborts_an_open_transaction(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster)
    async with producer_of(kafka_cluster) as producer:
        txn = await producer.begin()
        await txn.send(topic, b"open")
    async with producer_of(kafka_cluster) as producer, producer.transaction() as txn:
        await txn.send(topic, b"done")
    assert await read_values(kafka_cluster, topic) == [b"done"]


async def test_refused_record_aborts_only_its_transaction(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster, configs={"max.message.bytes": "2000"})
    async with producer_of(kafka_cluster) as producer:
        txn = await producer.begin()
        deliveries = [
            await txn.enqueue(topic, bytes(5000 if number == 100 else 100)) for number in range(200)
        ]
        with pytest.raises(InvalidConfigurationError, match="MESSAGE_TOO_LARGE") as caught:
            await txn.commit()
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        assert all(each is caught.value for each in outcomes if isinstance(each, Exception))
        assert outcomes[100] is caught.value
        await txn.abort()
        async with producer.transaction() as txn:
            await txn.send(topic, b"next")
    assert await read_values(kafka_cluster, topic) == [b"next"]


@pytest.mark.slow  # Kafka looks for timed-out transactions every 10 s
@pytest.mark.timeout(120)
async def test_producer_recovers_from_a_transaction_that_timed_out(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = await create_topic(kafka_cluster)
    async with Producer(
        kafka_cluster.bootstrap_servers,
        transactional_id=kafka_cluster.transactional_id(),
        transaction_timeout_ms=1000,
    ) as producer:
        txn = await producer.begin()
        await txn.send(topic, b"1")
        async with Admin(kafka_cluster.bootstrap_servers) as admin:
            transactional_id = producer.config.transactional_id
            assert transactional_id is not None
            while (  # noqa: ASYNC110  # in another process
                await admin.describe_transactions([transactional_id])
            )[transactional_id].state != "CompleteAbort":
                await asyncio.sleep(0.2)
        with pytest.raises(TransactionAbortableError, match="probably timed out"):
            await txn.send(topic, b"late")
        await txn.abort()
        async with producer.transaction() as txn:
            await txn.send(topic, b"next")
    assert await read_values(kafka_cluster, topic) == [b"next"]
