"""Topics that ACLs deny: polls raise a missing permission once, and reading continues with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded import AclAuthorizer
from kafka_async.embedded.requests.context import ANONYMOUS
from kafka_async.embedded.state.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafka_async.errors import KafkaError, TopicAuthorizationError
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from kafka_async import Consumer

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 5_000}
DENIED_S = 30.0
RECOVERY_S = 6.0
"""Maximum seconds until a record is returned: metadata_max_age_ms and the longest backoff."""


def acl(kind: ResourceType, name: str, operation: Operation) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, ANONYMOUS, "*", operation, Permission.ALLOW)


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
