"""Clients whose bootstrap name leads to another real cluster, as after a DNS failover.

tests/client/test_other_cluster.py has requests that are in flight meanwhile, in virtual time.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from kafka_async.admin import Admin, NewTopic
from kafka_async.client.client import Client
from kafka_async.client.metadata.request_router import (
    AnyBroker,
    Broker,
    Controller,
    CoordinatorOfGroup,
    Leader,
)
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.errors import (
    ApplicationRecoverableError,
    InvalidPidMappingError,
    KafkaError,
    raise_for,
)
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.types import OffsetAndMetadata, TopicPartition
from tests.integration.moving_cluster import chosen_backends, first_address, kill_brokers
from tests.rebootstrap_roles import (
    AFTER,
    BEFORE,
    BOOTSTRAP_NAME,
    PATIENCE_MS,
    PRODUCER_PATIENCE,
    SHORT_SETUP,
    BootstrapName,
    Place,
    Role,
    SocketDialer,
    each,
    poll_values,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.consumer.share.share_consumer import ShareRecord
    from kafka_async.foundation.clock import Dialer
    from tests.integration.moving_cluster import Moving

pytestmark = [pytest.mark.asyncio]

THEIRS = [b"theirs-%d" % number for number in range(5)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the test once on each chosen backend whose clusters a test can start and kill."""
    marks = {"embedded": [], "apache": [pytest.mark.slow]}
    chosen = [pytest.param(name, marks=marks[name]) for name in chosen_backends(metafunc)]
    metafunc.parametrize("two_clusters", chosen, indirect=True)


class Follower(Role):
    """One client, which follows the bootstrap name from one cluster to the other.

    `before` makes the state at the first cluster that must not be carried over, and `after` checks
    that the client works on the other one. Its topics are in both.

    Attributes:
        other: A place at the other cluster, for its state there.
    """

    def __init__(self, place: Place, other: Place, stack: AsyncExitStack) -> None:
        super().__init__(place, stack)
        self.other = other
        self.partition = TopicPartition(self.topic, 0)

    def options(self, patience: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        return {**super().options(patience), "client_id": self.topic}

    def topics(self) -> list[str]:
        return [self.topic]

    async def create_topics(self) -> None:
        for place in (self.place, self.other):
            async with Admin(place.servers, dialer=place.dialer) as admin:
                await admin.create_topics([NewTopic(topic, 1, 1) for topic in self.topics()])

    async def during(self) -> None:
        """Make no calls."""


class SequenceFollower(Follower):
    """A producer, whose producer id and sequences are dropped."""

    name = "producer"

    async def before(self) -> None:
        self.producer = await self.stack.enter_async_context(
            Producer(self.place.servers, **self.options(PRODUCER_PATIENCE))
        )
        for value in BEFORE:
            await self.producer.send(self.topic, value, partition=0)
        await self.other.produce(self.topic, THEIRS)

    async def after(self) -> None:
        for value in AFTER:
            await self.producer.send(self.topic, value, partition=0)
        batches = await self.other.batches(self.topic)
        values = [record.value for batch in batches for record in batch.records()]
        assert values == THEIRS + AFTER
        own = [batch.header for batch in batches[len(THEIRS) :]]
        assert [header.base_sequence for header in own] == [0, 1, 2]
        assert len({header.producer_id for header in own}) == 1
        assert own[0].producer_id != batches[0].header.producer_id


class TransactionFollower(Follower):
    """A producer, whose open transaction fails; a new one continues on the other cluster."""

    name = "transaction"

    def transactional(self) -> Producer:
        options = self.options(PRODUCER_PATIENCE)
        return Producer(self.place.servers, transactional_id=self.topic, **options)

    async def before(self) -> None:
        self.producer = await self.stack.enter_async_context(self.transactional())
        self.transaction = await self.producer.begin()
        await self.transaction.send(self.topic, b"0", partition=0)

    async def after(self) -> None:
        with pytest.raises(ApplicationRecoverableError, match="another cluster") as raised:
            await self.transaction.send(self.topic, b"1", partition=0)
        assert isinstance(raised.value, InvalidPidMappingError)
        with pytest.raises(ApplicationRecoverableError):
            await self.transaction.commit()
        async with self.transactional() as producer, producer.transaction() as transaction:
            await transaction.send(self.topic, b"2", partition=0)
        batches = await self.other.batches(self.topic)
        values = [r.value for b in batches if not b.is_control for r in b.records()]
        assert values == [b"2"]


class PositionFollower(Follower):
    """A consumer of partitions, whose position is not carried over."""

    name = "positions"

    def consumer_options(self) -> dict[str, Any]:
        return {**self.options(), "partitions": [self.partition]}

    async def before(self) -> None:
        await self.place.produce(self.topic, BEFORE)
        await self.other.produce(self.topic, THEIRS)
        self.consumer = await self.stack.enter_async_context(
            Consumer(self.place.servers, auto_offset_reset="earliest", **self.consumer_options())
        )
        assert await poll_values(self.consumer, len(BEFORE)) == BEFORE

    async def after(self) -> None:
        assert await poll_values(self.consumer, len(THEIRS)) == THEIRS
        assert await self.consumer.position(self.partition) == len(THEIRS)


class MemberFollower(PositionFollower):
    """A member of a group, which joins the other cluster's group at its committed offset."""

    name = "member"

    def consumer_options(self) -> dict[str, Any]:
        options = {"topics": [self.topic], "group_id": self.topic, "enable_auto_commit": False}
        return {**self.options(), **options}

    async def before(self) -> None:
        await super().before()
        self.lost: list[TopicPartition] = []
        self.consumer.on_lost(self.lost.extend)
        self.member_id = self.consumer.group_metadata().member_id
        async with Admin(self.other.servers, dialer=self.other.dialer) as admin:
            await admin.alter_group_offsets(self.topic, {self.partition: OffsetAndMetadata(2)})

    async def after(self) -> None:
        assert await poll_values(self.consumer, 3) == THEIRS[2:]
        assert self.lost == [self.partition]
        assert self.consumer.group_metadata().member_id not in ("", self.member_id)


class ShareFollower(Follower):
    """A member of a share group, whose pending acknowledgements fail."""

    name = "share"

    async def before(self) -> None:
        for place, values in ((self.place, BEFORE), (self.other, THEIRS)):
            await place.configure_group(self.topic, "share", {"auto.offset.reset": "earliest"})
            await place.produce(self.topic, values)
        options: dict[str, Any] = {"topics": [self.topic], "share_acknowledgement_mode": "explicit"}
        self.consumer = await self.stack.enter_async_context(
            ShareConsumer(self.place.servers, group_id=self.topic, **options, **self.options())
        )
        for record in await self.poll(len(BEFORE)):
            self.consumer.acknowledge(record)

    async def poll(self, count: int) -> list[ShareRecord]:
        """Poll until the consumer has returned all records of a cluster in one poll or more."""
        records: list[ShareRecord] = []
        async with asyncio.timeout(PATIENCE_MS / 1000):
            while len(records) < count:
                records += await self.consumer.poll(max_records=count, timeout=1.0)
        return records

    async def after(self) -> None:
        outcome = await self.consumer.commit(timeout=PATIENCE_MS / 1000)
        assert isinstance(outcome[self.partition], KafkaError)
        records = await self.poll(len(THEIRS))
        assert [record.value for record in records] == THEIRS
        assert {record.delivery_count for record in records} == {1}


class AdminFollower(Follower):
    """An admin client, which describes the other cluster."""

    name = "admin"

    async def before(self) -> None:
        self.admin = await self.stack.enter_async_context(
            Admin(self.place.servers, **self.options())
        )
        self.former = (await self.admin.describe_cluster()).cluster_id

    async def after(self) -> None:
        found = (await self.admin.describe_cluster()).cluster_id
        assert found == await cluster_id(self.other)
        assert found != self.former


class ClientFollower(Follower):
    """A low-level client, which finds every kind of destination on the other cluster."""

    name = "client"

    async def before(self) -> None:
        self.client = await self.stack.enter_async_context(
            Client(self.place.servers, **self.options())
        )
        assert await self.cluster_ids() == {await cluster_id(self.place)}

    async def after(self) -> None:
        assert await self.cluster_ids() == {await cluster_id(self.other)}

    async def cluster_ids(self) -> set[str]:
        """Send a request to each kind of destination; return the cluster ids of the responses."""
        found: set[str] = set()
        leader, group = Leader(self.partition), CoordinatorOfGroup(self.topic)
        for to in (AnyBroker(), Controller(), Broker(1), leader, group):
            response = await self.client.request(DescribeClusterRequest(), to=to)
            raise_for(response.error_code)
            found.add(response.cluster_id)
        return found


class CheckedAddress(Follower):
    """A producer that finds another cluster's broker at the address of a known broker."""

    name = "checked"
    check: ClassVar[bool] = True
    reason: ClassVar[str] = "another broker or cluster"

    async def before(self) -> None:
        check: dict[str, Any] = {"metadata_cluster_check_enable": self.check}
        self.producer = await self.stack.enter_async_context(
            Producer(self.place.servers, **self.options(), **check)
        )

    async def after(self) -> None:
        await self.producer.send(self.topic, b"0", partition=0)
        (batch,) = await self.other.batches(self.topic)
        assert [record.value for record in batch.records()] == [b"0"]
        assert [reason for reason in self.reasons if self.reason in reason], self.reasons


class UncheckedAddress(CheckedAddress):
    """Notices the other cluster by its metadata, since no request names the expected one."""

    name = "unchecked"
    check = False
    reason = "responds, not"


FOLLOWERS: tuple[type[Follower], ...] = (
    SequenceFollower,
    TransactionFollower,
    PositionFollower,
    MemberFollower,
    ShareFollower,
    AdminFollower,
    ClientFollower,
)


async def test_clients_follow_another_cluster(
    two_clusters: tuple[Moving, Moving], caplog: pytest.LogCaptureFixture
) -> None:
    """Checks the bootstrap name, and another cluster's broker at the former one's address."""
    former, other = map(first_address, two_clusters)
    name = BootstrapName(SocketDialer(), former)
    address = BootstrapName(SocketDialer(), former, name=former)
    there = place(other, SocketDialer())
    by_name = place(BOOTSTRAP_NAME, name)
    by_address = place(former, address)
    async with AsyncExitStack() as stack:
        named = [kind(by_name, there, stack) for kind in FOLLOWERS]
        at_address = [kind(by_address, there, stack) for kind in (CheckedAddress, UncheckedAddress)]
        followers = [*named, *at_address]
        await each(follower.create_topics() for follower in followers)
        await each(follower.before() for follower in followers)
        ids = [await cluster_id(place) for place in (there, by_name)]
        address.target = other
        await each(follower.after() for follower in at_address)
        await kill_brokers(two_clusters[0])
        name.target = other
        await each(follower.after() for follower in named)
        assert [follower.name for follower in followers if not follower.reasons] == []
    assert warnings_of(caplog, *ids) == len(followers)  # one of each client


def place(servers: str, dialer: Dialer) -> Place:
    return Place(dialer, uuid.uuid4().hex[:8], servers, SHORT_SETUP, patient=True)


def warnings_of(caplog: pytest.LogCaptureFixture, found: str | None, former: str | None) -> int:
    """Return the number of warnings that another cluster responds."""
    messages = [row.getMessage() for row in caplog.records if row.levelno == logging.WARNING]
    return sum(text.startswith(f"cluster {found} responds, not {former}") for text in messages)


async def cluster_id(place: Place) -> str | None:
    async with Admin(place.servers, dialer=place.dialer) as admin:
        return (await admin.describe_cluster()).cluster_id
