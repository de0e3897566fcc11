"""Groups of a member of ours and one of Java's, each with another protocol (KIP-848)."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Consumer, Producer
from tests.integration.helpers import create_topic
from tests.rolling_group import RollingGroup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.testing.fixtures import ClusterHandle
    from tests.integration.kafka_tools import Tools

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.slow,
    pytest.mark.foreign,
    pytest.mark.timeout(300),
]

PARTITIONS = 4
OURS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200},
    "consumer": {"group_protocol": "consumer"},
}


class JavaConsumer:
    """Runs Kafka's VerifiableConsumer, and reads its events.

    Attributes:
        owned: Its partitions.
        seen: Partition and offset of each record that it has read.
    """

    def __init__(self, group: RollingGroup, process: asyncio.subprocess.Process) -> None:
        self.owned: set[int] = set()
        self.seen: list[tuple[int, int]] = []
        self._group = group
        self._process = process

    @classmethod
    @asynccontextmanager
    async def running(cls, group: RollingGroup, command: list[str]) -> AsyncGenerator[JavaConsumer]:
        """Run the consumer; the end of the block stops it in order."""
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        java = cls(group, process)
        reading = asyncio.create_task(java._read())
        try:
            yield java
        finally:
            process.terminate()
            await process.wait()
            await reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event = json.loads(line)
            rows = event.get("partitions", [])
            partitions = {row["partition"] for row in rows}
            if event["name"] == "partitions_assigned":
                self.owned |= partitions
            elif event["name"] == "partitions_revoked":
                self.owned -= partitions
            elif event["name"] == "records_consumed":
                for row in rows:
                    offsets = range(row["minOffset"], row["maxOffset"] + 1)
                    read = [(row["partition"], offset) for offset in offsets]
                    self.seen += read
                    self._group.seen += read


async def share_a_group(
    cluster: ClusterHandle, tools: Tools, ours: str, theirs: str, *, ours_first: bool
) -> None:
    """Let a member of ours and one of Java's share a topic; check that each record is read once."""
    topic = await create_topic(cluster, f"{ours}-{theirs}", partitions=PARTITIONS)
    group_id = cluster.group(f"{ours}-{theirs}")

    def member(**options: Any) -> Consumer:
        given: dict[str, Any] = {"group_id": group_id, "auto_offset_reset": "earliest", **options}
        return Consumer(cluster.bootstrap_servers, topics=[topic], **given)

    group = RollingGroup(member, PARTITIONS)
    words = ["--topic", topic, "--group-id", group_id, "--group-protocol", theirs]
    words += ["--reset-policy", "earliest"]
    if theirs == "classic":
        words += ["--session-timeout", "6000"]
    command = tools.command(cluster, "VerifiableConsumer", *words)

    def shared(java: JavaConsumer) -> bool:
        [consumer] = group.members.values()
        own = {partition.partition for partition in consumer.assignment()}
        halves = len(own) == len(java.owned) == PARTITIONS // 2
        return halves and own | java.owned == set(range(PARTITIONS))

    producer = Producer(cluster.bootstrap_servers)
    async with group.producing(producer, topic, interval=0.05):
        if ours_first:
            await group.start("ours", **OURS[ours])
            await group.wait_until_balanced()
        async with JavaConsumer.running(group, command) as java:
            if not ours_first:
                await wait_until(lambda: len(java.owned) == PARTITIONS)
                await group.start("ours", **OURS[ours])
            await wait_until(lambda: shared(java))
            read = len(java.seen)
            await wait_until(lambda: len(java.seen) > read)
        await group.wait_until_balanced()
    await group.close()
    group.check()


async def wait_until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # a program in another process changes it
            await asyncio.sleep(0.05)


async def test_members_of_both_clients_and_both_protocols_share_a_group(
    kafka_cluster: ClusterHandle, tools: Tools
) -> None:
    await asyncio.gather(
        share_a_group(kafka_cluster, tools, "consumer", "classic", ours_first=False),
        share_a_group(kafka_cluster, tools, "classic", "consumer", ours_first=True),
    )
