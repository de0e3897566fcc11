"""Interceptors, `purge` and the availability timeout of the partitioner (KIP-794) on a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.client import Client, services_of
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.interceptors import ConsumerInterceptor
from kafka_async.errors import RecordPurgedError, RecordTooLargeError
from kafka_async.producer.interceptors import ProducerInterceptor
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.types import TopicPartition
from tests.integration.broker_proxy import Hold, Proxies
from tests.integration.helpers import create_topic
from tests.rebootstrap_roles import poll_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.kernel import Record
    from kafka_async.testing.fixtures import ClusterHandle
    from kafka_async.types import OffsetAndMetadata, ProducerRecord, RecordMetadata

pytestmark = pytest.mark.asyncio

AVAILABILITY_TIMEOUT_MS = 1e-3
"""Shorter than any request; tests/producer/test_availability.py has longer ones on virtual time."""
VALUE = b"v" * 1_000
"""No other record fits into its batch."""


class Tag(ProducerInterceptor):
    """Adds a header, and keeps the outcomes by value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offsets: dict[Any, int | None] = {}
        self.errors: list[BaseException] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, headers=[*record.headers, (self.name, b"")])

    def on_acknowledgement(
        self, record: ProducerRecord, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        if error is None:
            assert metadata is not None
            self.offsets[record.value] = metadata.offset
        else:
            self.errors.append(error)


class Odd(ConsumerInterceptor):
    """Drops records with an even offset, and keeps the committed offsets."""

    def __init__(self) -> None:
        self.committed: list[dict[TopicPartition, int]] = []

    def on_records(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return [record for record in records if record.offset % 2]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append({place: found.offset for place, found in offsets.items()})


async def test_interceptors_of_producer_and_consumer(kafka_cluster: ClusterHandle) -> None:
    """Checks headers, the offsets that the cluster assigned, errors, and commits."""
    topic = await create_topic(kafka_cluster)
    partition = TopicPartition(topic, 0)
    first, second, odd = Tag("first"), Tag("second"), Odd()
    servers = kafka_cluster.bootstrap_servers
    async with Producer(servers, interceptors=[first, second], max_request_size=10_000) as producer:
        for value in (b"0", b"1", b"2", b"3"):
            await producer.send(topic, value)
        with pytest.raises(RecordTooLargeError):
            await producer.send(topic, b"v" * 20_000)
    for tag in (first, second):
        assert tag.offsets == {b"0": 0, b"1": 1, b"2": 2, b"3": 3}
        assert [type(error) for error in tag.errors] == [RecordTooLargeError]
    options: dict[str, Any] = {"group_id": kafka_cluster.group(), "enable_auto_commit": False}
    async with Consumer(
        servers, topics=[topic], auto_offset_reset="earliest", interceptors=[odd], **options
    ) as consumer:
        records: list[Record[Any, Any]] = []
        async with asyncio.timeout(60):
            while len(records) < 2:
                records += await consumer.poll(timeout=1.0)
        assert [(record.offset, record.value) for record in records] == [(1, b"1"), (3, b"3")]
        headers = [[name for name, _ in record.headers] for record in records]
        assert headers == [["first", "second"]] * 2
        assert await consumer.position(partition) == 4
        await consumer.commit()
        assert odd.committed == [{partition: 4}]
        committed = (await consumer.committed([partition]))[partition]
        assert committed is not None
        assert committed.offset == 4


async def port_of_broker(servers: str, broker: int) -> int:
    async with Client(servers) as client:
        return services_of(client).metadata.snapshot.brokers[broker].port


async def test_purge_drops_queued_records_and_those_in_flight(kafka_cluster: ClusterHandle) -> None:
    """Checks that the broker accepts the next batch at once: the producer has another epoch."""
    topic = await create_topic(kafka_cluster, assignments={0: [2]})
    servers = kafka_cluster.bootstrap_servers
    hold = Hold(ProduceRequest.API_KEY, await port_of_broker(servers, 2))
    async with Proxies() as proxies, Producer(servers, dialer=proxies) as producer:
        await producer.send(topic, b"0")
        proxies.hold = hold
        in_flight = await producer.enqueue(topic, b"1")
        async with asyncio.timeout(60):
            await hold.reached.wait()
        queued = await producer.enqueue(topic, b"2")
        assert producer.purge() == 1
        with pytest.raises(RecordPurgedError, match="before it was sent"):
            await queued
        assert producer.purge(queued=False, in_flight=True) == 1
        with pytest.raises(RecordPurgedError):
            await in_flight
        proxies.hold = None
        hold.released.set()
        await producer.send(topic, b"3")
        await producer.send(topic, b"4")
    async with Consumer(
        servers, partitions=[TopicPartition(topic, 0)], auto_offset_reset="earliest"
    ) as consumer:
        # The broker has got the request in flight, which was written before it was forgotten.
        assert await poll_values(consumer, 4) == [b"0", b"1", b"3", b"4"]


async def test_broker_that_accepts_no_batches_is_left_out(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster, assignments={0: [1], 1: [2]})
    servers = kafka_cluster.bootstrap_servers
    hold = Hold(ProduceRequest.API_KEY, await port_of_broker(servers, 2))
    options: dict[str, Any] = {"batch_size": 1, "max_in_flight_requests_per_connection": 1}
    # A broker counts as one that accepts no batches only once a batch for it is due.
    options["linger_ms"] = 0

    async def partitions(producer: Producer) -> set[int]:
        """Send records without a key, one at a time; return the partitions that were chosen."""
        chosen: set[int] = set()
        for _ in range(50):
            delivery = await producer.enqueue(topic, VALUE)
            outcome: Any = delivery.outcome
            chosen.add(outcome.partition)
            await delivery
        return chosen

    async with (
        Proxies() as proxies,
        Producer(
            servers,
            dialer=proxies,
            partitioner_availability_timeout_ms=AVAILABILITY_TIMEOUT_MS,
            **options,
        ) as producer,
        asyncio.timeout(60),
    ):
        await producer.send(topic, VALUE)  # Later records know the topic's partitions.
        assert await partitions(producer) == {0, 1}
        proxies.hold = hold
        await producer.enqueue(topic, VALUE, partition=1)  # It is in flight.
        await hold.reached.wait()
        await producer.enqueue(topic, VALUE, partition=1)  # The broker does not accept it.
        await producer.send(topic, VALUE, partition=0)  # The timeout is over before the response.
        assert await partitions(producer) == {0}
        proxies.hold = None
        hold.released.set()
        await producer.flush()
        assert await partitions(producer) == {0, 1}
