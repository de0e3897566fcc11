""" "latest" does not skip records in a partition that was added to a topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import NoOffsetForPartitionError
from kafka_async.types import TopicPartition
from tests.consumer.conftest import poll_until

if TYPE_CHECKING:
    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

ADDED = TopicPartition("t", 1)
LATEST: dict[str, Any] = {"auto_offset_reset": "latest", "metadata_max_age_ms": 60_000}
JAVA: dict[str, Any] = {**LATEST, "auto_offset_reset_new_partitions": "latest"}

NEW_PARTITIONS = pytest.mark.parametrize(
    ("options", "expected"),
    [(LATEST, [(1, 0), (1, 1), (1, 2)]), (JAVA, [])],
    ids=["earliest", "latest"],
)


async def grow(stage: Stage) -> None:
    """Add a partition and write to it, long before a consumer refreshes its metadata."""
    await stage.cluster.add_partitions("t", 2)
    stage.produce(ADDED, range(3))


async def offsets_read(consumer: Consumer) -> list[tuple[int, int]]:
    """Return the records up to the point where it owns the new partition and no more arrive."""
    seen: list[tuple[int, int]] = []
    async with asyncio.timeout(200):
        while True:
            records = await consumer.poll(timeout=5)
            seen += [(record.partition, record.offset) for record in records]
            if not records and ADDED in consumer.assignment():
                return seen


async def wait_until_assigned(consumer: Consumer) -> None:
    await poll_until(lambda: bool(consumer.assignment()), consumer)
    await consumer.poll(timeout=1)


@NEW_PARTITIONS
@pytest.mark.parametrize("group", [True, False], ids=["group", "no-group"])
async def test_reads_new_partition_of_growing_topic_from_start(
    stage: Stage, options: dict[str, Any], expected: list[tuple[int, int]], group: bool
) -> None:
    """Nothing was committed: the growth of the topic suffices."""
    given = options if group else {**options, "group_id": None}
    async with stage.member(records=2, **given) as (consumer, _):
        await wait_until_assigned(consumer)
        await grow(stage)
        assert await offsets_read(consumer) == expected


@NEW_PARTITIONS
async def test_member_joining_after_growth_reads_new_partition_from_start(
    stage: Stage, options: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    (old,) = await stage.topic("t", 1, records=2)
    async with stage.consumer("t", **options) as first:
        await wait_until_assigned(first)
        await first.commit({old: 2})
    await grow(stage)
    async with stage.consumer("t", **options) as second:
        assert await offsets_read(second) == expected
        await second.seek_to_committed()
        assert await offsets_read(second) == expected


@pytest.mark.parametrize("group_id", ["g", None], ids=["group", "no-group"])
async def test_recreated_topic_with_more_partitions_did_not_grow(
    stage: Stage, group_id: str | None
) -> None:
    """None of its partitions was added to the subscribed topic: "latest" applies to all."""
    await stage.topic("t", 1, records=2)
    async with stage.consumer("t", **LATEST, group_id=group_id) as consumer:
        await wait_until_assigned(consumer)
        await stage.cluster.delete_topic("t")
        await stage.cluster.create_topic("t", 2)
        stage.produce(ADDED, range(3))
        assert await offsets_read(consumer) == []
        stage.produce(ADDED, range(1))
        assert await offsets_read(consumer) == [(1, 3)]


async def test_first_start_of_group_follows_auto_offset_reset(stage: Stage) -> None:
    await stage.topic("t", 2, records=3)
    async with stage.consumer("t", **LATEST) as consumer:
        assert await offsets_read(consumer) == []
        stage.produce(ADDED, range(1))
        assert await offsets_read(consumer) == [(1, 3)]


async def test_manual_partitions_follow_auto_offset_reset(stage: Stage) -> None:
    """The application chose the partition: committed offsets of others do not make it new."""
    old, added = await stage.topic("t", 2, records=3)
    async with stage.consumer(partitions=[old, added], group_id="g", **LATEST) as consumer:
        await consumer.commit({old: 3})
    async with stage.consumer(partitions=[added], group_id="g", **LATEST) as consumer:
        assert await offsets_read(consumer) == []


async def test_new_partition_raises_without_reset_policy(stage: Stage) -> None:
    (old,) = await stage.topic("t", 1, records=2)
    async with stage.consumer("t", auto_offset_reset="earliest") as first:
        await wait_until_assigned(first)
        await first.commit({old: 2})
    await grow(stage)
    async with stage.consumer("t", auto_offset_reset="none") as second:
        with pytest.raises(NoOffsetForPartitionError):
            await offsets_read(second)
