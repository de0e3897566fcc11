"""Topics that ACLs deny: polls raise a missing permission once, and reading continues with it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded import AclAuthorizer
from kafka_async.embedded.requests.context import ANONYMOUS
from kafka_async.embedded.state.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafka_async.errors import KafkaError, TopicAuthorizationError
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.offset_fetch import OffsetFetchRequest
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from kafka_async import Consumer

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 5_000}
DENIED_S = 30.0
RECOVERY_S = 6.0
"""Maximum seconds until a record is returned: metadata_max_age_ms and the longest backoff."""


def acl(
    kind: ResourceType,
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, ANONYMOUS, "*", operation, permission)


GROUP = acl(ResourceType.GROUP, "g", Operation.READ)
READ, WRITE, DESCRIBE = (
    acl(ResourceType.TOPIC, "t", operation)
    for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
)


async def errors_of_polls(consumer: Consumer[Any, Any], seconds: float) -> list[KafkaError]:
    """Return the errors of polls during this time; they return no records."""
    errors: list[KafkaError] = []
    end = now() + seconds
    while now() < end:
        try:
            assert await consumer.poll(timeout=1) == []
        except KafkaError as error:
            errors.append(error)
    return errors


async def send(memory: InMemory, authorizer: AclAuthorizer) -> None:
    """Write a record to each partition."""
    authorizer.add(WRITE)
    async with memory.producer(enable_idempotence=False) as producer:
        for partition in PARTITIONS:
            await producer.send("t", b"value", partition=partition.partition)
    authorizer.remove([WRITE])


async def check_reads(consumer: Consumer[Any, Any]) -> None:
    """Check that the record of each partition is returned soon."""
    found: set[TopicPartition] = set()
    end = now() + RECOVERY_S
    while found != set(PARTITIONS):
        assert now() < end
        found |= {
            TopicPartition(record.topic, record.partition)
            for record in await consumer.poll(timeout=1)
        }


@pytest.mark.parametrize("described", [False, True], ids=["no-permission", "described"])
@pytest.mark.parametrize("manual", [False, True], ids=["subscribed", "manual"])
@pytest.mark.parametrize("begun", [False, True], ids=["at-the-start", "while-reading"])
async def test_missing_permission_is_raised_once_for_all_partitions_each_time_it_is_missing(
    described: bool, manual: bool, begun: bool
) -> None:
    """Without READ, fetches fail; without DESCRIBE, the topic's metadata has an error as well."""
    authorizer = AclAuthorizer()
    for each in (GROUP, *([DESCRIBE] if described else [])):
        authorizer.add(each)
    async with InMemory(authorizer=authorizer, brokers=3) as memory:
        await memory.cluster.create_topic("t", len(PARTITIONS))
        group_id = None if manual else "g"
        topics = () if manual else ("t",)
        if begun:
            await send(memory, authorizer)
            authorizer.add(READ)
        async with memory.consumer(*topics, group_id=group_id, **OPTIONS) as consumer:
            if manual:
                consumer.assign(PARTITIONS)
            if begun:
                await check_reads(consumer)
            for _ in range(2):
                authorizer.remove([READ])
                [error] = await errors_of_polls(consumer, DENIED_S)
                assert isinstance(error, TopicAuthorizationError)
                assert error.topic == "t"
                authorizer.add(READ)
                await send(memory, authorizer)
                await check_reads(consumer)


async def test_health_names_missing_permission_while_it_is_missing() -> None:
    authorizer = AclAuthorizer()
    for each in (DESCRIBE, READ):
        authorizer.add(each)
    async with InMemory(authorizer=authorizer) as memory:
        await memory.cluster.create_topic("t", len(PARTITIONS))
        await send(memory, authorizer)
        authorizer.remove([READ])
        async with memory.consumer(**OPTIONS) as consumer:
            consumer.assign(PARTITIONS)
            await errors_of_polls(consumer, DENIED_S)
            assert "the principal lacks READ on the topic" in (consumer.health().last_error or "")
            authorizer.add(READ)
            await check_reads(consumer)
            assert consumer.health().last_error is None


ALLOW_ALL = [
    acl(kind, "*", Operation.ALL)
    for kind in (ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC)
]


def denying() -> AclAuthorizer:
    """Return an authorizer that allows all that no ACL denies."""
    authorizer = AclAuthorizer()
    for each in ALLOW_ALL:
        authorizer.add(each)
    return authorizer


def denial(topic: str, operation: Operation = Operation.READ) -> Acl:
    return acl(ResourceType.TOPIC, topic, operation, Permission.DENY)


async def send_to(memory: InMemory, *partitions: TopicPartition) -> None:
    """Write a record to each of these partitions."""
    async with memory.producer(enable_idempotence=False) as producer:
        for partition in partitions:
            await producer.send(partition.topic, b"value", partition=partition.partition)


async def poll_for(
    consumer: Consumer[Any, Any], seconds: float
) -> tuple[set[TopicPartition], list[KafkaError]]:
    """Return the partitions of the records, and the errors, of polls during this time."""
    found: set[TopicPartition] = set()
    errors: list[KafkaError] = []
    end = now() + seconds
    while now() < end:
        try:
            records = await consumer.poll(timeout=1)
        except KafkaError as error:
            errors.append(error)
        else:
            found |= {TopicPartition(record.topic, record.partition) for record in records}
    return found, errors


@pytest.mark.parametrize("other", ["a", "z"], ids=["polled-before", "polled-after"])
async def test_other_topic_continues_while_reading_a_topic_is_denied(other: str) -> None:
    allowed, denied = TopicPartition(other, 0), TopicPartition("t", 0)
    authorizer = denying()
    async with InMemory(authorizer=authorizer) as memory:
        for topic in ("t", other):
            await memory.cluster.create_topic(topic, 1)
        async with memory.consumer(**OPTIONS) as consumer:
            consumer.assign([allowed, denied])
            await send_to(memory, allowed, denied)
            assert await poll_for(consumer, 5) == ({allowed, denied}, [])
            authorizer.add(denial("t"))
            await send_to(memory, allowed, denied)
            found, [error] = await poll_for(consumer, DENIED_S)
            assert found == {allowed}
            assert error.topic == "t"
            authorizer.remove([denial("t")])
            assert await poll_for(consumer, RECOVERY_S) == ({denied}, [])


@asynccontextmanager
async def denied_lookup(
    authorizer: AclAuthorizer, topics: Collection[str], denied: Collection[str], **options: Any
) -> AsyncGenerator[tuple[InMemory, Consumer[Any, Any]]]:
    """Start a group member; deny topics while it looks up the committed offsets of all.

    The metadata of the denied topics stay known. Each topic has one partition and one record.
    """
    # Metadata is not fetched again in the time of a test.
    given = {"metadata_max_age_ms": 300_000, "enable_auto_commit": False}
    options = OPTIONS | given | options
    partitions = [TopicPartition(topic, 0) for topic in topics]
    async with InMemory(authorizer=authorizer) as memory:
        for topic in topics:
            await memory.cluster.create_topic(topic, 1)
        await send_to(memory, *partitions)
        lookup = memory.hang("OffsetFetch")
        async with memory.consumer(*topics, group_id="g", **options) as consumer:
            await lookup.wait()
            for topic in denied:
                authorizer.add(denial(topic, Operation.DESCRIBE))
            lookup.remove()
            yield memory, consumer


@pytest.mark.parametrize("denied", [["t"], ["t", "v"]], ids=["one-topic", "two-topics"])
@pytest.mark.parametrize("other", ["a", "z"], ids=["polled-before", "polled-after"])
async def test_other_topic_starts_while_the_committed_offset_of_a_topic_is_denied(
    other: str, denied: list[str]
) -> None:
    """One request looks up the committed offsets of all topics."""
    authorizer = denying()
    allowed = TopicPartition(other, 0)
    others = [TopicPartition(topic, 0) for topic in denied]
    async with denied_lookup(authorizer, [other, *denied], denied) as (_, consumer):
        found, errors = await poll_for(consumer, DENIED_S)
        assert found == {allowed}
        assert sorted(error.topic or "" for error in errors) == denied
        assert await consumer.position(allowed) == 1
        for partition in others:
            with pytest.raises(TopicAuthorizationError, match=partition.topic):
                await consumer.position(partition)
        authorizer.remove([denial(topic, Operation.DESCRIBE) for topic in denied])
        assert await poll_for(consumer, RECOVERY_S) == (set(others), [])
        for topic in denied:
            authorizer.add(denial(topic))
        _, errors = await poll_for(consumer, DENIED_S)
        assert sorted(error.topic or "" for error in errors) == denied


async def test_missing_permission_of_a_topic_is_raised_after_its_lookup_failed_with_another() -> (
    None
):
    authorizer = denying()
    authorizer.add(denial("a"))  # which does not deny DESCRIBE
    async with denied_lookup(authorizer, ["a", "t"], ["t"]) as (_, consumer):
        errors = await errors_of_polls(consumer, DENIED_S)
        assert sorted(error.topic or "" for error in errors) == ["a", "t"]


async def test_missing_permission_is_raised_once_while_another_broker_serves_the_topic() -> None:
    """A broker may apply the change of an ACL later than another one."""
    async with InMemory(2) as memory:
        await memory.cluster.create_topic("t", 2)
        partitions = [TopicPartition("t", number) for number in range(2)]
        late, denies = (memory.partition(*partition).leader for partition in partitions)
        assert late != denies
        async with memory.consumer(**OPTIONS) as consumer:
            consumer.assign(partitions)
            await send_to(memory, *partitions)
            assert await poll_for(consumer, 5) == (set(partitions), [])
            fault = memory.cluster.faults.add(
                api="Fetch",
                broker=denies,
                when=lambda _, request: bool(request.topics),  # the error is that of its rows
                error="TOPIC_AUTHORIZATION_FAILED",
                count=None,
            )
            await send_to(memory, *partitions)
            _, [_] = await poll_for(consumer, DENIED_S)
            await send_to(memory, *partitions)
            assert await poll_for(consumer, DENIED_S) == ({partitions[0]}, [])
            assert "TopicAuthorizationError" in (consumer.health().last_error or "")
            fault.remove()
            assert await poll_for(consumer, RECOVERY_S) == ({partitions[1]}, [])
            assert consumer.health().last_error is None


async def test_missing_permission_is_forgotten_with_the_partitions_that_have_failed() -> None:
    authorizer = denying()
    authorizer.add(denial("t"))
    async with InMemory(authorizer=authorizer) as memory:
        for topic in ("t", "a"):
            await memory.cluster.create_topic(topic, 1)
        async with memory.consumer(**OPTIONS) as consumer:
            for _ in range(2):
                consumer.assign([TopicPartition("t", 0)])
                assert len(await errors_of_polls(consumer, DENIED_S)) == 1
                consumer.assign([TopicPartition("a", 0)])
                assert consumer.health().last_error is None


async def test_fetch_that_was_sent_before_does_not_end_a_missing_permission() -> None:
    """The metadata are denied first, while the response to a fetch is delayed."""
    options = OPTIONS | {"metadata_max_age_ms": 1_000, "fetch_max_wait_ms": 10_000}
    authorizer = denying()
    async with InMemory(authorizer=authorizer) as memory:
        await memory.cluster.create_topic("t", 1)
        partition = TopicPartition("t", 0)
        await send_to(memory, partition)
        response = memory.cluster.faults.add(api="Fetch", skip=1, applied=True, hang=True)
        async with memory.consumer(**options) as consumer:
            consumer.assign([partition])
            assert await poll_for(consumer, 3) == ({partition}, [])
            await send_to(memory, partition)
            for operation in (Operation.DESCRIBE, Operation.READ):
                authorizer.add(denial("t", operation))
            assert len(await errors_of_polls(consumer, 3)) == 1
            authorizer.remove([denial("t", Operation.DESCRIBE)])
            assert await errors_of_polls(consumer, 3) == []
            assert len(memory.requests(FetchRequest)) == 2
            response.release()
            assert await poll_for(consumer, DENIED_S) == ({partition}, [])
            assert len(memory.requests(FetchRequest)) > 2


async def test_backoff_of_a_denied_lookup_doubles_once_per_failure() -> None:
    options = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 100_000}
    async with denied_lookup(denying(), ["t"], ["t"], **options) as (memory, consumer):
        with pytest.raises(TopicAuthorizationError):
            await consumer.poll(timeout=30)
        assert await errors_of_polls(consumer, 10) == []
        # At once, and after 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 s, 20 % more or less.
        assert len(memory.requests(OffsetFetchRequest)) in {7, 8}
