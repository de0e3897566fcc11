"""Group APIs over raw connections in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from kafka_async.protocol.messages.delete_groups import DeleteGroupsRequest
from kafka_async.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_async.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kafka_async.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.embedded.harness import running_harness

if TYPE_CHECKING:
    from kafka_async.embedded.cluster import EmbeddedCluster
    from tests.embedded.raw_connection import RawConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

EMPTY: Mapping[str, bytes] = {}
SUBSCRIPTION = b"\0\0" + ConsumerProtocolSubscription(topics=["t"]).encode(0)


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    chosen: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        **fields,
    }
    return JoinGroupRequest(**chosen)


async def join(
    client: RawConnection, version: int | None = None, **fields: Any
) -> JoinGroupResponse:
    """Join, with a second request if the first one returns MEMBER_ID_REQUIRED."""
    response = await client.call(join_request(**fields), version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = await client.call(join_request(response.member_id, **fields), version)
    return response


async def sync(
    client: RawConnection,
    joined: JoinGroupResponse,
    assignments: Mapping[str, bytes] = EMPTY,
    version: int | None = None,
) -> SyncGroupResponse:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=data)
            for name, data in assignments.items()
        ],
    )
    return await client.call(request, version)


async def heartbeat(client: RawConnection, joined: JoinGroupResponse) -> int:
    request = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    return (await client.call(request)).error_code


async def describe(client: RawConnection, group_id: str = "g") -> DescribedGroup:
    return (await client.call(DescribeGroupsRequest(groups=[group_id]))).groups[0]


def commit_request(version: int, offset: int, topic_id: Any = None, **fields: Any) -> Any:
    topic = OffsetCommitRequestTopic(
        name="t" if version < 10 else "",
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata="note"
            )
        ],
    )
    if topic_id is not None:
        topic.topic_id = topic_id
    return OffsetCommitRequest(group_id="g", topics=[topic], **fields)


async def commit(
    client: RawConnection, offset: int, joined: JoinGroupResponse | None = None, version: int = 9
) -> int:
    fields: dict[str, Any] = {}
    if joined is not None:
        fields = {
            "generation_id_or_member_epoch": joined.generation_id,
            "member_id": joined.member_id,
        }
    response = await client.call(commit_request(version, offset, **fields), version)
    return response.topics[0].partitions[0].error_code


async def committed(client: RawConnection, group_id: str = "g") -> int:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
    response = (await client.call(request, 9)).groups[0]
    assert response.error_code == ErrorCode.NONE
    return response.topics[0].partitions[0].committed_offset


# -- membership -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
async def test_member_joins_in_every_version(version: int) -> None:
    async with running_harness() as it:
        client = await it.connect()
        response = await join(client, version)
        assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
        assert (response.leader, response.protocol_name) == (response.member_id, "range")
        assert response.protocol_type == ("consumer" if version >= 7 else None)
        assert [member.metadata for member in response.members] == [SUBSCRIPTION]
        synced = await sync(
            client, response, {response.member_id: b"mine"}, min(version, 5 if version >= 7 else 4)
        )
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")


@pytest.mark.parametrize("version", range(10))
async def test_new_member_must_join_again_from_version_4(version: int) -> None:
    async with running_harness() as it:
        client = await it.connect()
        response = await client.call(join_request(), version)
        expected = ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE
        assert response.error_code == expected
        assert response.member_id.startswith("test-client-")


async def test_three_members_form_group() -> None:
    async with running_harness() as it:
        clients = [await it.connect() for _ in range(3)]
        joined = await asyncio.gather(*(join(client) for client in clients))
        # The first member may have joined a generation alone, and must rejoin.
        last = max(response.generation_id for response in joined)
        for index, response in enumerate(joined):
            if response.generation_id < last:
                joined[index] = await join(clients[index], member_id=response.member_id)
        leader = next(response for response in joined if response.members)
        assignments = {member.member_id: member.member_id.encode() for member in leader.members}
        assert len(assignments) == 3
        synced = await asyncio.gather(
            *(
                sync(client, response, assignments if response is leader else EMPTY)
                for client, response in zip(clients, joined, strict=True)
            )
        )
        for response, got in zip(joined, synced, strict=True):
            assert got.assignment == response.member_id.encode()


async def test_member_without_heartbeats_is_removed_after_session_timeout() -> None:
    async with running_harness() as it:
        client = await it.connect()
        joined = await join(client)
        await sync(client, joined)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.sleep(9.9)
        assert await heartbeat(client, joined) == ErrorCode.NONE
        await asyncio.sleep(9.9)
        assert (await describe(client)).group_state == "Stable"
        await asyncio.sleep(0.2)
        assert (await describe(client)).group_state == "Empty"
        assert await heartbeat(client, joined) == ErrorCode.UNKNOWN_MEMBER_ID
        assert loop.time() - start == pytest.approx(20.0)


async def test_rebalance_ends_without_slow_member_after_timeout() -> None:
    async with running_harness(group_initial_rebalance_delay_ms=100) as it:
        slow, quick = await it.connect(), await it.connect()
        joined = await asyncio.gather(
            join(slow, session_timeout_ms=300_000, rebalance_timeout_ms=30_000),
            join(quick, session_timeout_ms=300_000, rebalance_timeout_ms=30_000),
        )
        assert {response.generation_id for response in joined} == {1}
        loop = asyncio.get_running_loop()
        start = loop.time()
        again = await join(
            quick,
            member_id=joined[1].member_id,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=30_000,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"other")],
        )
        assert again.generation_id == 2
        assert [member.member_id for member in again.members] == [again.member_id]
        assert loop.time() - start == pytest.approx(30.0)


async def test_sync_requires_protocol_from_version_5() -> None:  # KIP-559
    async with running_harness() as it:
        client = await it.connect()
        joined = await join(client)
        joined.protocol_type = joined.protocol_name = None
        assert (await sync(client, joined)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await sync(client, joined, version=4)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
async def test_session_timeout_out_of_range_is_rejected(session_ms: int) -> None:
    async with running_harness() as it:
        client = await it.connect()
        response = await client.call(join_request(session_timeout_ms=session_ms))
        assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


async def test_empty_group_id_has_offsets_but_no_members() -> None:
    async with running_harness() as it:
        client = await it.connect()
        response = await client.call(join_request(group_id=""))
        assert response.error_code == ErrorCode.INVALID_GROUP_ID
        assert (await describe(client, "")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        request = commit_request(9, 3)
        request.group_id = ""
        await client.call(request, 9)
        assert await committed(client, "") == 3
        assert (await describe(client, "")).group_state == "Empty"


async def test_unknown_group_rejects_members() -> None:
    async with running_harness() as it:
        client = await it.connect()
        unknown = JoinGroupResponse(
            member_id="unknown", generation_id=1, protocol_type="consumer", protocol_name="range"
        )
        assert (
            await client.call(join_request("unknown"))
        ).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await sync(client, unknown)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert await heartbeat(client, unknown) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
async def test_member_leaves_in_every_version(version: int) -> None:
    async with running_harness() as it:
        client = await it.connect()
        joined = await join(client)
        request = LeaveGroupRequest(group_id="g")
        if version < 3:
            request.member_id = joined.member_id
        else:
            request.members = [MemberIdentity(member_id=joined.member_id)]
        response = await client.call(request, version)
        assert response.error_code == ErrorCode.NONE
        assert [member.error_code for member in response.members] == ([] if version < 3 else [0])
        again = await client.call(request, version)
        codes = [again.error_code] if version < 3 else [it.error_code for it in again.members]
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_leave_removes_several_members() -> None:
    async with running_harness() as it:
        client = await it.connect()
        joined = await join(client, group_instance_id="a")
        request = LeaveGroupRequest(
            group_id="g",
            members=[
                MemberIdentity(group_instance_id="a"),
                MemberIdentity(group_instance_id="b"),
                MemberIdentity(member_id=joined.member_id),
            ],
        )
        response = await client.call(request)
        assert [member.error_code for member in response.members] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]


# -- offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
async def test_offsets_are_committed_in_every_version(version: int) -> None:
    async with running_harness() as it:
        client = await it.connect()
        topic = it.cluster.topics.get("t")
        assert topic is not None
        topic_id = topic.id if version >= 10 else None
        response = await client.call(commit_request(version, 7, topic_id), version)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert response.topics[0].topic_id == (topic_id or response.topics[0].topic_id)
        assert await committed(client) == 7


@pytest.mark.parametrize("version", range(1, 11))
async def test_offsets_are_fetched_in_every_version(version: int) -> None:
    async with running_harness() as it:
        client = await it.connect()
        await commit(client, 7)
        topic = it.cluster.topics.get("t")
        assert topic is not None
        if version < 8:
            request = OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            )
            topics: Any = (await client.call(request, version)).topics
        else:
            wanted = OffsetFetchRequestTopics(partition_indexes=[0, 1])
            if version >= 10:
                wanted.topic_id = topic.id
            else:
                wanted.name = "t"
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])]
            )
            topics = (await client.call(request, version)).groups[0].topics
        found = [(it.committed_offset, it.metadata, it.error_code) for it in topics[0].partitions]
        assert found == [(7, "note", 0), (-1, "", 0)]


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
async def test_fetches_all_committed_offsets(version: int) -> None:
    async with running_harness() as it:
        client = await it.connect()
        await commit(client, 7)
        if version < 8:
            request = OffsetFetchRequest(group_id="g", topics=None)
            topics: Any = (await client.call(request, version)).topics
        else:
            group = OffsetFetchRequestGroup(group_id="g", topics=None)
            response = await client.call(OffsetFetchRequest(groups=[group]), version)
            topics = response.groups[0].topics
        assert [
            partition.committed_offset for topic in topics for partition in topic.partitions
        ] == [7]


async def test_fetches_offsets_of_several_groups() -> None:
    async with running_harness(3) as it:
        coordinator = it.cluster.coordinator_for("g")
        client = await it.connect(coordinator)
        await commit(client, 7)
        names = [f"group-{index}" for index in range(20)]
        near = next(name for name in names if it.cluster.coordinator_for(name) == coordinator)
        far = next(name for name in names if it.cluster.coordinator_for(name) != coordinator)
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        groups = [
            OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("g", near, far)
        ]
        response = await client.call(OffsetFetchRequest(groups=groups), 9)
        assert [group.error_code for group in response.groups] == [0, 0, ErrorCode.NOT_COORDINATOR]
        offsets = [group.topics[0].partitions[0].committed_offset for group in response.groups[:2]]
        assert offsets == [7, -1]


async def test_invalid_offsets_are_not_committed() -> None:
    async with running_harness() as it:
        client = await it.connect()
        request = commit_request(9, 1)
        request.topics[0].name = "nowhere"
        response = await client.call(request, 9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = await client.call(commit_request(10, 1), 10)
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        request = commit_request(9, 1)
        request.topics[0].partitions[0].committed_metadata = "x" * 4097
        response = await client.call(request, 9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
async def test_commit_of_missing_group_fails(version: int, code: ErrorCode) -> None:
    async with running_harness() as it:
        client = await it.connect()
        unknown = JoinGroupResponse(member_id="unknown", generation_id=1)
        assert await commit(client, 1, unknown, version) == code


async def test_only_current_generation_commits() -> None:
    async with running_harness() as it:
        client, other = await it.connect(), await it.connect()
        joined = await join(client)
        await sync(client, joined)
        assert await commit(client, 3, joined) == ErrorCode.NONE
        assert await commit(client, 4) == ErrorCode.UNKNOWN_MEMBER_ID
        newcomer = asyncio.create_task(join(other))
        await asyncio.sleep(0.1)
        assert await heartbeat(client, joined) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await commit(client, 5, joined) == ErrorCode.NONE
        again = await join(client, member_id=joined.member_id)
        await newcomer
        assert await commit(client, 6, joined) == ErrorCode.ILLEGAL_GENERATION
        assert await commit(client, 6, again) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await committed(client) == 5


async def test_offsets_are_deleted_unless_member_subscribes() -> None:
    async with running_harness() as it:
        client = await it.connect()
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        )
        assert (await client.call(request)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        joined = await join(client)
        await sync(client, joined)
        await commit(client, 7, joined)
        response = await client.call(request)
        assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        members = [MemberIdentity(member_id=joined.member_id)]
        await client.call(LeaveGroupRequest(group_id="g", members=members))
        response = await client.call(request)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert await committed(client) == -1


async def test_deleting_topic_deletes_offsets() -> None:
    async with running_harness() as it:
        client = await it.connect()
        await commit(client, 7)
        await it.cluster.delete_topic("t")
        await it.cluster.create_topic("t", 2)
        assert await committed(client) == -1


# -- groups ---------------------------------------------------------------------------------------


async def test_lists_and_describes_groups() -> None:
    async with running_harness() as it:
        client = await it.connect()
        await commit(client, 7)
        listed = await client.call(ListGroupsRequest())
        assert [(group.group_id, group.group_state) for group in listed.groups] == [("g", "Empty")]
        joined = await join(client)
        assert (await describe(client)).group_state == "CompletingRebalance"
        await sync(client, joined, {joined.member_id: b"mine"})
        group = await describe(client)
        assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
        assert group.protocol_data == "range"
        [member] = group.members
        assert (member.member_id, member.client_id) == (joined.member_id, "test-client")
        assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")

        async def count(**filters: Any) -> int:
            return len((await client.call(ListGroupsRequest(**filters))).groups)

        assert await count(states_filter=["stable"]) == 1
        assert await count(states_filter=["Empty"]) == 0
        assert await count(types_filter=["classic"]) == 1
        assert await count(types_filter=["consumer"]) == 0


async def test_describes_missing_group_as_dead() -> None:
    async with running_harness() as it:
        client = await it.connect()
        group = (await client.call(DescribeGroupsRequest(groups=["g"]), 5)).groups[0]
        assert (group.group_state, group.error_code) == ("Dead", ErrorCode.NONE)
        group = await describe(client)
        assert (group.group_state, group.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)


async def test_deletes_groups_without_members() -> None:
    async with running_harness() as it:
        client = await it.connect()
        await commit(client, 7)
        request = DeleteGroupsRequest(groups_names=["g", "h"])
        codes = [result.error_code for result in (await client.call(request)).results]
        assert codes == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        assert await committed(client) == -1
        await join(client)
        codes = [result.error_code for result in (await client.call(request)).results]
        assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]


# -- coordinators ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_finds_coordinator_in_every_version(version: int) -> None:
    async with running_harness(3) as it:
        client = await it.connect()
        if version < 4:
            one: Any = await client.call(FindCoordinatorRequest(key="g"), version)
        else:
            request = FindCoordinatorRequest(coordinator_keys=["g"])
            [one] = (await client.call(request, version)).coordinators
        assert one.error_code == ErrorCode.NONE
        broker = it.cluster.brokers[one.node_id]
        assert (one.host, one.port) == (broker.host, broker.port)


async def test_share_groups_have_no_coordinator() -> None:
    async with running_harness() as it:
        client = await it.connect()
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:id:0"])
        [one] = (await client.call(request)).coordinators
        assert (one.error_code, one.node_id) == (ErrorCode.INVALID_REQUEST, -1)


def away_from(cluster: EmbeddedCluster, group_id: str = "g") -> int:
    """Return a broker that does not coordinate the group."""
    return next(id_ for id_ in cluster.brokers if id_ != cluster.coordinator_for(group_id))


CALLS: list[tuple[Any, Callable[[Any], int]]] = [
    (join_request(), lambda it: it.error_code),
    (
        SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range"),
        lambda it: it.error_code,
    ),
    (HeartbeatRequest(group_id="g"), lambda it: it.error_code),
    (LeaveGroupRequest(group_id="g"), lambda it: it.error_code),
    (commit_request(10, 1), lambda it: it.topics[0].partitions[0].error_code),
    (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[])]),
        lambda it: it.groups[0].error_code,
    ),
    (OffsetDeleteRequest(group_id="g"), lambda it: it.error_code),
    (DescribeGroupsRequest(groups=["g"]), lambda it: it.groups[0].error_code),
    (DeleteGroupsRequest(groups_names=["g"]), lambda it: it.results[0].error_code),
]


@pytest.mark.parametrize(
    ("request_", "error_code_of"), CALLS, ids=[type(request).__name__ for request, _ in CALLS]
)
async def test_other_broker_responds_not_coordinator(
    request_: Any, error_code_of: Callable[[Any], int]
) -> None:
    async with running_harness(3) as it:
        client = await it.connect(away_from(it.cluster))
        assert error_code_of(await client.call(request_)) == ErrorCode.NOT_COORDINATOR


async def test_group_survives_stop_of_its_coordinator() -> None:
    async with running_harness(3) as it:
        first = it.cluster.coordinator_for("g")
        assert first is not None
        client = await it.connect(first)
        joined = await join(client)
        await sync(client, joined, {joined.member_id: b"mine"})
        await commit(client, 7, joined)

        await it.cluster.stop_broker(first)

        second = it.cluster.coordinator_for("g")
        assert second not in (None, first)
        client = await it.connect(second)
        assert await heartbeat(client, joined) == ErrorCode.NONE
        assert (await sync(client, joined)).assignment == b"mine"
        assert await committed(client) == 7

        await it.cluster.start_broker(first)
        assert await heartbeat(client, joined) == ErrorCode.NOT_COORDINATOR
        client = await it.connect(first)
        assert await heartbeat(client, joined) == ErrorCode.NONE


async def test_pending_join_fails_when_broker_stops() -> None:
    async with running_harness(3) as it:
        first = it.cluster.coordinator_for("g")
        assert first is not None
        old, new = await it.connect(first), await it.connect(first)
        joined = await join(old)
        await sync(old, joined)
        waiting = asyncio.create_task(join(new))
        await asyncio.sleep(0.1)
        assert await heartbeat(old, joined) == ErrorCode.REBALANCE_IN_PROGRESS
        await it.cluster.stop_broker(first)
        with pytest.raises(ConnectionError):
            await waiting
        client = await it.connect(it.cluster.coordinator_for("g"))
        assert await heartbeat(client, joined) == ErrorCode.NONE


async def test_pending_join_fails_when_coordinator_moves_back() -> None:
    async with running_harness(3) as it:
        coordinator = it.cluster.coordinator_for("g")
        assert coordinator is not None
        await it.cluster.stop_broker(coordinator)
        other = it.cluster.coordinator_for("g")
        assert other is not None
        old, new = await it.connect(other), await it.connect(other)
        joined = await join(old)
        await sync(old, joined)
        waiting = asyncio.create_task(join(new))
        await asyncio.sleep(0.1)
        assert await heartbeat(old, joined) == ErrorCode.REBALANCE_IN_PROGRESS
        await it.cluster.start_broker(coordinator)
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


async def test_new_coordinator_responds_load_in_progress() -> None:
    async with running_harness(3, coordinator_load_time_ms=2_000) as it:
        first = it.cluster.coordinator_for("g")
        assert first is not None
        client = await it.connect(first)
        joined = await join(client)
        await sync(client, joined)
        await it.cluster.stop_broker(first)
        client = await it.connect(it.cluster.coordinator_for("g"))
        assert await heartbeat(client, joined) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        listed = await client.call(ListGroupsRequest())
        assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(2)
        assert await heartbeat(client, joined) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("request_", "error_code_of"), CALLS[-4:], ids=[type(it).__name__ for it, _ in CALLS[-4:]]
)
async def test_rejects_requests_while_group_loads(
    request_: Any, error_code_of: Callable[[Any], int]
) -> None:
    async with running_harness(3, coordinator_load_time_ms=2_000) as it:
        first = it.cluster.coordinator_for("g")
        assert first is not None
        client = await it.connect(first)
        await commit(client, 7)
        await it.cluster.stop_broker(first)
        client = await it.connect(it.cluster.coordinator_for("g"))
        assert error_code_of(await client.call(request_)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(2)
        assert error_code_of(await client.call(request_)) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_stopping_cluster_ends_pending_joins() -> None:
    async with running_harness() as it:
        clients = [await it.connect() for _ in range(2)]
        joined = await join(clients[0])
        await sync(clients[0], joined)
        waiting = asyncio.create_task(join(clients[1]))
        await asyncio.sleep(1)
        await it.cluster.stop()
        with pytest.raises(ConnectionError):
            await waiting
