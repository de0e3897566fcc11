"""Clients in every role, which are checked before, during and after all brokers have moved.

Each role has a client with topics and groups that no other role uses. `before` makes the state that
has to survive, `during` is started while no broker responds, and `after` checks that the role
continues where it was.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from kafka_async.admin import Admin, ConfigResource, NewTopic, ResourceType
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
from kafka_async.errors import raise_for
from kafka_async.group.group_member import GroupMember
from kafka_async.hooks import Hooks, Rebootstrapped
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.records.batch import iter_batches
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import TypeVar

    from kafka_async.consumer.share.share_consumer import ShareRecord
    from kafka_async.foundation.clock import Dialer
    from kafka_async.group.group_member import Member, MemberAssignment
    from kafka_async.kernel import Record
    from kafka_async.producer.transactions.transaction import Transaction
    from kafka_async.records.batch import BatchView

    P = TypeVar("P", bound=asyncio.BaseProtocol)

BOOTSTRAP_NAME = "kafka.test:9092"
PATIENCE_MS = 300_000
"""Limit of calls in real time: a restart of three JVMs takes a minute on a busy machine."""
PATIENCE: dict[str, Any] = {"default_api_timeout_ms": PATIENCE_MS}
PRODUCER_PATIENCE: dict[str, Any] = {
    "delivery_timeout_ms": PATIENCE_MS,
    "max_block_ms": PATIENCE_MS,
}
MEMBER_PATIENCE: dict[str, Any] = {"session_timeout_ms": PATIENCE_MS, "heartbeat_interval_ms": 500}
SHORT_SETUP: dict[str, Any] = {
    "socket_connection_setup_timeout_ms": 1_000,
    "socket_connection_setup_timeout_max_ms": 2_000,
}
GROUP_PATIENCE = {"session.timeout.ms": "60000"}
BEFORE, AFTER = [b"0", b"1", b"2"], [b"3", b"4", b"5"]


class SocketDialer:
    """Opens TCP connections."""

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        assert (ssl, server_hostname) == (None, None)
        return await asyncio.get_running_loop().create_connection(protocol_factory, host, port)


class BootstrapName:
    """Resolves a `host:port` to the address `target`, as DNS does; other names fail."""

    def __init__(self, dialer: Dialer, target: str, name: str = BOOTSTRAP_NAME) -> None:
        self.target = target
        self._name = name
        self._dialer = dialer

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        if f"{host}:{port}" == self._name:
            host, _, number = self.target.rpartition(":")
            port = int(number)
        elif host.endswith(".test"):
            raise OSError(f"{host} is not known")
        return await self._dialer.dial(
            protocol_factory, host, port, ssl=ssl, server_hostname=server_hostname
        )


@dataclass
class Place:
    """A cluster behind a bootstrap name, and names of topics and groups that no other test uses.

    With `patient` the clients and groups have long limits in place of the defaults.
    """

    dialer: Dialer
    suffix: str
    servers: str = BOOTSTRAP_NAME
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    patient: bool = False

    def name(self, prefix: str) -> str:
        return f"{prefix}-{self.suffix}"

    async def produce(self, topic: str, values: Sequence[bytes]) -> None:
        async with Producer(self.servers, dialer=self.dialer) as producer:
            for value in values:
                await producer.send(topic, value, partition=0)

    async def configure_group(
        self, group: str, kind: str, values: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Set configurations of a group and wait until all brokers have them."""
        values = {**values, **(GROUP_PATIENCE if self.patient else {})}
        changes = {f"{kind}.{name}": value for name, value in values.items()}
        if not changes:
            return
        resource = ConfigResource(ResourceType.GROUP, group)
        async with Admin(self.servers, dialer=self.dialer) as admin:
            await admin.alter_configs({resource: changes})
            async with asyncio.timeout(60):
                while True:
                    found = (await admin.describe_configs([resource]))[resource]
                    if {name: found[name].value for name in changes} == changes:
                        return
                    await asyncio.sleep(0.05)

    async def batches(self, topic: str) -> list[BatchView]:
        """Return the batches in the first partition of a topic, with transaction markers."""
        partition = {"partition": 0, "partition_max_bytes": 2**24}
        topics = [{"topic": topic, "partitions": [partition]}]
        fields = {"max_bytes": 2**24, "session_epoch": -1, "topics": topics}
        request = FetchRequest.from_dict(fields)
        async with Client(self.servers, dialer=self.dialer) as client:
            to = Leader(TopicPartition(topic, 0))
            response = await client.request(request, to=to, max_version=12)
        row = response.responses[0].partitions[0]
        raise_for(row.error_code)
        return list(iter_batches(row.records or b"", topic=topic))


class Role(ABC):
    """One role of a client.

    Attributes:
        reasons: Those of its rebootstraps.
        rebootstrapped: Set by the first one.
    """

    name: ClassVar[str]

    def __init__(self, place: Place, stack: AsyncExitStack) -> None:
        self.place = place
        self.stack = stack
        self.topic = place.name(self.name)
        self.reasons: list[str] = []
        self.rebootstrapped = asyncio.Event()

    def options(self, patience: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Return the options of the role's client, whose rebootstraps are recorded."""
        hooks = Hooks()
        hooks.listen(Rebootstrapped, self._on_rebootstrap)
        waits = {**PATIENCE, **patience} if self.place.patient else {}
        return {"hooks": hooks, "dialer": self.place.dialer, **waits, **self.place.options}

    def _on_rebootstrap(self, event: Rebootstrapped) -> None:
        self.reasons.append(event.reason)
        self.rebootstrapped.set()

    @abstractmethod
    async def before(self) -> None:
        """Open the client and do what has to survive."""

    @abstractmethod
    async def during(self) -> None:
        """Make calls that are pending while no broker responds."""

    @abstractmethod
    async def after(self) -> None:
        """Check that the role continues."""


class IdempotentProducer(Role):
    """Its sequence numbers continue: one producer id, no gap, no duplicate."""

    name = "producer"

    async def before(self) -> None:
        options = self.options(PRODUCER_PATIENCE)
        self.producer = await self.stack.enter_async_context(
            Producer(self.place.servers, **options)
        )
        await self.send(BEFORE)

    async def send(self, values: Sequence[bytes]) -> None:
        for value in values:
            await self.producer.send(self.topic, value, partition=0)

    async def during(self) -> None:
        await self.send(AFTER[:1])

    async def after(self) -> None:
        await self.send(AFTER[1:])
        await check_sequences(self.place, self.topic)


class TransactionalProducer(Role):
    """Its open transaction continues and commits."""

    name = "transaction"

    async def before(self) -> None:
        options = self.options({**PRODUCER_PATIENCE, "transaction_timeout_ms": PATIENCE_MS})
        options["transactional_id"] = self.place.name("transactions")
        producer = await self.stack.enter_async_context(Producer(self.place.servers, **options))
        self.transaction: Transaction = await producer.begin()
        await self.send(BEFORE)

    async def send(self, values: Sequence[bytes]) -> None:
        for value in values:
            await self.transaction.send(self.topic, value, partition=0)

    async def during(self) -> None:
        await self.send(AFTER[:1])

    async def after(self) -> None:
        await self.send(AFTER[1:])
        await self.transaction.commit()
        await check_sequences(self.place, self.topic)
        options: dict[str, Any] = {"isolation_level": "read_committed", "dialer": self.place.dialer}
        partitions = [TopicPartition(self.topic, 0)]
        async with Consumer(
            self.place.servers, partitions=partitions, auto_offset_reset="earliest", **options
        ) as reader:
            assert await poll_values(reader, 6) == BEFORE + AFTER


class StaticConsumer(Role):
    """Its position continues."""

    name = "consumer"

    def consumer_options(self) -> dict[str, Any]:
        return {**self.options(), "partitions": [TopicPartition(self.topic, 0)]}

    async def before(self) -> None:
        await self.place.produce(self.topic, BEFORE)
        self.consumer = await self.stack.enter_async_context(
            Consumer(self.place.servers, auto_offset_reset="earliest", **self.consumer_options())
        )
        assert await poll_values(self.consumer, 3) == BEFORE

    async def during(self) -> None:
        ends = await self.consumer.end_offsets([TopicPartition(self.topic, 0)])
        assert set(ends.values()) == {3}

    async def after(self) -> None:
        await self.place.produce(self.topic, AFTER)
        assert await poll_values(self.consumer, 3) == AFTER
        assert await self.consumer.position(TopicPartition(self.topic, 0)) == 6


class ClassicMember(StaticConsumer):
    """It keeps its member id, its generation, its partitions and their positions."""

    name = "classic"
    protocol: ClassVar[str] = "classic"

    def consumer_options(self) -> dict[str, Any]:
        return {
            **self.options(MEMBER_PATIENCE if self.protocol == "classic" else {}),
            "topics": [self.topic],
            "group_id": self.topic,
            "group_protocol": self.protocol,
            "enable_auto_commit": False,
        }

    async def before(self) -> None:
        await super().before()
        self.member = self.consumer.group_metadata()
        self.lost: list[TopicPartition] = []
        self.consumer.on_revoked(self.lost.extend)
        self.consumer.on_lost(self.lost.extend)
        assert self.member.member_id
        await self.consumer.commit()

    async def during(self) -> None:
        await self.consumer.commit()

    async def after(self) -> None:
        await super().after()
        await self.consumer.commit()
        partition = TopicPartition(self.topic, 0)
        committed = (await self.consumer.committed([partition]))[partition]
        assert committed is not None
        assert committed.offset == 6
        assert self.consumer.group_metadata() == self.member
        assert self.lost == []


class ConsumerProtocolMember(ClassicMember):
    """It keeps its member id and epoch (KIP-848)."""

    name = "consumer-protocol"
    protocol = "consumer"

    async def before(self) -> None:
        await self.place.configure_group(self.topic, "consumer")
        await super().before()


class OtherMember(Role):
    """A member of a group that is not a consumer group keeps its member id and its assignment."""

    name = "group-member"

    async def before(self) -> None:
        options: dict[str, Any] = {"session_timeout_ms": 45_000, **self.options(MEMBER_PATIENCE)}
        self.member = await self.stack.enter_async_context(
            GroupMember(
                self.place.servers,
                group_id=self.topic,
                protocol_type="jobs",
                protocols={"v0": assign_ids},
                **options,
            )
        )
        self.first = await self.assignment()

    async def assignment(self) -> MemberAssignment:
        async with asyncio.timeout(PATIENCE_MS / 1000):
            return await anext(self.member)

    async def during(self) -> None:
        self.member.rejoin("no broker responds")
        self.check(await self.assignment(), after=self.first.generation)

    async def after(self) -> None:
        generation = self.member.group_metadata().generation_id
        self.member.rejoin("the brokers have moved")
        self.check(await self.assignment(), after=generation)

    def check(self, found: MemberAssignment, after: int) -> None:
        """Check that an assignment is not lost, and is the member's in a later generation."""
        assert (found.member_id, found.data) == (self.first.member_id, self.first.data)
        assert not found.lost
        assert found.generation > after


def assign_ids(members: Sequence[Member]) -> dict[str, bytes]:
    return {member.member_id: member.member_id.encode() for member in members}


class ShareMember(Role):
    """It keeps its member id, and accepted records do not return."""

    name = "share"

    async def before(self) -> None:
        await self.place.configure_group(self.topic, "share", {"auto.offset.reset": "earliest"})
        await self.place.produce(self.topic, BEFORE)
        self.consumer = await self.stack.enter_async_context(
            ShareConsumer(
                self.place.servers, topics=[self.topic], group_id=self.topic, **self.options()
            )
        )
        assert await self.poll() == BEFORE
        self.members = await self.member_ids()
        assert len(self.members) == 1

    async def during(self) -> None:
        assert await self.consumer.poll(timeout=1.0) == []

    async def member_ids(self) -> list[str]:
        async with Admin(self.place.servers, dialer=self.place.dialer) as admin:
            group = (await admin.describe_share_groups([self.topic]))[self.topic]
        return [member.member_id for member in group.members]

    async def poll(self) -> list[bytes | None]:
        records: list[ShareRecord] = []
        async with asyncio.timeout(PATIENCE_MS / 1000):
            while len(records) < 3:
                records += await self.consumer.poll(timeout=1.0)
        await self.consumer.commit()
        assert {record.delivery_count for record in records} == {1}
        return [record.value for record in records]

    async def after(self) -> None:
        await self.place.produce(self.topic, AFTER)
        assert await self.poll() == AFTER
        assert await self.member_ids() == self.members


class AdminClient(Role):
    """Its calls wait for brokers and succeed."""

    name = "admin"

    async def before(self) -> None:
        self.admin = await self.stack.enter_async_context(
            Admin(self.place.servers, **self.options())
        )
        self.cluster = await self.admin.describe_cluster()

    async def during(self) -> None:
        assert self.topic in await self.admin.list_topics()

    async def after(self) -> None:
        found = await self.admin.describe_cluster()
        assert found.cluster_id == self.cluster.cluster_id
        assert [node.id for node in found.brokers] == [node.id for node in self.cluster.brokers]
        await self.admin.delete_topics([self.topic])


class LowLevelClient(Role):
    """Requests to every kind of destination succeed."""

    name = "client"

    async def before(self) -> None:
        self.client = await self.stack.enter_async_context(
            Client(self.place.servers, **self.options())
        )
        assert await self.error_codes() == {0}

    async def during(self) -> None:
        assert await self.error_codes() == {0}

    async def after(self) -> None:
        assert await self.error_codes() == {0}

    async def error_codes(self) -> set[int]:
        """Send a request to each kind of destination; return the responses' error codes."""
        codes: set[int] = set()
        leader, group = Leader(TopicPartition(self.topic, 0)), CoordinatorOfGroup(self.topic)
        for to in (AnyBroker(), Controller(), *map(Broker, (1, 2, 3)), leader, group):
            response = await self.client.request(DescribeClusterRequest(), to=to)
            codes.add(response.error_code)
        return codes


ROLES: tuple[type[Role], ...] = (
    IdempotentProducer,
    TransactionalProducer,
    StaticConsumer,
    ClassicMember,
    ConsumerProtocolMember,
    OtherMember,
    ShareMember,
    AdminClient,
    LowLevelClient,
)


async def poll_values(consumer: Consumer, count: int) -> list[bytes | None]:
    """Poll until a consumer has returned this many records, or more."""
    records: list[Record] = []
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while len(records) < count:
            records += await consumer.poll(timeout=1.0)
    return [record.value for record in records]


async def check_sequences(place: Place, topic: str) -> None:
    """Check that a topic has all records once, with the sequence numbers of one producer."""
    batches = [batch for batch in await place.batches(topic) if not batch.is_control]
    values = [record.value for batch in batches for record in batch.records()]
    assert values == BEFORE + AFTER
    headers = [batch.header for batch in batches]
    assert len({(header.producer_id, header.producer_epoch) for header in headers}) == 1
    sequences = [header.base_sequence for header in headers]
    assert sequences == list(range(6))  # every record was awaited, so each is a batch


@asynccontextmanager
async def opened(
    place: Place, kinds: Sequence[Callable[[Place, AsyncExitStack], Role]]
) -> AsyncGenerator[list[Role]]:
    """Create the topics of roles and let each do what has to survive."""
    async with AsyncExitStack() as stack:
        roles = [kind(place, stack) for kind in kinds]
        async with Admin(place.servers, dialer=place.dialer) as admin:
            await admin.create_topics([NewTopic(role.topic, 1) for role in roles])
        await each(role.before() for role in roles)
        yield roles


async def each(calls: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Run calls of all roles concurrently."""
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)
