"""Tests of clients whose bootstrap name leads to another cluster, as after a DNS failover."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.admin import Admin, ConfigResource, ResourceType
from kafka_async.client.client import services_of
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.embedded import EmbeddedCluster
from kafka_async.errors import (
    ApplicationRecoverableError,
    CommitFailedError,
    InvalidPidMappingError,
    KafkaError,
    TransactionOutcomeUnknownError,
)
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kafka_async.protocol.messages.share_fetch import ShareFetchRequest
from kafka_async.types import OffsetAndMetadata, TopicPartition
from tests.embedded_client import InMemory, batches_of, until
from tests.rebootstrap_roles import BOOTSTRAP_NAME, BootstrapName, poll_values

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from kafka_async.records.batch import BatchView

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

P0 = TopicPartition("t", 0)
FORMER, OTHER = "former", "other"


class World:
    """Two clusters with the same topic, of which the bootstrap name leads to the first."""

    def __init__(self, memory: InMemory, other: EmbeddedCluster) -> None:
        self.former = memory
        self.other = other
        self.name = BootstrapName(memory.network, memory.address(1))
        self.options: dict[str, Any] = {"dialer": self.name}
        self.direct: dict[str, Any] = {"dialer": memory.network}

    async def fail_over(self) -> None:
        """Stop the first cluster, and let the bootstrap name lead to the other one."""
        for broker in self.former.cluster.brokers:
            await self.former.cluster.stop_broker(broker)
        self.name.target = self.other.bootstrap_servers.split(",")[0]

    async def produce(self, servers: str, values: Sequence[bytes]) -> None:
        async with Producer(servers, **self.direct) as producer:
            for value in values:
                await producer.send("t", value, partition=0)

    def batches(self) -> list[BatchView]:
        """Return the batches that the other cluster has."""
        partition = self.other.topics.partition(P0)
        assert partition is not None
        return batches_of(partition.log)

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches() for record in batch.records()]


@asynccontextmanager
async def two_clusters() -> AsyncGenerator[World]:
    async with (
        InMemory(2, cluster_id=FORMER) as memory,
        EmbeddedCluster(2, network=memory.network, cluster_id=OTHER) as other,
    ):
        for cluster in (memory.cluster, other):
            await cluster.create_topic("t", 1)
        yield World(memory, other)
        assert other.failures == []


async def test_producer_gets_another_producer_id() -> None:
    """Checks that batches which may have been written are sent with new sequences."""
    async with two_clusters() as world:
        await world.produce(world.other.bootstrap_servers, [b"theirs"] * 3)
        async with Producer(BOOTSTRAP_NAME, **world.options) as producer:
            for value in (b"0", b"1"):
                await producer.send("t", value, partition=0)
            held = world.former.hang("Produce")
            pending = asyncio.create_task(producer.send("t", b"2", partition=0))
            await held.wait()
            await world.fail_over()
            await pending
            await producer.send("t", b"3", partition=0)
        assert world.values() == [b"theirs"] * 3 + [b"2", b"3"]
        theirs, ours = world.batches()[0].header, [b.header for b in world.batches()[3:]]
        assert {header.producer_id for header in ours} != {theirs.producer_id}
        assert len({header.producer_id for header in ours}) == 1
        assert [header.base_sequence for header in ours] == [0, 1]


async def test_open_transaction_fails_as_application_recoverable() -> None:
    async with two_clusters() as world:
        options: dict[str, Any] = {**world.options, "transactional_id": "x"}
        async with Producer(BOOTSTRAP_NAME, **options) as producer:
            transaction = await producer.begin()
            await transaction.send("t", b"0", partition=0)
            await world.fail_over()
            with pytest.raises(ApplicationRecoverableError, match="another cluster") as raised:
                await transaction.send("t", b"1", partition=0)
            assert isinstance(raised.value, InvalidPidMappingError)
            with pytest.raises(ApplicationRecoverableError):
                await transaction.commit()
        assert world.values() == []
        async with (
            Producer(BOOTSTRAP_NAME, **options) as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send("t", b"2", partition=0)
        assert world.values() == [b"2"]


async def test_commit_with_an_unknown_outcome_cannot_be_repeated_on_another_cluster() -> None:
    """Checks that the producer closes without an error too."""
    async with two_clusters() as world:
        options: dict[str, Any] = {**world.options, "transactional_id": "x", "max_block_ms": 3_000}
        async with Producer(BOOTSTRAP_NAME, **options) as producer:
            transaction = await producer.begin()
            await transaction.send("t", b"0", partition=0)
            world.former.hang("EndTxn")
            with pytest.raises(TransactionOutcomeUnknownError):
                await transaction.commit()
            await world.fail_over()
            await until(lambda: cluster_id_of(producer) == OTHER)
            with pytest.raises(InvalidPidMappingError, match="follows another cluster"):
                await transaction.commit()
        assert world.values() == []


async def test_transactional_producer_without_open_transaction_continues() -> None:
    async with two_clusters() as world:
        options: dict[str, Any] = {**world.options, "transactional_id": "x"}
        async with Producer(BOOTSTRAP_NAME, **options) as producer:
            async with producer.transaction() as transaction:
                await transaction.send("t", b"0", partition=0)
            await world.fail_over()
            await until(lambda: cluster_id_of(producer) == OTHER)
            async with producer.transaction() as transaction:
                await transaction.send("t", b"1", partition=0)
        assert world.values() == [b"1"]


async def test_consumer_resets_positions_of_its_partitions() -> None:
    async with two_clusters() as world:
        await world.produce(world.former.cluster.bootstrap_servers, [b"a", b"b", b"c"])
        await world.produce(world.other.bootstrap_servers, [b"0", b"1", b"2", b"3", b"4"])
        async with Consumer(
            BOOTSTRAP_NAME, partitions=[P0], auto_offset_reset="earliest", **world.options
        ) as consumer:
            assert await poll_values(consumer, 3) == [b"a", b"b", b"c"]
            await world.fail_over()
            assert await poll_values(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
            assert await consumer.position(P0) == 5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_member_joins_group_of_other_cluster_at_its_committed_offset(protocol: Any) -> None:
    async with two_clusters() as world:
        await world.produce(world.former.cluster.bootstrap_servers, [b"a", b"b", b"c"])
        await world.produce(world.other.bootstrap_servers, [b"0", b"1", b"2", b"3", b"4"])
        async with Admin(world.other.bootstrap_servers, **world.direct) as admin:
            await admin.alter_group_offsets("g", {P0: OffsetAndMetadata(2)})
        lost: list[TopicPartition] = []
        async with Consumer(
            BOOTSTRAP_NAME,
            topics=["t"],
            group_id="g",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            **world.options,
        ) as consumer:
            consumer.on_lost(lost.extend)
            assert await poll_values(consumer, 3) == [b"a", b"b", b"c"]
            member = consumer.group_metadata()
            await world.fail_over()
            assert await poll_values(consumer, 3) == [b"2", b"3", b"4"]
            assert lost == [P0]
            assert consumer.group_metadata().member_id not in ("", member.member_id)
            await consumer.commit()
            committed = (await consumer.committed([P0]))[P0]
            assert committed is not None
            assert committed.offset == 5


async def test_transactional_producer_that_starts_gets_its_id_from_the_other_cluster() -> None:
    async with two_clusters() as world:
        options: dict[str, Any] = {**world.options, "transactional_id": "x"}
        producer = Producer(BOOTSTRAP_NAME, **options)
        held = world.former.hang("InitProducerId")
        starting = asyncio.create_task(producer.start())
        await held.wait()
        await world.fail_over()
        await starting
        async with producer.transaction() as transaction:
            await transaction.send("t", b"0", partition=0)
        await producer.stop()
        assert world.values() == [b"0"]


@pytest.mark.parametrize("kind", ["manual", "classic", "consumer"])
@pytest.mark.parametrize("metadata_delay", [0.0, 10.0])
async def test_pending_commit_of_former_positions_fails(kind: Any, metadata_delay: float) -> None:
    """Checks that the offsets are not committed for the group of the other cluster.

    With a delay its coordinator could be found before its metadata has arrived.
    """
    async with two_clusters() as world:
        await world.produce(world.former.cluster.bootstrap_servers, [b"a", b"b", b"c"])
        options: dict[str, Any] = {"group_protocol": kind, "topics": ["t"]}
        if kind == "manual":
            options = {"partitions": [P0]}
        async with Consumer(
            BOOTSTRAP_NAME,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
            **world.options,
        ) as consumer:
            assert await poll_values(consumer, 3) == [b"a", b"b", b"c"]
            polling = asyncio.create_task(poll_values(consumer, 1))
            committing = asyncio.create_task(consumer.commit({P0: 3}))
            held = world.former.hang("OffsetCommit")
            await held.wait()
            metadata = world.other.faults.add(api="Metadata", delay=metadata_delay, count=None)
            await world.fail_over()
            with pytest.raises(CommitFailedError, match="follows another cluster"):
                await committing
            metadata.remove()
            await world.produce(world.other.bootstrap_servers, [b"0"])
            assert await polling == [b"0"]
            assert await consumer.committed([P0]) == {P0: None}


async def test_commit_of_transaction_in_flight_is_not_repeated_on_another_cluster() -> None:
    """The other cluster has a transaction of the same id, producer id and epoch."""
    async with two_clusters() as world:
        options: dict[str, Any] = {"transactional_id": "x"}
        async with (
            Producer(world.other.bootstrap_servers, **options, **world.direct) as theirs,
            Producer(BOOTSTRAP_NAME, **options, **world.options) as producer,
        ):
            foreign = await theirs.begin()
            await foreign.send("t", b"theirs", partition=0)
            transaction = await producer.begin()
            await transaction.send("t", b"0", partition=0)
            held = world.former.hang("EndTxn")
            committing = asyncio.create_task(transaction.commit())
            await held.wait()
            await world.fail_over()
            with pytest.raises(ApplicationRecoverableError, match="follows another cluster"):
                await committing
            await foreign.abort()
        assert world.values() == [b"theirs"]


async def test_share_consumer_joins_group_of_other_cluster() -> None:
    async with two_clusters() as world:
        for servers in (world.former.cluster.bootstrap_servers, world.other.bootstrap_servers):
            await world.produce(servers, [servers.encode()])
            async with Admin(servers, **world.direct) as admin:
                group = ConfigResource(ResourceType.GROUP, "g")
                await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
        async with ShareConsumer(
            BOOTSTRAP_NAME, topics=["t"], group_id="g", **world.options
        ) as consumer:
            (record,) = await consumer.poll(timeout=30.0)
            assert record.value == world.former.cluster.bootstrap_servers.encode()
            await consumer.commit()
            await world.fail_over()
            (record,) = await consumer.poll(timeout=60.0)
            assert record.value == world.other.bootstrap_servers.encode()


@pytest.mark.parametrize("sent", [False, True])
async def test_pending_acknowledgements_are_not_sent_to_another_cluster(sent: bool) -> None:
    """Checks that they are reported as failed, and that the other cluster's record is delivered."""
    async with two_clusters() as world:
        for servers in (world.former.cluster.bootstrap_servers, world.other.bootstrap_servers):
            await world.produce(servers, [servers.encode()])
            async with Admin(servers, **world.direct) as admin:
                group = ConfigResource(ResourceType.GROUP, "g")
                await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
        options: dict[str, Any] = {"topics": ["t"], "share_acknowledgement_mode": "explicit"}
        failed: list[tuple[TopicPartition, frozenset[int], KafkaError | None]] = []
        acknowledged: list[int] = []

        def count_acknowledgements(context: Any, request: Any) -> bool:
            if isinstance(request, (ShareAcknowledgeRequest, ShareFetchRequest)):
                partitions = [part for topic in request.topics for part in topic.partitions]
                acknowledged.extend(len(part.acknowledgement_batches) for part in partitions)
            return False

        world.other.faults.add(when=count_acknowledgements, count=None)
        async with ShareConsumer(
            BOOTSTRAP_NAME, group_id="g", **options, **world.options
        ) as consumer:
            consumer.on_acknowledged(lambda at, offsets, error: failed.append((at, offsets, error)))
            (record,) = await consumer.poll(timeout=30.0)
            consumer.acknowledge(record)
            if sent:
                held = world.former.hang("ShareAcknowledge")
                committing = asyncio.create_task(consumer.commit())
                await held.wait()
                await world.fail_over()
                outcome = await committing
            else:
                await world.fail_over()
                outcome = await consumer.commit(timeout=60.0)
            assert isinstance(outcome[P0], KafkaError)
            assert failed == [(P0, frozenset({0}), outcome[P0])]
            assert sum(acknowledged) == 0
            (record,) = await consumer.poll(timeout=60.0)
            assert record.value == world.other.bootstrap_servers.encode()
            assert record.delivery_count == 1
            consumer.acknowledge(record)
            assert await consumer.commit() == {P0: None}
        assert sum(acknowledged) == 1  # the other cluster's record


async def test_admin_follows_with_one_warning_that_names_both_clusters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_clusters() as world, Admin(BOOTSTRAP_NAME, **world.options) as admin:
        assert (await admin.describe_cluster()).cluster_id == FORMER
        await world.fail_over()
        assert (await admin.describe_cluster()).cluster_id == OTHER
    found = [row.getMessage() for row in caplog.records if row.levelno == logging.WARNING]
    (warning,) = [message for message in found if "responds, not" in message]
    assert warning.startswith(f"cluster {OTHER} responds, not {FORMER}: ")


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_follows_cluster_at_former_addresses_without_the_check(strategy: Any) -> None:
    """Checks that a metadata response of another cluster is noticed by its cluster id.

    The other cluster's features replace those of the former one, which was changed more often.
    """

    def raise_features_epoch(response: Any) -> None:
        response.finalized_features_epoch = 1000

    async with InMemory(2, cluster_id=FORMER) as memory:
        memory.cluster.faults.add(api="ApiVersions", count=None, change=raise_features_epoch)
        await memory.cluster.create_topic("t", 1)
        async with memory.client(
            metadata_cluster_check_enable=False, metadata_recovery_strategy=strategy
        ) as client:
            producer = Producer(client)
            await producer.start()
            await producer.send("t", b"0", partition=0)
            brokers = services_of(producer.client).brokers
            assert brokers.finalized_feature("transaction.version") == 2
            ports = [broker.port for broker in memory.cluster.brokers.values()]
            for broker in memory.cluster.brokers:
                await memory.cluster.stop_broker(broker)
            async with EmbeddedCluster(
                2,
                ports=ports,
                network=memory.network,
                cluster_id=OTHER,
                transaction_version=1,
            ) as other:
                await other.create_topic("t", 1)
                await until(lambda: cluster_id_of(producer) == OTHER)
                assert brokers.finalized_feature("transaction.version") == 1
                await producer.send("t", b"1", partition=0)
                partition = other.topics.partition(P0)
                assert partition is not None
                (batch,) = batches_of(partition.log)
                assert batch.header.base_sequence == 0
                await producer.stop()
                await client.stop()
            assert other.failures == []


def cluster_id_of(producer: Producer) -> str | None:
    """Return the id of the cluster that a producer's client follows."""
    return services_of(producer.client).metadata.snapshot.cluster_id
