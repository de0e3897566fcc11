"""The admin client, against scripted brokers where a healthy cluster does not show it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.admin import Admin, NewTopic, OffsetSpec
from kafka_async.errors import (
    ClientClosedError,
    GroupIdNotFoundError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka_async.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from kafka_async.protocol.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from kafka_async.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafka_async.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kafka_async.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kafka_async.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_async.types import OffsetAndMetadata, TopicPartition
from tests.cluster.scripted import World, always
from tests.embedded_client import InMemory

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LIST_OFFSETS, OFFSET_FETCH, DESCRIBE_GROUPS, LIST_GROUPS = 2, 9, 15, 16
CREATE_TOPICS, DELETE_GROUPS, CONSUMER_GROUP_DESCRIBE = 19, 42, 69
NOT_LEADER, NOT_COORDINATOR, UNSTABLE, NOT_FOUND, LOADING = 6, 16, 88, 69, 14
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def admin(world: World, **options: Any) -> Admin:
    """Return an admin client that owns its client."""
    made = Admin("memory:1", **options)
    made.client = world.client(**options)
    return made


async def test_a_shared_client_is_used_and_not_closed() -> None:
    world = World()
    async with world.client() as client:
        async with Admin(client) as shared:
            assert shared.client is client
        assert client.metadata.brokers
        with pytest.raises(InvalidConfigurationError, match="client_id belongs to the shared"):
            Admin(client, client_id="other")
    with pytest.raises(ClientClosedError):
        await Admin(client).start()


async def test_options_may_have_javas_names() -> None:
    made = Admin.from_properties({"bootstrap.servers": "a:1", "client.id": "x"})
    assert made.client.config.client_id == "x"


async def test_creating_returns_when_every_partition_is_led() -> None:
    world = World()

    def create(peer: Any, header: Any, request: CreateTopicsRequest) -> CreateTopicsResponse:
        world.add("t", 1, -1)
        row = CreatableTopicResult(name="t", num_partitions=2, replication_factor=1)
        return CreateTopicsResponse(topics=[row])

    world.answers[CREATE_TOPICS] = create
    async with admin(world) as made:
        creating = asyncio.create_task(made.create_topics([NewTopic("t", 2)]))
        await asyncio.sleep(5)
        assert not creating.done()
        world.topics["t"] = [1, 1]
        assert (await creating)["t"].partitions == 2
        world.topics["t"] = [1, -1]
        await made.create_topics([NewTopic("t", 2)], wait=False)
        with pytest.raises(KafkaTimeoutError, match="have no leaders yet: t"):
            await made.create_topics([NewTopic("t", 2)], timeout=3.0)


async def test_a_topic_with_assigned_replicas_leaves_the_counts_to_them() -> None:
    async with InMemory(2) as memory, memory.admin() as made:
        topic = NewTopic("t", 9, 9, assignments={0: [1, 2], 1: [2, 1]})
        created = await made.create_topics([topic], wait=False)
        assert created["t"].partitions == 2
        found = memory.cluster.topics.get("t")
        assert found is not None
        assert [partition.replicas for partition in found.partitions] == [(1, 2), (2, 1)]


def offsets(world: World) -> None:
    """Only the leader answers for a partition: its offset is 10 times its broker's id."""

    def answer(peer: Any, header: Any, request: ListOffsetsRequest) -> ListOffsetsResponse:
        node_id = peer.broker.node_id
        rows: list[ListOffsetsPartitionResponse] = []
        for asked in request.topics[0].partitions:
            led = world.topics["t"][asked.partition_index] == node_id
            rows.append(
                ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=0 if led else NOT_LEADER,
                    offset=10 * node_id,
                    leader_epoch=-1,
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])

    world.answers[LIST_OFFSETS] = answer


async def test_offsets_are_asked_of_the_leaders_and_followed_when_those_move() -> None:
    world = World(brokers=3)
    world.add("t", 1, 2)
    offsets(world)
    latest = dict.fromkeys([P0, P1], OffsetSpec.LATEST)
    async with admin(world) as made:
        found = await made.list_offsets(latest)
        assert {row: at.offset for row, at in found.items()} == {P0: 10, P1: 20}
        assert found[P0].leader_epoch is None
        world.topics["t"], world.epochs["t"] = [3, 2], 1
        found = await made.list_offsets(latest, isolation_level="read_committed")
        assert {row: at.offset for row, at in found.items()} == {P0: 30, P1: 20}
    assert {request.isolation_level for request in world.brokers[3].asked(LIST_OFFSETS)} == {1}


async def test_a_partition_that_is_not_there_is_unknown_at_the_deadline() -> None:
    async with InMemory() as memory, memory.admin() as made:
        await memory.cluster.create_topic("t")
        with pytest.raises(UnknownTopicOrPartitionError, match="t-7: no such partition"):
            await made.list_offsets({TopicPartition("t", 7): 0}, timeout=2.0)


# -- groups ---------------------------------------------------------------------------------------


async def test_groups_are_collected_from_every_broker() -> None:
    world = World(brokers=2)
    refusals = {2: [LOADING]}

    def answer(peer: Any, header: Any, request: Any) -> ListGroupsResponse:
        node_id = peer.broker.node_id
        if refusals.get(node_id):
            return ListGroupsResponse(error_code=refusals[node_id].pop())
        group = ListedGroup(group_id=f"g{node_id}", protocol_type="consumer", group_state="Stable")
        return ListGroupsResponse(groups=[group])

    world.answers[LIST_GROUPS] = answer
    async with admin(world) as made:
        assert sorted(await made.list_groups()) == ["g1", "g2"]
    assert len(world.brokers[1].asked(LIST_GROUPS)) == 1
    assert len(world.brokers[2].asked(LIST_GROUPS)) == 2


def classic_group() -> DescribeGroupsResponse:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic="t", partitions=[0, 1])]
    )
    members = [
        DescribedGroupMember(
            member_id="m",
            client_id="c",
            client_host="/h",
            member_assignment=b"\x00\x01" + assignment.encode(1),
        ),
        DescribedGroupMember(member_id="new"),
    ]
    group = DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )
    return DescribeGroupsResponse(groups=[group])


async def test_a_classic_group_is_described_with_its_assignments() -> None:
    world = World(brokers=2)
    world.coordinator = 2
    world.answers[DESCRIBE_GROUPS] = always(classic_group())
    world.max_versions[CONSUMER_GROUP_DESCRIBE] = -1
    async with admin(world) as made:
        group = (await made.describe_groups(["g"]))["g"]
        assert (group.type, group.state, group.protocol) == ("classic", "Stable", "range")
        assert group.coordinator == 2
        assert group.members[0].assignment == {P0, P1}
        assert group.members[1].assignment == frozenset()


async def test_a_dead_group_is_none() -> None:
    world = World()
    dead = DescribedGroup(group_id="g", group_state="Dead")
    world.answers[DESCRIBE_GROUPS] = always(DescribeGroupsResponse(groups=[dead]))
    world.max_versions[CONSUMER_GROUP_DESCRIBE] = -1
    async with admin(world) as made:
        with pytest.raises(GroupIdNotFoundError, match="group g: there is no such group"):
            await made.describe_groups(["g"])


async def test_a_coordinator_that_moved_is_found_again() -> None:
    world = World(brokers=2)

    def answer(peer: Any, header: Any, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        right = peer.broker.node_id == world.coordinator
        row = DeletableGroupResult(group_id="g", error_code=0 if right else NOT_COORDINATOR)
        return DeleteGroupsResponse(results=[row])

    world.answers[DELETE_GROUPS] = answer
    async with admin(world) as made:
        await made.delete_groups(["g"])
        world.coordinator = 2
        await made.delete_groups(["g"])
    assert len(world.brokers[2].asked(DELETE_GROUPS)) == 1


def committed(code: int = 0) -> OffsetFetchResponse:
    rows = [
        OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=5, metadata="note", error_code=code
        ),
        OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=rows)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


async def test_committed_offsets_leave_out_what_was_never_committed() -> None:
    world = World()
    world.answers[OFFSET_FETCH] = always(committed())
    async with admin(world) as made:
        found = await made.list_group_offsets("g")
        assert found == {P0: OffsetAndMetadata(5, None, "note")}
        await made.list_group_offsets("g", [P0, P1])
    everything, some = world.brokers[1].asked(OFFSET_FETCH)
    assert isinstance(everything, OffsetFetchRequest)
    assert everything.groups[0].topics is None
    (topic,) = some.groups[0].topics
    assert (topic.name, list(topic.partition_indexes)) == ("t", [0, 1])


async def test_offsets_that_a_transaction_holds_are_waited_for() -> None:
    world = World()
    answers = [committed(UNSTABLE), committed(UNSTABLE), committed()]

    def answer(peer: Any, header: Any, request: Any) -> OffsetFetchResponse:
        return answers.pop(0)

    world.answers[OFFSET_FETCH] = answer
    async with admin(world) as made:
        assert (await made.list_group_offsets("g", require_stable=True))[P0].offset == 5
    assert all(request.require_stable for request in world.brokers[1].asked(OFFSET_FETCH))


async def test_an_api_that_the_cluster_lacks_is_named() -> None:
    world = World()
    world.max_versions[DELETE_GROUPS] = -1
    async with admin(world) as made:
        with pytest.raises(UnsupportedVersionError, match="DeleteGroups"):
            await made.delete_groups(["g"])
