"""Tests of the admin client on an embedded cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.admin import Admin, ConfigResource, NewTopic, OffsetSpec, ResourceType
from kafka_async.client.client import services_of
from kafka_async.client.metadata.request_router import Broker
from kafka_async.errors import (
    ClientClosedError,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    InvalidConfigError,
    KafkaTimeoutError,
    RequestTimedOutError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka_async.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kafka_async.protocol.messages.create_partitions import CreatePartitionsRequest
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.delete_groups import DeleteGroupsRequest
from kafka_async.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kafka_async.protocol.messages.delete_topics import DeleteTopicsRequest
from kafka_async.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
)
from kafka_async.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.offset_fetch import OffsetFetchRequest
from kafka_async.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.embedded_client import InMemory, now, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.protocol.message import Request

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

DESCRIBE_GROUPS, DELETE_GROUPS = 15, 42
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ABSENT, BEYOND = TopicPartition("absent", 0), TopicPartition("t", 9)


async def test_shared_client_is_not_closed() -> None:
    async with InMemory() as memory:
        async with memory.client() as client:
            async with Admin(client) as shared:
                assert shared.client is client
            assert services_of(client).metadata.snapshot.brokers
        with pytest.raises(ClientClosedError):
            await Admin(client).start()


# -- the items of a call --------------------------------------------------------------------------


async def test_returns_results_in_the_order_of_the_arguments_without_duplicates() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        for name in "ab":
            await memory.cluster.create_topic(name)
        memory.received.clear()
        assert await admin.describe_topics([]) == {}
        assert list(await admin.describe_topics(["b", "a", "b"])) == ["b", "a"]
        (request,) = memory.requests(MetadataRequest)
        assert [topic.name for topic in request.topics] == ["b", "a"]


async def test_retries_retriable_errors_of_items_before_it_raises_the_others() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("x")
        memory.cluster.faults.add(api="CreateTopics", topic="z", error="NOT_CONTROLLER", count=2)
        topics = [NewTopic(name) for name in ("x", "no/name", "z")]
        with pytest.raises(TopicExistsError, match=r"^x: ") as caught:
            await admin.create_topics(topics, wait=False)
        (note,) = caught.value.__notes__
        assert note.startswith("also: no/name: ")
        assert "z" in await admin.list_topics()
        requested = memory.requests(CreateTopicsRequest)
        names = [[topic.name for topic in request.topics] for request in requested]
        assert names == [["x", "no/name", "z"], ["z"], ["z"]]


@pytest.mark.parametrize(("timeout", "limit"), [(5.0, 5.0), (None, 10.0)])
async def test_stops_retrying_at_deadline(timeout: float | None, limit: float) -> None:
    async with InMemory() as memory, memory.admin(default_api_timeout_ms=10_000) as admin:
        memory.cluster.faults.add(api="DeleteTopics", error="REQUEST_TIMED_OUT", count=None)
        start = now()
        with pytest.raises(RequestTimedOutError):
            await admin.delete_topics(["t"], timeout=timeout)
        assert limit - 1.5 < now() - start <= limit
        assert len(memory.requests(DeleteTopicsRequest)) > 3


async def test_does_not_retry_the_deletion_of_a_missing_topic() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.delete_topics(["t"])
        assert len(memory.requests(DeleteTopicsRequest)) == 1


# -- topics ---------------------------------------------------------------------------------------


async def create_without_a_leader(memory: InMemory, admin: Admin, name: str) -> asyncio.Task[int]:
    """Start creating a topic whose second partition loses its only broker."""
    fault = memory.cluster.faults.add(api="CreateTopics", applied=True, hang=True)
    topic = NewTopic(name, assignments={0: [1], 1: [2]})

    async def create() -> int:
        return (await admin.create_topics([topic], timeout=30.0))[name].partitions

    creating = asyncio.create_task(create())
    await fault.wait()
    await memory.cluster.stop_broker(2)
    fault.release()
    return creating


async def test_create_topics_returns_when_every_partition_has_a_leader() -> None:
    async with InMemory(2) as memory, memory.admin() as admin:
        creating = await create_without_a_leader(memory, admin, "t")
        await asyncio.sleep(5)
        assert not creating.done()
        await memory.cluster.start_broker(2)
        assert await creating == 2


async def test_create_topics_raises_when_a_partition_has_no_leader_in_time() -> None:
    async with InMemory(2) as memory, memory.admin() as admin:
        creating = await create_without_a_leader(memory, admin, "t")
        start = now()
        with pytest.raises(KafkaTimeoutError, match="have no leaders yet: t"):
            await creating
        assert now() - start == pytest.approx(30, abs=1.5)


async def test_create_topics_without_wait_does_not_wait_for_leaders() -> None:
    async with InMemory(2) as memory, memory.admin() as admin:
        fault = memory.cluster.faults.add(api="Metadata", topic="t", hang=True, count=None)
        assert (await admin.create_topics([NewTopic("t", 2)], wait=False))["t"].partitions == 2
        assert fault.hits == 0


async def test_assignments_replace_partition_and_replica_counts() -> None:
    async with InMemory(2) as memory, memory.admin() as admin:
        topic = NewTopic("t", 9, 9, assignments={0: [1, 2], 1: [2, 1]})
        created = await admin.create_topics([topic], wait=False)
        assert created["t"].partitions == 2
        found = memory.cluster.topics.get("t")
        assert found is not None
        assert [partition.replicas for partition in found.partitions] == [(1, 2), (2, 1)]


async def test_list_offsets_follows_leader_changes() -> None:
    async with InMemory(3) as memory, memory.admin() as admin, memory.producer() as producer:
        await memory.cluster.create_topic("t", assignments={0: [1], 1: [2]})
        await producer.send("t", b"v", partition=0)
        for _ in range(2):
            await producer.send("t", b"v", partition=1)
        latest = dict.fromkeys([P0, P1], OffsetSpec.LATEST)
        found = await admin.list_offsets(latest)
        assert {row: at.offset for row, at in found.items()} == {P0: 1, P1: 2}
        assert sorted(memory.receivers(ListOffsetsRequest)) == [1, 2]
        memory.received.clear()
        fault = memory.cluster.faults.add(api="ListOffsets", broker=1, hang=True)
        listing = asyncio.create_task(
            admin.list_offsets(latest, isolation_level="read_committed", timeout=5)
        )
        await fault.wait()
        await memory.cluster.move_leader(P0, 3)
        fault.release()
        found = await listing
        assert {row: at.offset for row, at in found.items()} == {P0: 1, P1: 2}
        assert found[P0].leader_epoch == 1
        assert sorted(memory.receivers(ListOffsetsRequest)) == [1, 2, 3]
        levels = [
            request.isolation_level for request in memory.requests(ListOffsetsRequest, broker=3)
        ]
        assert levels == [1]


async def test_offset_without_record_has_no_leader_epoch() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        found = (await admin.list_offsets({P0: OffsetSpec.MAX_TIMESTAMP}))[P0]
        assert (found.offset, found.leader_epoch) == (-1, None)


async def test_list_offsets_retries_unknown_partition_until_deadline() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        with pytest.raises(
            UnknownTopicOrPartitionError, match="t-7: no such partition: the topic has 1 partition"
        ):
            await admin.list_offsets({TopicPartition("t", 7): 0}, timeout=2.0)


async def test_changes_of_missing_topics_are_not_retried() -> None:
    absent = ConfigResource(ResourceType.TOPIC, "absent")
    async with InMemory() as memory, memory.admin() as admin:
        with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
            await admin.create_partitions({"absent": 3})
        with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
            await admin.alter_configs({absent: {"retention.ms": "1"}})
        assert len(memory.receivers(CreatePartitionsRequest)) == 1
        assert len(memory.receivers(IncrementalAlterConfigsRequest)) == 1


# -- groups ---------------------------------------------------------------------------------------


async def commit(memory: InMemory, group: str, metadata: str = "") -> None:
    """Create a group with the committed offset 5 of the first partition."""
    async with memory.consumer(group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        await consumer.commit({P0: OffsetAndMetadata(5, None, metadata)})


async def test_lists_the_groups_of_every_broker() -> None:
    async with InMemory(2) as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        names = [memory.coordinated_by(broker) for broker in (1, 2)]
        for name in names:
            await commit(memory, name)
        memory.cluster.faults.add(api="ListGroups", broker=2, error="COORDINATOR_LOAD_IN_PROGRESS")
        assert sorted(await admin.list_groups()) == sorted(names)
        assert len(memory.requests(ListGroupsRequest, broker=1)) == 1
        assert len(memory.requests(ListGroupsRequest, broker=2)) == 2


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (["shares"], "types has 'shares', .*: did you mean 'share'?"),
        (["classic", "CONSUMERS"], "did you mean 'consumer'?"),
        (["x"], "known are classic, consumer, share, streams"),
    ],
)
async def test_list_groups_refuses_unknown_types(types: list[str], words: str) -> None:
    async with InMemory() as memory, memory.admin() as admin:
        with pytest.raises(ValueError, match=words):
            await admin.list_groups(types=types)
        assert await admin.list_groups(types=["Classic", "share"]) == {}


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["Stables"], "states has 'Stables', which is no state of groups: did you mean 'Stable'?"),
        (["Empty", "preparing"], "did you mean 'PreparingRebalance'?"),
        (["Running"], "known are Empty, PreparingRebalance, .*, NotReady"),
    ],
)
async def test_list_groups_refuses_unknown_states(states: list[str], words: str) -> None:
    async with InMemory() as memory, memory.admin() as admin:
        with pytest.raises(ValueError, match=words):
            await admin.list_groups(states=states)
        assert await admin.list_groups(states=["stable", "Empty"]) == {}


async def test_session_timeouts_that_are_hidden_are_none() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        async with memory.consumer("t", group_id="g", group_protocol="consumer") as consumer:
            while not consumer.assignment():
                await consumer.poll(timeout=0.1)
            for error in ("GROUP_AUTHORIZATION_FAILED", "INVALID_REQUEST"):
                memory.cluster.faults.add(api="DescribeConfigs", error=error)
                listed = await admin.list_groups(session_timeouts=True)
                assert listed["g"].session_timeout_ms is None
            memory.cluster.faults.add(api="DescribeConfigs", error="INVALID_CONFIG")
            with pytest.raises(InvalidConfigError):
                await admin.describe_groups(["g"], session_timeouts=True)
            described = await admin.describe_groups(["g"], session_timeouts=True)
            assert described["g"].session_timeout_ms == 45_000


async def test_failed_list_groups_cancels_its_other_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled = asyncio.Event()

    async def request(_: object, *, to: Broker, timeout: float) -> None:
        if to == Broker(2):
            raise KafkaTimeoutError(f"no response within {timeout:g} s")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with InMemory(2) as memory, memory.admin() as admin:
        monkeypatch.setattr(services_of(admin.client), "request", request)
        with pytest.raises(KafkaTimeoutError):
            await admin.list_groups()
        async with asyncio.timeout(1):
            await cancelled.wait()


async def test_describes_a_classic_group_with_its_assignments() -> None:
    async with InMemory(2) as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t", 2)
        name = memory.coordinated_by(2)
        options: dict[str, Any] = {"group_id": name, "partition_assignment_strategy": ["range"]}
        async with memory.consumer("t", **options) as first:
            await first.poll(timeout=1)
            group = (await admin.describe_groups([name]))[name]
            assert (group.type, group.state, group.protocol) == ("classic", "Stable", "range")
            assert group.coordinator == 2
            assert [member.assignment for member in group.members] == [{P0, P1}]
            async with memory.consumer("t", **options):
                await settle()
                group = (await admin.describe_groups([name]))[name]
                assert group.state == "PreparingRebalance"
                assert [member.assignment for member in group.members] == [{P0, P1}, frozenset()]


@pytest.mark.parametrize("highest", [5, 6], ids=["state Dead", "error"])
async def test_describe_groups_raises_for_missing_group(highest: int) -> None:
    """Since version 6 of DescribeGroups a broker responds with an error (KIP-1043)."""
    versions = {DESCRIBE_GROUPS: (0, highest)}
    async with InMemory(api_versions=versions) as memory, memory.admin() as admin:
        with pytest.raises(GroupIdNotFoundError, match="group g: "):
            await admin.describe_groups(["g"])


async def test_finds_coordinator_that_moved() -> None:
    async with InMemory(2) as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        name = memory.coordinated_by(2)
        await memory.cluster.stop_broker(2)
        await commit(memory, name)
        await admin.delete_groups([name])
        await memory.cluster.start_broker(2)
        await commit(memory, name)
        await admin.delete_groups([name])
        assert memory.receivers(DeleteGroupsRequest) == [1, 1, 2]


SHARE_GROUP_CALLS: dict[str, Callable[[Admin, str], Awaitable[object]]] = {
    "describe": lambda admin, name: admin.describe_share_groups([name]),
    "list": lambda admin, name: admin.list_share_group_offsets(name),
    "alter": lambda admin, name: admin.alter_share_group_offsets(name, {P0: 1}),
    "delete": lambda admin, name: admin.delete_share_group_offsets(name, ["t"]),
}


@pytest.mark.parametrize("call", SHARE_GROUP_CALLS.values(), ids=SHARE_GROUP_CALLS.keys())
async def test_share_group_call_finds_coordinator_that_moved(
    call: Callable[[Admin, str], Awaitable[object]],
) -> None:
    async with InMemory(2) as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        name = memory.coordinated_by(2)
        await admin.alter_share_group_offsets(name, {P0: 0})
        await memory.cluster.stop_broker(2)
        await call(admin, name)
        assert (await admin.describe_share_groups([name]))[name].coordinator == 1


UNKNOWN_SHARE_PARTITIONS: dict[str, tuple[type[Request[Any]], Callable[[Admin], Any]]] = {
    "alter": (
        AlterShareGroupOffsetsRequest,
        lambda admin: admin.alter_share_group_offsets("g", {P0: 1, BEYOND: 1, ABSENT: 1}),
    ),
    "delete": (
        DeleteShareGroupOffsetsRequest,
        lambda admin: admin.delete_share_group_offsets("g", ["absent", "t", "gone"]),
    ),
}


@pytest.mark.parametrize(
    ("request_class", "call"),
    UNKNOWN_SHARE_PARTITIONS.values(),
    ids=UNKNOWN_SHARE_PARTITIONS.keys(),
)
async def test_share_group_call_raises_unknown_partitions_without_a_retry(
    request_class: type[Request[Any]], call: Callable[[Admin], Awaitable[object]]
) -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        await admin.alter_share_group_offsets("g", {P0: 0})
        memory.received.clear()
        with pytest.raises(UnknownTopicOrPartitionError) as raised:
            await call(admin)
        (other,) = raised.value.__notes__
        assert other.startswith("also: ")
        assert len(memory.receivers(request_class)) == 1


async def test_listing_share_group_offsets_raises_unknown_partitions_without_the_request() -> None:
    """A broker would not respond."""
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        await admin.alter_share_group_offsets("g", {P0: 0})
        with pytest.raises(UnknownTopicOrPartitionError, match="t-9: no such partition") as raised:
            await admin.list_share_group_offsets("g", [P0, BEYOND, ABSENT])
        (other,) = raised.value.__notes__
        assert "absent-0: no such partition" in other
        assert not memory.receivers(DescribeShareGroupOffsetsRequest)
        assert (await admin.list_share_group_offsets("g", [P0])).keys() == {P0}


async def test_offsets_of_a_group_of_the_consumer_protocol_with_members_are_not_altered() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t", 2)
        async with memory.consumer("t", group_id="g", group_protocol="consumer") as consumer:
            while not consumer.assignment():
                await consumer.poll()
            with pytest.raises(GroupNotEmptyError, match="group g has members"):
                await admin.alter_group_offsets("g", {P0: 0})


async def test_committed_offsets_leave_out_partitions_without_one() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t", 2)
        await commit(memory, "g", "note")
        memory.received.clear()
        found = await admin.list_group_offsets("g")
        assert found == {P0: OffsetAndMetadata(5, None, "note")}
        assert await admin.list_group_offsets("g", [P0, P1]) == found
        everything, some = memory.requests(OffsetFetchRequest)
        assert everything.groups[0].topics is None
        (topic,) = some.groups[0].topics
        assert list(topic.partition_indexes) == [0, 1]


async def test_waits_for_offsets_of_open_transaction() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        await commit(memory, "g")
        memory.received.clear()
        async with memory.producer(transactional_id="x") as producer:
            txn = await producer.begin()
            await txn.commit_offsets({P0: OffsetAndMetadata(7)}, GroupMetadata("g"))
            listing = asyncio.create_task(admin.list_group_offsets("g", require_stable=True))
            await asyncio.sleep(2)
            assert not listing.done()
            assert (await admin.list_group_offsets("g"))[P0].offset == 5
            await txn.commit()
            assert (await listing)[P0].offset == 7
        stable = [request.require_stable for request in memory.requests(OffsetFetchRequest)]
        assert stable.count(True) > 2
        assert stable.count(False) == 1


async def test_unsupported_version_error_names_the_api() -> None:
    async with InMemory(api_versions={DELETE_GROUPS: (0, -1)}) as memory, memory.admin() as admin:
        with pytest.raises(UnsupportedVersionError, match="DeleteGroups"):
            await admin.delete_groups(["g"])
