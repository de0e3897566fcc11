"""Core scenarios of all clients, whose results are compared between brokers.

A scenario runs on an empty cluster in memory and returns its result, which does not depend on the
versions that the brokers support. `requests_of` records which APIs it sends.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from kafka_async.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    Admin,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka_async.client.client import Client
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.embedded import AclAuthorizer
from kafka_async.errors import (
    GroupIdNotFoundError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kafka_async.protocol.api import lookup
from kafka_async.types import TopicPartition
from tests.brokers.defects import Defect, defects_of
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.consumer.consumer import Consumer

    Scenario = Callable[["Stage"], Awaitable[object]]

LIMIT: Final = 120
"""Seconds of virtual time in which a scenario ends, by its result or by an error."""
GIVES_UP: Final = 20
"""Seconds of virtual time after which a scenario whose polls return nothing raises an error."""
QUICK: Final[dict[str, Any]] = {
    "request_timeout_ms": 5_000,
    "default_api_timeout_ms": 20_000,
    "close_timeout_ms": 5_000,
}
T, U = "t", "u"
USER, PASSWORD = "alice", "alice-secret"
PARTITIONS: Final = (TopicPartition(T, 0), TopicPartition(T, 1), TopicPartition(U, 0))


class Stage(InMemory):
    """Provides the clients of a scenario, with short timeouts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            2,
            authorizer=AclAuthorizer(super_users=["User:ANONYMOUS", f"User:{USER}"]),
            listeners={"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT"},
            users={USER: PASSWORD},
            **settings,
        )

    def producer(self, **options: Any) -> Any:
        return super().producer(**QUICK, delivery_timeout_ms=20_000, **options)

    def consumer(self, *topics: str, **options: Any) -> Any:
        given = {**QUICK, "auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
        return super().consumer(*topics, **given)

    def admin(self, **options: Any) -> Any:
        return super().admin(**QUICK, **options)

    def share_consumer(self, **options: Any) -> ShareConsumer:
        servers = self.cluster.bootstrap_servers
        return ShareConsumer(servers, dialer=self.network, **QUICK, **options)

    async def fill(self) -> None:
        """Create the topics, with one record in each partition."""
        for topic, count in ((T, 4), (U, 2)):
            await self.cluster.create_topic(topic, count)
        async with InMemory.producer(self) as producer:
            for topic, number in PARTITIONS:
                await producer.send(topic, f"{topic}{number}".encode(), partition=number)


class Waiting:
    """Ends a loop of polls that return too little, by KafkaTimeoutError."""

    def __init__(self) -> None:
        self._ends = now() + GIVES_UP

    def is_over(self, reached: object) -> bool:
        """Return True if what the loop waits for is reached; raise after GIVES_UP."""
        if not reached and now() > self._ends:
            raise KafkaTimeoutError(f"the polls of {GIVES_UP} s were not enough")
        return bool(reached)


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """Return the sorted values of this many records, and of any that come with them."""
    found: list[bytes | None] = []
    waiting = Waiting()
    while not waiting.is_over(len(found) >= count):
        found += [record.value for record in await consumer.poll(timeout=20)]
    found += [record.value for record in await consumer.poll(timeout=0)]
    return sorted(found, key=repr)


async def produce(stage: Stage) -> object:
    """Send records, batched and by acks=1."""
    await stage.cluster.create_topic(T, 4)
    await stage.cluster.create_topic(U, 2)
    everywhere = [
        TopicPartition(topic, n) for topic, count in ((T, 4), (U, 2)) for n in range(count)
    ]
    found: list[object] = []
    async with stage.producer() as producer:
        for topic, number in PARTITIONS:
            sent = await producer.send(topic, b"a", key=b"k", partition=number)
            found.append((sent.topic, sent.partition, sent.offset))
        handles = [await producer.enqueue(T, b"%d" % n, partition=n % 2) for n in range(6)]
        handles += [await producer.enqueue(topic, b"b", partition=n) for topic, n in everywhere]
        found += [(await handle).offset for handle in handles]
        for partition in everywhere[:4]:
            await stage.cluster.move_leader(partition)
        handles = [await producer.enqueue(topic, b"c", partition=n) for topic, n in everywhere]
        found += [(await handle).offset for handle in handles]
    async with stage.producer(acks=1, enable_idempotence=False) as producer:
        found.append((await producer.send(U, b"z", partition=0)).offset)
    return found, [stage.values(*partition) for partition in everywhere]


async def read_assigned(stage: Stage) -> object:
    """Read assigned partitions, look offsets up, and follow a new leader."""
    await stage.fill()
    async with stage.consumer(partitions=list(PARTITIONS), fetch_max_wait_ms=100) as consumer:
        values = await read(consumer, 3)
        ends = await consumer.end_offsets(PARTITIONS)
        starts = await consumer.beginning_offsets(PARTITIONS)
        times = await consumer.offsets_for_times(dict.fromkeys(PARTITIONS, 0))
        offsets = {partition: row and row.offset for partition, row in times.items()}
        counts = await consumer.partitions_for(T), await consumer.partitions_for(U)
        topics = await consumer.topics()
        for partition in PARTITIONS:
            await stage.cluster.move_leader(partition)
        async with InMemory.producer(stage) as producer:
            await producer.send(T, b"later", partition=0)
        values += await read(consumer, 1)
        position = [await consumer.position(partition) for partition in PARTITIONS]
    return values, ends, starts, offsets, counts, topics, position


async def classic_group(stage: Stage) -> object:
    """Read in a group with two members, commit, leave, and continue at the committed offsets."""
    await stage.fill()
    options: dict[str, Any] = {"group_id": "g", "session_timeout_ms": 10_000}
    async with stage.consumer(T, U, **options) as consumer:
        values = await read(consumer, 3)
        await consumer.commit()
        async with stage.consumer(T, U, **options) as other:
            waiting = Waiting()
            while not waiting.is_over(other.assignment()):
                await asyncio.gather(consumer.poll(timeout=1), other.poll(timeout=1))
            owned = sorted([*consumer.assignment(), *other.assignment()])
    async with stage.consumer(T, U, **options) as consumer:
        committed = await consumer.committed(PARTITIONS)
        offsets = {partition: row and row.offset for partition, row in committed.items()}
        async with InMemory.producer(stage) as producer:
            await producer.send(U, b"new", partition=0)
        values += await read(consumer, 1)
        await consumer.commit({PARTITIONS[2]: 2})
    return values, owned, offsets


async def static_group(stage: Stage) -> object:
    """Read as a static member, which keeps its partitions over a restart."""
    await stage.fill()
    options: dict[str, Any] = {"group_id": "g", "group_instance_id": "i"}
    async with stage.consumer(T, **options) as consumer:
        values = await read(consumer, 2)
        await consumer.commit()
    async with stage.consumer(T, **options) as consumer:
        waiting = Waiting()
        while not waiting.is_over(consumer.assignment()):
            await consumer.poll(timeout=1)
        return values, consumer.assignment(), await consumer.poll(timeout=1)


async def consumer_group(stage: Stage) -> object:
    """Read in a group of the consumer protocol (KIP-848), and continue at the committed offsets."""
    await stage.fill()
    options: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}
    async with stage.consumer(T, U, **options) as consumer:
        values = await read(consumer, 3)
        await consumer.commit()
    async with stage.consumer(T, U, **options) as consumer:
        waiting = Waiting()
        while not waiting.is_over(len(consumer.assignment()) == 6):
            await consumer.poll(timeout=1)
        committed = await consumer.committed(PARTITIONS)
        return values, {partition: row and row.offset for partition, row in committed.items()}


async def chosen_protocol(stage: Stage) -> object:
    """Read with group_protocol="auto"."""
    await stage.fill()
    async with stage.consumer(T, group_id="g", group_protocol="auto") as consumer:
        return await read(consumer, 2)


async def share_group(stage: Stage) -> object:
    """Read in a share group (KIP-932), with explicit acknowledgements."""
    await stage.fill()
    resource = ConfigResource(ResourceType.GROUP, "s")
    async with InMemory.admin(stage) as admin:
        await admin.alter_configs({resource: {"share.auto.offset.reset": "earliest"}})
    async with stage.share_consumer(
        topics=[T], group_id="s", share_acknowledgement_mode="explicit"
    ) as consumer:
        found: list[bytes | None] = []
        waiting = Waiting()
        while not waiting.is_over(len(found) >= 2):
            for record in await consumer.poll(timeout=20):
                found.append(record.value)
                consumer.acknowledge(record)
        await consumer.commit()
    return sorted(found, key=repr)


async def transactions(stage: Stage) -> object:
    """Commit and abort transactions, with the offsets of a group."""
    await stage.fill()
    async with stage.producer(transactional_id="x") as producer:
        txn = await producer.begin()
        await txn.send(U, b"aborted", partition=0)
        await txn.abort()
        async with stage.consumer(T, U, group_id="g") as consumer:
            await read(consumer, 4)  # the aborted one too
            async with producer.transaction() as txn:
                handles = [
                    await txn.enqueue(topic, b"done", partition=number)
                    for topic, number in PARTITIONS
                ]
                for handle in handles:
                    await handle
                await txn.commit_offsets(consumer)
    async with stage.consumer(
        partitions=list(PARTITIONS), group_id="g", isolation_level="read_committed"
    ) as consumer:
        committed = await consumer.committed(PARTITIONS[:2])
        await consumer.seek_to_beginning()
        values = await read(consumer, 6)
    return values, {partition: row and row.offset for partition, row in committed.items()}


async def old_transactions(stage: Stage) -> object:
    """Commit a transaction of the protocol before KIP-890, with the offsets of a group."""
    return await transactions(stage)


async def admin_topics(stage: Stage) -> object:
    """Create, describe, extend and delete topics; read and change their configuration."""
    found: list[object] = []
    async with stage.admin() as admin:
        made = await admin.create_topics([NewTopic(T, 2, 1), NewTopic(U, 1, 1)])
        found.append({name: row.partitions for name, row in made.items()})
        await admin.create_partitions({T: 3, U: 2})
        listed = await admin.list_topics()
        found.append({name: row.partitions for name, row in listed.items()})
        described = await admin.describe_topics([T, U])
        found.append({n: [p.partition for p in row.partitions] for n, row in described.items()})
        offsets = await admin.list_offsets(dict.fromkeys(PARTITIONS, OffsetSpec.LATEST))
        found.append({partition: row.offset for partition, row in offsets.items()})
        both = [ConfigResource(ResourceType.TOPIC, T), ConfigResource(ResourceType.TOPIC, U)]
        await admin.alter_configs({each: {"retention.ms": "7"} for each in both})
        configs = await admin.describe_configs(both)
        found += [configs[each]["retention.ms"].value for each in both]
        cluster = await admin.describe_cluster()
        found.append(sorted(node.id for node in cluster.brokers))
        await admin.delete_topics([T, U])
        try:
            await admin.describe_topics([T])
        except UnknownTopicOrPartitionError:
            found.append("deleted")
    return found


async def admin_groups(stage: Stage) -> object:
    """List, describe, rewind and delete groups."""
    await stage.fill()
    found: list[object] = []
    groups = ["g", "h", "i", "j"]
    for group in groups:
        async with stage.consumer(T, group_id=group) as consumer:
            await read(consumer, 2)
            await consumer.commit()
    async with stage.admin() as admin:
        found.append(sorted(await admin.list_groups()))
        described = await admin.describe_groups(groups)
        found.append({name: (row.state, len(row.members)) for name, row in described.items()})
        await admin.alter_group_offsets("g", {PARTITIONS[0]: 0, PARTITIONS[1]: 0})
        for group in ("g", "h"):
            rows = await admin.list_group_offsets(group, PARTITIONS)
            found.append({partition: row.offset for partition, row in rows.items()})
        found.append(len(await admin.list_group_offsets("g")))
        await admin.delete_groups(groups)
        try:
            await admin.describe_groups(["g"])
        except GroupIdNotFoundError:
            found.append("deleted")
    return found


async def admin_share_groups(stage: Stage) -> object:
    """Describe a share group; list, alter and delete its offsets."""
    await stage.fill()
    found: list[object] = []
    groups = ["s", "v", "w"]
    async with stage.admin() as admin:
        async with AsyncExitStack() as members:
            consumers = [
                await members.enter_async_context(
                    stage.share_consumer(topics=[T, U], group_id=group)
                )
                for group in groups
                for _ in range(2)
            ]
            waiting = Waiting()
            while not waiting.is_over(all(each.assignment() for each in consumers)):
                await asyncio.gather(*(each.poll(timeout=1) for each in consumers))
            described = await admin.describe_share_groups(groups)
            found += [(described[each].state, len(described[each].members)) for each in groups]
        await admin.alter_share_group_offsets("s", dict.fromkeys(PARTITIONS, 0))
        rows = await admin.list_share_group_offsets("s", PARTITIONS)
        found.append({partition: row.offset for partition, row in rows.items()})
        await admin.delete_share_group_offsets("s", [T, U])
        listed = await admin.list_share_group_offsets("s")
        found.append(sorted(listed.keys() & PARTITIONS))
    return found


async def admin_members(stage: Stage) -> object:
    """Describe groups of each protocol with two members, which have partitions of two topics."""
    await stage.fill()
    consumers: list[Consumer] = []
    groups: list[tuple[str, dict[str, Any]]] = [
        ("g", {}),
        *((name, {"group_protocol": "consumer"}) for name in "hij"),
    ]
    async with stage.admin() as admin, AsyncExitStack() as members:
        for group, options in groups:
            for _ in range(2):
                consumer = stage.consumer(T, U, group_id=group, **options)
                consumers.append(await members.enter_async_context(consumer))
        waiting = Waiting()
        while not waiting.is_over(all(len(each.assignment()) == 3 for each in consumers)):
            await asyncio.gather(*(each.poll(timeout=1) for each in consumers))
        described = await admin.describe_groups([name for name, _ in groups])
    return {
        name: (row.state, sorted(p for member in row.members for p in member.assignment or ()))
        for name, row in described.items()
    }


async def admin_security(stage: Stage) -> object:
    """Change and describe ACLs, quotas and SCRAM credentials."""
    found: list[object] = []
    acls = [
        AclBinding(AclResourceType.TOPIC, T, f"User:{name}", AclOperation.READ, AclPermission.ALLOW)
        for name in "ab"
    ]
    entities = [QuotaEntity(user="a", client_id="c"), QuotaEntity(user="b", client_id="c")]
    async with stage.admin() as admin:
        await admin.create_acls(acls)
        found.append(sorted(row.principal for row in await admin.describe_acls()))
        filters = [AclFilter(principal=f"User:{name}") for name in "ab"]
        deleted = await admin.delete_acls(filters)
        found += [[row.principal for row in deleted[each]] for each in filters]
        await admin.alter_client_quotas({each: {"producer_byte_rate": 1e6} for each in entities})
        quotas = await admin.describe_client_quotas()
        found.append({str(entity): dict(values) for entity, values in quotas.items()})
        scram = ScramMechanism.SCRAM_SHA_256
        await admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(name, scram, "p" * 8, iterations=4096) for name in "ab"]
        )
        users = await admin.describe_user_scram_credentials(["a", "b"])
        found.append({name: len(rows) for name, rows in users.items()})
    return found


async def admin_transactions(stage: Stage) -> object:
    """List, describe and fence transactional ids."""
    await stage.fill()
    found: list[object] = []
    for name in ("x", "y"):
        async with (
            stage.producer(transactional_id=name) as producer,
            producer.transaction() as txn,
        ):
            for number in range(2):
                await txn.send(T, b"v", partition=number)
                await txn.send(U, b"v", partition=number)
            async with stage.admin() as admin:
                row = (await admin.describe_transactions([name]))[name]
            found.append((row.state, sorted(row.partitions)))
    async with stage.admin() as admin:
        found.append(sorted(await admin.list_transactions()))
        described = await admin.describe_transactions(["x", "y"])
        found.append({name: row.state for name, row in described.items()})
        await admin.fence_producers(["x", "y"])
    return found


async def admin_tokens(stage: Stage) -> object:
    """Authenticate; create, describe, renew and expire delegation tokens."""
    ports = [broker.ports["SASL_PLAINTEXT"] for broker in stage.cluster.brokers.values()]
    admin = Admin([f"127.0.0.1:{port}" for port in ports])
    admin.client = Client(
        [f"127.0.0.1:{port}" for port in ports],
        dialer=stage.network,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username=USER,
        sasl_password=PASSWORD,
        sasl_allow_plaintext=True,
        **QUICK,
    )
    owners = [f"User:{USER}", "User:other"]
    async with admin:
        made = await admin.create_delegation_tokens(owners, renewers=[f"User:{USER}", "User:s"])
        found: list[object] = [str(row.owner) for row in made]
        described = await admin.describe_delegation_tokens(owners)
        found.append(sorted((str(row.owner), row.renewers) for row in described))
        found.append(len(await admin.renew_delegation_tokens(made)))
        await admin.expire_delegation_tokens(made)
    return found


SCENARIOS: Final[dict[str, Scenario]] = {
    each.__name__: each
    for each in (
        *(produce, read_assigned, classic_group, static_group, consumer_group, chosen_protocol),
        *(
            share_group,
            transactions,
            old_transactions,
            admin_topics,
            admin_groups,
            admin_share_groups,
        ),
        *(admin_members, admin_security, admin_transactions, admin_tokens),
    )
}


SETTINGS: Final[dict[str, dict[str, Any]]] = {"old_transactions": {"transaction_version": 0}}
"""Settings of the cluster by scenario."""


async def result_of(
    scenario: str, prepare: Callable[[Stage], None] | None = None, **settings: Any
) -> object:
    """Run a scenario; return its result, or the error that a client or a time limit has raised."""
    async with Stage(**SETTINGS.get(scenario, {}), **settings) as stage:
        if prepare is not None:
            prepare(stage)
        try:
            async with asyncio.timeout(LIMIT):
                return await SCENARIOS[scenario](stage)
        except (KafkaError, TimeoutError) as error:
            return error


_sent: dict[str, tuple[object, dict[int, int]]] = {}
_places: dict[str, set[tuple[int, Defect]]] = {}


async def sent_in(scenario: str) -> tuple[object, dict[int, int]]:
    """Return the result of a scenario on the newest brokers, and versions by the APIs it sends."""
    if scenario not in _sent:
        sent: dict[int, int] = {}
        places = _places[scenario] = set()

        def note(context: Any, request: Any) -> bool:
            sent[context.api_key] = context.version
            return False

        def prepare(stage: Stage) -> None:
            stage.cluster.faults.add(when=note, count=None)
            stage.cluster.faults.add(change=note_places, count=None)

        def note_places(response: Any) -> None:
            key = response.API_KEY
            places.update(
                (key, defect)
                for defect in defects_of(type(response), sent[key])
                if defect.has_place(response)
            )

        result = await result_of(scenario, prepare)
        assert not isinstance(result, BaseException), result
        _sent[scenario] = result, sent
    return _sent[scenario]


async def home_of(key: int) -> str:
    """Return the first scenario that sends an API; in the quick tests it runs there only."""
    for scenario in SCENARIOS:
        if key in (await sent_in(scenario))[1]:
            return scenario
    raise LookupError(key)


async def homes_of_defects() -> dict[str, list[tuple[int, Defect]]]:
    """Return the defects of all responses by the first scenario that has a place for them.

    Those without a place are under "".
    """
    homes: defaultdict[str, list[tuple[int, Defect]]] = defaultdict(list)
    seen: set[tuple[int, Defect]] = set()
    possible: set[tuple[int, Defect]] = set()
    for scenario in SCENARIOS:
        _, sent = await sent_in(scenario)
        for key, version in sent.items():
            possible.update((key, each) for each in defects_of(lookup(key).response, version))
        homes[scenario] = sorted(_places[scenario] - seen)
        seen |= _places[scenario]
    homes[""] = sorted(possible - seen)
    return homes
