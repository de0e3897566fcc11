"""Calls that ask several brokers ask all of them at once, and one slow broker delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from kafka_async.admin import ConfigResource, OffsetSpec, ResourceType
from kafka_async.client.fan_out import call_each
from kafka_async.errors import KafkaError, KafkaTimeoutError
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, now

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

BROKERS = (1, 2, 3)
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
BROKER_CONFIGS = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in BROKERS]


class World(NamedTuple):
    memory: InMemory
    consumer: Any
    admin: Any

    @property
    def names(self) -> list[str]:
        """Groups and transactional ids, one coordinated by each broker."""
        return [self.memory.coordinated_by(broker) for broker in BROKERS]


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with InMemory(3) as memory:
        await memory.cluster.create_topic("t", 3)
        async with (
            memory.consumer(partitions=PARTITIONS, auto_offset_reset="none") as consumer,
            memory.admin() as admin,
        ):
            made = World(memory, consumer, admin)
            for name in made.names:
                await admin.alter_group_offsets(name, {PARTITIONS[0]: 0})
            yield made


CALLS: dict[str, tuple[str, Callable[[World], Awaitable[object]]]] = {
    "end_offsets": ("ListOffsets", lambda it: it.consumer.end_offsets(PARTITIONS)),
    "beginning_offsets": ("ListOffsets", lambda it: it.consumer.beginning_offsets(PARTITIONS)),
    "offsets_for_times": (
        "ListOffsets",
        lambda it: it.consumer.offsets_for_times(dict.fromkeys(PARTITIONS, 1.0)),
    ),
    "seek_to_time": ("ListOffsets", lambda it: it.consumer.seek_to_time(1.0, PARTITIONS)),
    "list_offsets": (
        "ListOffsets",
        lambda it: it.admin.list_offsets(dict.fromkeys(PARTITIONS, OffsetSpec.LATEST)),
    ),
    "list_groups": ("ListGroups", lambda it: it.admin.list_groups()),
    "describe_groups": ("ConsumerGroupDescribe", lambda it: it.admin.describe_groups(it.names)),
    "delete_groups": ("DeleteGroups", lambda it: it.admin.delete_groups(it.names)),
    "describe_share_groups": (
        "ShareGroupDescribe",
        lambda it: it.admin.describe_share_groups(it.names),
    ),
    "list_transactions": ("ListTransactions", lambda it: it.admin.list_transactions()),
    "describe_transactions": (
        "DescribeTransactions",
        lambda it: it.admin.describe_transactions(it.names),
    ),
    "fence_producers": ("InitProducerId", lambda it: it.admin.fence_producers(it.names)),
    "describe_configs": ("DescribeConfigs", lambda it: it.admin.describe_configs(BROKER_CONFIGS)),
    "alter_configs": (
        "IncrementalAlterConfigs",
        lambda it: it.admin.alter_configs(
            {key: {"log.retention.ms": "1"} for key in BROKER_CONFIGS}
        ),
    ),
}
"""By public call: the API that it sends to every broker."""


@pytest.mark.parametrize("name", CALLS)
async def test_requests_to_all_brokers_are_in_flight_together(world: World, name: str) -> None:
    api, call = CALLS[name]

    held = world.memory.hang(api)
    world.memory.received.clear()
    started, calling = now(), asyncio.ensure_future(call(world))
    await held.wait(3)
    assert now() - started < 1
    asked = [
        row.broker for row in world.memory.received if type(row.request).__name__.startswith(api)
    ]
    assert sorted(asked) == [*BROKERS]
    held.remove()
    with suppress(KafkaError):  # There are no such share groups and transactional ids.
        await calling


async def test_offsets_at_one_leader_are_retried_while_another_leader_is_slow(world: World) -> None:
    held = world.memory.hang("ListOffsets", broker=2)
    world.memory.cluster.faults.add(
        api="ListOffsets", broker=1, error="NOT_LEADER_OR_FOLLOWER", count=2
    )
    calling = asyncio.ensure_future(world.consumer.end_offsets(PARTITIONS))
    await held.wait()
    await asyncio.sleep(5)
    assert len(world.memory.requests(ListOffsetsRequest, broker=1)) == 3
    held.remove()
    assert await calling == dict.fromkeys(PARTITIONS, 0)


async def test_items_of_other_brokers_are_processed_if_one_broker_does_not_respond(
    world: World,
) -> None:
    held = world.memory.hang("DeleteGroups", broker=2)
    with pytest.raises(KafkaTimeoutError, match="broker 2"):
        await world.admin.delete_groups(world.names, timeout=3)
    held.remove()
    assert set(await world.admin.list_groups()) <= {world.memory.coordinated_by(2)}


async def test_error_of_one_call_cancels_the_others() -> None:
    ended: list[int] = []

    async def call(number: int) -> None:
        try:
            await asyncio.sleep(number)
        finally:
            ended.append(number)
        raise LookupError(str(number))

    with pytest.raises(LookupError, match="1"):
        await call_each([1, 2, 3], call)
    await asyncio.sleep(0.1)
    assert ended == [1, 2, 3]
    assert now() < 2
