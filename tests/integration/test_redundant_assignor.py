"""The redundant assignor on every kind of cluster: one owner commits each partition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async import Consumer, Producer, TopicPartition
from kafka_async.errors import IllegalStateError
from kafka_async.group.assignors import RedundantAssignor
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


async def test_one_owner_of_each_partition_commits(kafka_cluster: ClusterHandle) -> None:
    """Both members read all records; an offset of the other one is never overwritten."""
    topic, group = await create_topic(kafka_cluster, "redundant", 2), kafka_cluster.group()
    partitions = [TopicPartition(topic, number) for number in range(2)]
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for partition in partitions:
            for number in range(3):
                await producer.send(topic, b"%d" % number, partition=partition.partition)

    def member() -> Consumer:
        return Consumer(
            kafka_cluster.bootstrap_servers,
            topics=[topic],
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            partition_assignment_strategy=[RedundantAssignor()],
        )

    async with asyncio.timeout(60), member() as first, member() as second:
        read: dict[Consumer, set[tuple[int, int]]] = {first: set(), second: set()}
        while any(
            each.assignment() != frozenset(partitions) or len(read[each]) < 6
            for each in (first, second)
        ):
            for each in (first, second):
                records = await each.poll(timeout=0.1)
                read[each] |= {(record.partition, record.offset) for record in records}
        committers: dict[TopicPartition, list[Consumer]] = {p: [] for p in partitions}
        for each in (first, second):
            for number, partition in enumerate(partitions):
                try:
                    await each.commit({partition: number + 1})
                except IllegalStateError:
                    continue
                committers[partition].append(each)
        assert [len(each) for each in committers.values()] == [1, 1]
        found = await first.committed(partitions)
        assert {p: row.offset for p, row in found.items() if row} == {
            partitions[0]: 1,
            partitions[1]: 2,
        }
