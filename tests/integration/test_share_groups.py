"""Share groups on every kind of cluster: acknowledgements, redelivery, limits, and admin calls."""

from __future__ import annotations

import asyncio
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.admin import Admin, ConfigResource, ResourceType
from kafka_async.consumer.share.share_consumer import ShareConsumer, ShareRecord
from kafka_async.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidRecordStateError,
    RetriableError,
    UnknownTopicOrPartitionError,
)
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic, find_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.errors import KafkaError
    from kafka_async.testing.fixtures import ClusterHandle
    from tests.integration.kafka_tools import Tools

pytestmark = pytest.mark.asyncio

EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}


class Group:
    """A share group that starts at the beginning of a topic of one partition."""

    def __init__(self, cluster: ClusterHandle, topic: str) -> None:
        self.id = cluster.group("share")
        self.topic = topic
        self.partition = TopicPartition(topic, 0)
        self._cluster = cluster

    def consumer(self, **options: Any) -> ShareConsumer:
        return ShareConsumer(
            self._cluster.bootstrap_servers, topics=[self.topic], group_id=self.id, **options
        )

    async def configure(self, **options: str) -> None:
        """Set options of the group, such as share_auto_offset_reset."""
        changes = {name.replace("_", "."): value for name, value in options.items()}
        async with Admin(self._cluster.bootstrap_servers) as admin:
            resource = ConfigResource(ResourceType.GROUP, self.id)
            await admin.alter_configs({resource: changes})
            await wait_for_options(admin, resource, changes)


async def share_group(cluster: ClusterHandle, records: int, partitions: int = 1) -> Group:
    """Create a topic with records in its first partition, valued by number, and a group of it."""
    group = Group(cluster, await create_topic(cluster, partitions=partitions))
    await group.configure(share_auto_offset_reset="earliest")
    if records:
        await cluster.produce(group.topic, [b"%d" % number for number in range(records)])
    return group


async def poll_records(consumer: ShareConsumer, count: int, **options: Any) -> list[ShareRecord]:
    """Poll until a consumer has returned this many records; fail after 40 seconds."""
    records: list[ShareRecord] = []
    async with asyncio.timeout(40):
        while len(records) < count:
            records += await consumer.poll(timeout=1.0, **options)
    return records


async def wait_for_options(
    admin: Admin, resource: ConfigResource, values: Mapping[str, str]
) -> None:
    """Wait until brokers, which learn of a change from the controller, have these values."""
    async with asyncio.timeout(40):
        while True:
            found = (await admin.describe_configs([resource]))[resource]
            if {name: found[name].value for name in values} == values:
                return
            await asyncio.sleep(0.05)


def offsets(records: Sequence[ShareRecord]) -> list[int]:
    return sorted(record.offset for record in records)


async def test_next_poll_and_orderly_end_accept_the_records_of_the_last_poll(
    kafka_cluster: ClusterHandle,
) -> None:
    group = await share_group(kafka_cluster, 20)
    async with group.consumer() as consumer:
        records = await poll_records(consumer, 20)
        assert offsets(records) == list(range(20))
        assert {record.delivery_count for record in records} == {1}
        assert consumer.assignment() == {group.partition}
        assert consumer.acquisition_lock_timeout_ms == 30_000
    await kafka_cluster.produce(group.topic, [b"last"])
    async with group.consumer() as consumer:
        (record,) = await poll_records(consumer, 1)
        assert (record.offset, record.value, record.delivery_count) == (20, b"last", 1)


async def test_close_without_end_of_processing_releases_records(
    kafka_cluster: ClusterHandle,
) -> None:
    group = await share_group(kafka_cluster, 5)
    consumer = group.consumer()
    await consumer.start()
    assert len(await poll_records(consumer, 5)) == 5
    await consumer.stop()
    async with group.consumer() as consumer:
        records = await poll_records(consumer, 5)
        assert {record.delivery_count for record in records} == {2}


async def test_cancelled_body_releases_records(kafka_cluster: ClusterHandle) -> None:
    group = await share_group(kafka_cluster, 3)
    processing = asyncio.Event()

    async def process() -> None:
        async with group.consumer() as consumer:
            await poll_records(consumer, 3)
            processing.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(process())
    await processing.wait()
    task.cancel()
    await asyncio.wait({task})
    async with group.consumer() as consumer:
        assert {r.delivery_count for r in await poll_records(consumer, 3)} == {2}


async def test_iteration_accepts_each_record_when_the_next_is_requested(
    kafka_cluster: ClusterHandle,
) -> None:
    group = await share_group(kafka_cluster, 10)
    consumer = group.consumer()
    await consumer.start()
    async for record in consumer:
        if record.offset == 4:
            break
    await consumer.stop()
    async with group.consumer() as consumer:
        records = await poll_records(consumer, 6)
        assert {record.offset for record in records} == set(range(4, 10))
        assert {r.offset for r in records if r.delivery_count == 2} >= {4}


async def test_explicit_acknowledgements(kafka_cluster: ClusterHandle) -> None:
    """Accepted and rejected records are done; a released one is delivered again."""
    group = await share_group(kafka_cluster, 4)
    async with group.consumer(**EXPLICIT) as consumer:
        records = await poll_records(consumer, 4)
        consumer.acknowledge(records[0])
        consumer.acknowledge(records[1], "reject")
        consumer.acknowledge(records[2], "release")
        with pytest.raises(IllegalStateError, match="1 records of the last poll are not"):
            await consumer.poll()
        consumer.acknowledge(records[3], "accept")
        assert await consumer.commit() == {group.partition: None}
        assert await consumer.commit() == {}
        with pytest.raises(IllegalStateError, match="offset 0 is not a record"):
            consumer.acknowledge(records[0])
        (again,) = await poll_records(consumer, 1)
        assert (again.offset, again.delivery_count) == (2, 2)
        consumer.acknowledge(again)


async def test_poll_sends_acknowledgements_and_reports_their_outcome(
    kafka_cluster: ClusterHandle,
) -> None:
    group = await share_group(kafka_cluster, 2)
    reported: list[tuple[TopicPartition, frozenset[int], KafkaError | None]] = []
    async with group.consumer(**EXPLICIT) as consumer:
        consumer.on_acknowledged(lambda tp, rows, error: reported.append((tp, rows, error)))
        for record in await poll_records(consumer, 2):
            consumer.acknowledge(record)
        async with asyncio.timeout(40):
            while not reported:
                assert await consumer.poll(timeout=0.1) == []
        assert reported == [(group.partition, frozenset({0, 1}), None)]


async def test_acknowledgement_after_the_lock_is_reported_per_partition(
    kafka_cluster: ClusterHandle,
) -> None:
    group = await share_group(kafka_cluster, 2)
    await group.configure(share_record_lock_duration_ms="1000")
    async with group.consumer(**EXPLICIT) as consumer, group.consumer() as other:
        records = await poll_records(consumer, 2)
        assert consumer.acquisition_lock_timeout_ms == 1000
        again = await poll_records(other, 2)  # after the lock
        assert {record.delivery_count for record in again} == {2}
        for record in records:
            consumer.acknowledge(record)
        outcome = await consumer.commit()
        assert isinstance(outcome[group.partition], InvalidRecordStateError)


@pytest.mark.slow
@pytest.mark.may_block  # so that the member sends no heartbeats
async def test_member_without_heartbeats_is_removed_and_its_records_come_again(
    kafka_cluster: ClusterHandle, caplog: pytest.LogCaptureFixture
) -> None:
    """It reports the loss and the failed acknowledgements, and joins again."""
    group = await share_group(kafka_cluster, 2)
    await group.configure(
        share_record_lock_duration_ms="1000",
        share_session_timeout_ms="1000",
        share_heartbeat_interval_ms="200",
    )
    async with group.consumer(**EXPLICIT) as consumer, group.consumer() as other:
        records = await poll_records(consumer, 2)
        time.sleep(2.5)  # noqa: ASYNC251  # longer than a session and a lock
        await group.configure(share_record_lock_duration_ms="30000")
        async with asyncio.timeout(40):
            while not any(  # noqa: ASYNC110  # logged by the membership task
                "has lost its place in the group" in text for text in caplog.messages
            ):
                await asyncio.sleep(0.05)
        again = await poll_records(other, 2)
        assert offsets(again) == [0, 1]
        counts = {record.offset: record.delivery_count for record in records}
        assert all(record.delivery_count > counts[record.offset] for record in again)
        for record in records:
            consumer.acknowledge(record)
        outcome = await consumer.commit()
        assert isinstance(outcome[group.partition], InvalidRecordStateError)
        await other.commit()
        async with asyncio.timeout(40):
            while not consumer.assignment():
                await consumer.poll(timeout=0.1)


async def test_missing_topics_are_raised_once_and_others_continue(
    kafka_cluster: ClusterHandle,
) -> None:
    group = await share_group(kafka_cluster, 1)
    missing = [f"{group.topic}-missing", f"{group.topic}/invalid"]
    async with ShareConsumer(
        kafka_cluster.bootstrap_servers,
        topics=[group.topic, *missing],
        group_id=group.id,
        request_timeout_ms=4_000,
        default_api_timeout_ms=4_000,
    ) as consumer:
        records: list[Any] = []
        errors: list[str] = []
        async with asyncio.timeout(60):
            while not (records and errors):
                try:
                    records += await consumer.poll(timeout=1.0)
                except UnknownTopicOrPartitionError as error:
                    errors.append(str(error))
        assert offsets(records) == [0]
        (text,) = errors
        for name in missing:
            assert f"subscribed topic '{name}' does not exist" in text
        await kafka_cluster.produce(group.topic, [b"more"])
        assert await poll_records(consumer, 1)


async def test_renewed_record_is_returned_again_and_stays_locked(
    kafka_cluster: ClusterHandle,
) -> None:
    group = await share_group(kafka_cluster, 1)
    await group.configure(share_record_lock_duration_ms="1500")
    async with group.consumer(**EXPLICIT) as consumer, group.consumer() as other:
        for _ in range(4):  # longer together than the lock
            (record,) = await poll_records(consumer, 1)
            assert record.delivery_count == 1
            consumer.acknowledge(record, "renew")
            assert await consumer.commit() == {group.partition: None}
            assert await other.poll(timeout=0.5) == []
        (record,) = await poll_records(consumer, 1)
        consumer.acknowledge(record)
        assert await consumer.commit() == {group.partition: None}


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
async def test_limits_of_poll(kafka_cluster: ClusterHandle, mode: str) -> None:
    """A poll returns at most max_records; with record_limit no more are acquired (KIP-1206)."""
    group = await share_group(kafka_cluster, 30)
    options: dict[str, Any] = {"share_acquire_mode": mode, "max_poll_records": 10}
    async with group.consumer(**options) as consumer:
        first = await poll_records(consumer, 1)
        assert len(first) == 10
        more = await poll_records(consumer, 3, max_records=3)
        assert len(more) == 3
        if mode == "record_limit":
            async with group.consumer() as other:  # what the first has not acquired is left
                assert offsets(await poll_records(other, 17)) == list(range(13, 30))
        else:
            assert offsets(await poll_records(consumer, 17)) == list(range(13, 30))


async def test_members_share_a_partition(kafka_cluster: ClusterHandle) -> None:
    group = await share_group(kafka_cluster, 0)
    async with group.consumer() as one, group.consumer() as two:
        while not (one.assignment() and two.assignment()):
            await one.poll(timeout=0.1)
            await two.poll(timeout=0.1)
        assert one.assignment() == two.assignment() == {group.partition}
        seen: list[int] = []
        for number in range(6):
            await kafka_cluster.produce(group.topic, [b"%d" % number])
            seen += offsets(await poll_records((one, two)[number % 2], 1))
        assert seen == list(range(6))


async def test_share_group_of_another_protocol_is_refused(kafka_cluster: ClusterHandle) -> None:
    group = await share_group(kafka_cluster, 0)
    from kafka_async.consumer.consumer import Consumer

    async with Consumer(
        kafka_cluster.bootstrap_servers,
        topics=[group.topic],
        group_id=group.id,
        group_protocol="consumer",
    ) as member:
        while not member.assignment():
            await member.poll(timeout=0.1)
        async with group.consumer() as consumer:
            for _ in range(2):
                with pytest.raises(GroupIdNotFoundError):
                    await consumer.poll(timeout=40)
            assert consumer.health().state == "failed"


async def raise_unknown_at_once(admin: Admin, group: Group) -> None:
    """Call with topics and partitions that do not exist: a retry would last until the timeout."""
    absent = TopicPartition(f"{group.topic}-absent", 0)
    beyond = TopicPartition(group.topic, 9)
    for partition in (absent, beyond):
        with pytest.raises(UnknownTopicOrPartitionError, match=re.escape(str(partition))):
            await admin.alter_share_group_offsets(group.id, {partition: 0})
        with pytest.raises(UnknownTopicOrPartitionError, match=re.escape(str(partition))):
            await admin.list_share_group_offsets(group.id, [group.partition, partition])
    with pytest.raises(UnknownTopicOrPartitionError) as raised:
        await admin.alter_share_group_offsets(group.id, {absent: 0, beyond: 0})
    (other,) = raised.value.__notes__
    assert other.startswith("also: ")
    with pytest.raises(UnknownTopicOrPartitionError, match=absent.topic):
        await admin.delete_share_group_offsets(group.id, [absent.topic])


async def test_admin_calls(kafka_cluster: ClusterHandle) -> None:
    group = await share_group(kafka_cluster, 8)
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        async with group.consumer(client_id="sharer") as consumer:
            await poll_records(consumer, 8)
            assert await consumer.commit() == {group.partition: None}
            statistics = consumer.statistics()
            assert statistics.acknowledgements_total["accept"] == 8
            assert statistics.acknowledgements_error_total == statistics.acquired_records == 0
            assert statistics.records_consumed_total == 8
            listing = await find_group(partial(admin.list_groups, types=["share"]), group.id)
            assert (listing.type, listing.protocol_type) == ("share", "share")
            described = await find_group(partial(admin.describe_share_groups, [group.id]), group.id)
            assert (described.type, described.state) == ("share", "Stable")
            (member,) = described.members
            assert member.client_id == "sharer"
            assert member.assignment == {group.partition}
            with pytest.raises(GroupNotEmptyError):
                await admin.alter_share_group_offsets(group.id, {group.partition: 0})
            health = consumer.health()
            assert health.state == "running"
            assert health.assignment == (group.partition,)
            assert health.last_heartbeat_s is not None
        found = await admin.list_share_group_offsets(group.id)
        assert found[group.partition].lag == 0
        await admin.alter_share_group_offsets(group.id, {group.partition: 5})
        found = await admin.list_share_group_offsets(group.id, [group.partition])
        assert found[group.partition].offset == 5
        async with group.consumer() as consumer:
            assert offsets(await poll_records(consumer, 3)) == [5, 6, 7]
        await raise_unknown_at_once(admin, group)
        await admin.delete_share_group_offsets(group.id, [group.topic])
        assert await admin.list_share_group_offsets(group.id) == {}
        await admin.delete_groups([group.id])
        with pytest.raises(GroupIdNotFoundError):
            await admin.describe_share_groups([group.id])


async def test_group_options(kafka_cluster: ClusterHandle) -> None:
    group = await share_group(kafka_cluster, 0)
    resource = ConfigResource(ResourceType.GROUP, group.id)
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        changes = {
            "share.record.lock.duration.ms": "20000",
            "share.isolation.level": "read_committed",
        }
        await admin.alter_configs({resource: changes}, validate_only=True)
        await wait_for_options(admin, resource, {"share.auto.offset.reset": "earliest"})
        before = (await admin.describe_configs([resource]))[resource]
        assert before["share.isolation.level"].value == "read_uncommitted"
        await admin.alter_configs({resource: changes})
        await wait_for_options(admin, resource, changes)
        await admin.alter_configs({resource: {"share.isolation.level": None}})
        await wait_for_options(admin, resource, {"share.isolation.level": "read_uncommitted"})
        with pytest.raises(InvalidConfigurationError):
            await admin.alter_configs({resource: {"share.auto.offset.reset": "sometimes"}})


@pytest.mark.slow
async def test_acknowledgement_after_a_leader_change_is_reported(
    kafka_cluster: ClusterHandle,
) -> None:
    group = Group(kafka_cluster, await create_topic(kafka_cluster, assignments={0: (3, 1, 2)}))
    await group.configure(share_auto_offset_reset="earliest")
    await kafka_cluster.produce(group.topic, [b"0", b"1"])
    async with group.consumer(**EXPLICIT) as consumer:
        for record in await poll_records(consumer, 2):
            consumer.acknowledge(record)
        await asyncio.to_thread(kafka_cluster.control.stop_broker, 3)
        try:
            outcome = await consumer.commit(timeout=30)
            assert isinstance(outcome[group.partition], RetriableError)
            again = await poll_records(consumer, 2)  # from the new leader
            assert offsets(again) == [0, 1]
            for record in again:
                consumer.acknowledge(record)
            assert await consumer.commit() == {group.partition: None}
        finally:
            await asyncio.to_thread(kafka_cluster.control.start_broker, 3)


@pytest.mark.slow
@pytest.mark.foreign
async def test_kafka_tools_agree(kafka_cluster: ClusterHandle, tools: Tools) -> None:
    """Kafka's tools describe our group as we do, and deliver what we have released once more."""
    group = await share_group(kafka_cluster, 3)
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        async with group.consumer(**EXPLICIT) as consumer:
            first, second, third = await poll_records(consumer, 3)
            consumer.acknowledge(first)
            consumer.acknowledge(second, "release")
            consumer.acknowledge(third, "release")
            assert await consumer.commit() == {group.partition: None}
            described = await find_group(partial(admin.describe_share_groups, [group.id]), group.id)
            (member,) = described.members
            arguments = ("--describe", "--group", group.id)
            command = "consumer.group.ShareGroupCommand"
            told = await asyncio.to_thread(
                tools.run, kafka_cluster, command, *arguments, "--members"
            )
            assert member.member_id in told
            assert f"{group.topic}:0" in told
            told = await asyncio.to_thread(tools.run, kafka_cluster, command, *arguments, "--state")
            assert "Stable" in told
        found = (await admin.list_share_group_offsets(group.id))[group.partition]
        told = await asyncio.to_thread(tools.run, kafka_cluster, command, *arguments, "--offsets")
        row = next(line for line in told.splitlines() if group.topic in line).split()
        assert row[:4] == [group.id, group.topic, "0", str(found.offset)]
    told = await asyncio.to_thread(
        tools.run,
        kafka_cluster,
        "consumer.ConsoleShareConsumer",
        *("--topic", group.topic, "--group", group.id, "--max-messages", "2"),
        *("--timeout-ms", "30000", "--formatter-property", "print.delivery=true"),
        *("--formatter-property", "print.offset=true"),
    )
    lines = [line.split("\t") for line in told.splitlines() if "Offset" in line]
    assert sorted(lines) == [
        ["Offset:1", "Delivery:2", "1"],
        ["Offset:2", "Delivery:2", "2"],
    ]
