"""Groups over the wire: an embedded cluster in memory, raw requests, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded.codes import Code
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
from tests.embedded.stage import staged

if TYPE_CHECKING:
    from kafka_async.embedded.cluster import EmbeddedCluster
    from tests.embedded.wire import Peer

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


async def join(client: Peer, version: int | None = None, **fields: Any) -> JoinGroupResponse:
    """Join, with a second request if the first only gives the member id."""
    answer = await client.ask(join_request(**fields), version)
    if answer.error_code == Code.MEMBER_ID_REQUIRED:
        answer = await client.ask(join_request(answer.member_id, **fields), version)
    return answer


async def sync(
    client: Peer,
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
    return await client.ask(request, version)


async def heartbeat(client: Peer, joined: JoinGroupResponse) -> int:
    request = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    return (await client.ask(request)).error_code


async def describe(client: Peer, group_id: str = "g") -> DescribedGroup:
    return (await client.ask(DescribeGroupsRequest(groups=[group_id]))).groups[0]


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
    client: Peer, offset: int, joined: JoinGroupResponse | None = None, version: int = 9
) -> int:
    fields: dict[str, Any] = {}
    if joined is not None:
        fields = {
            "generation_id_or_member_epoch": joined.generation_id,
            "member_id": joined.member_id,
        }
    answer = await client.ask(commit_request(version, offset, **fields), version)
    return answer.topics[0].partitions[0].error_code


async def committed(client: Peer, group_id: str = "g") -> int:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
    answer = (await client.ask(request, 9)).groups[0]
    assert answer.error_code == Code.NONE
    return answer.topics[0].partitions[0].committed_offset


# -- membership -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_in_every_version(version: int) -> None:
    async with staged() as it:
        client = await it.peer()
        answer = await join(client, version)
        assert (answer.error_code, answer.generation_id) == (Code.NONE, 1)
        assert (answer.leader, answer.protocol_name) == (answer.member_id, "range")
        assert answer.protocol_type == ("consumer" if version >= 7 else None)
        assert [member.metadata for member in answer.members] == [SUBSCRIPTION]
        synced = await sync(
            client, answer, {answer.member_id: b"mine"}, min(version, 5 if version >= 7 else 4)
        )
        assert (synced.error_code, synced.assignment) == (Code.NONE, b"mine")


@pytest.mark.parametrize("version", range(10))
async def test_a_new_member_is_told_its_id_first_from_version_4_on(version: int) -> None:
    async with staged() as it:
        client = await it.peer()
        answer = await client.ask(join_request(), version)
        expected = Code.MEMBER_ID_REQUIRED if version >= 4 else Code.NONE
        assert answer.error_code == expected
        assert answer.member_id.startswith("peer-")


async def test_three_members_share_a_group() -> None:
    async with staged() as it:
        clients = [await it.peer() for _ in range(3)]
        joined = await asyncio.gather(*(join(client) for client in clients))
        # Whoever came first was a generation by itself: the others made it join again.
        last = max(answer.generation_id for answer in joined)
        for index, answer in enumerate(joined):
            if answer.generation_id < last:
                joined[index] = await join(clients[index], member_id=answer.member_id)
        leader = next(answer for answer in joined if answer.members)
        shares = {member.member_id: member.member_id.encode() for member in leader.members}
        assert len(shares) == 3
        synced = await asyncio.gather(
            *(
                sync(client, answer, shares if answer is leader else EMPTY)
                for client, answer in zip(clients, joined, strict=True)
            )
        )
        for answer, got in zip(joined, synced, strict=True):
            assert got.assignment == answer.member_id.encode()


async def test_a_member_that_goes_silent_is_out_after_its_session() -> None:
    async with staged() as it:
        client = await it.peer()
        joined = await join(client)
        await sync(client, joined)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.sleep(9.9)
        assert await heartbeat(client, joined) == Code.NONE
        await asyncio.sleep(9.9)
        assert (await describe(client)).group_state == "Stable"
        await asyncio.sleep(0.2)
        assert (await describe(client)).group_state == "Empty"
        assert await heartbeat(client, joined) == Code.UNKNOWN_MEMBER_ID
        assert loop.time() - start == pytest.approx(20.0)


async def test_a_rebalance_is_over_when_the_slow_member_is_given_up() -> None:
    async with staged(group_initial_rebalance_delay_ms=100) as it:
        slow, quick = await it.peer(), await it.peer()
        joined = await asyncio.gather(
            join(slow, session_timeout_ms=300_000, rebalance_timeout_ms=30_000),
            join(quick, session_timeout_ms=300_000, rebalance_timeout_ms=30_000),
        )
        assert {answer.generation_id for answer in joined} == {1}
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


async def test_a_sync_must_name_its_protocol_from_version_5_on() -> None:  # KIP-559
    async with staged() as it:
        client = await it.peer()
        joined = await join(client)
        joined.protocol_type = joined.protocol_name = None
        assert (await sync(client, joined)).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
        assert (await sync(client, joined, version=4)).error_code == Code.NONE


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
async def test_sessions_have_limits(session_ms: int) -> None:
    async with staged() as it:
        client = await it.peer()
        answer = await client.ask(join_request(session_timeout_ms=session_ms))
        assert answer.error_code == Code.INVALID_SESSION_TIMEOUT


async def test_the_group_without_a_name_has_offsets_but_no_members() -> None:
    async with staged() as it:
        client = await it.peer()
        answer = await client.ask(join_request(group_id=""))
        assert answer.error_code == Code.INVALID_GROUP_ID
        assert (await describe(client, "")).error_code == Code.GROUP_ID_NOT_FOUND
        request = commit_request(9, 3)
        request.group_id = ""
        await client.ask(request, 9)
        assert await committed(client, "") == 3
        assert (await describe(client, "")).group_state == "Empty"


async def test_unknown_groups_have_no_members() -> None:
    async with staged() as it:
        client = await it.peer()
        ghost = JoinGroupResponse(
            member_id="ghost", generation_id=1, protocol_type="consumer", protocol_name="range"
        )
        assert (await client.ask(join_request("ghost"))).error_code == Code.UNKNOWN_MEMBER_ID
        assert (await sync(client, ghost)).error_code == Code.UNKNOWN_MEMBER_ID
        assert await heartbeat(client, ghost) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
async def test_leaving_in_every_version(version: int) -> None:
    async with staged() as it:
        client = await it.peer()
        joined = await join(client)
        request = LeaveGroupRequest(group_id="g")
        if version < 3:
            request.member_id = joined.member_id
        else:
            request.members = [MemberIdentity(member_id=joined.member_id)]
        answer = await client.ask(request, version)
        assert answer.error_code == Code.NONE
        assert [member.error_code for member in answer.members] == ([] if version < 3 else [0])
        again = await client.ask(request, version)
        codes = [again.error_code] if version < 3 else [it.error_code for it in again.members]
        assert codes == [Code.UNKNOWN_MEMBER_ID]


async def test_many_members_leave_at_once() -> None:
    async with staged() as it:
        client = await it.peer()
        joined = await join(client, group_instance_id="a")
        request = LeaveGroupRequest(
            group_id="g",
            members=[
                MemberIdentity(group_instance_id="a"),
                MemberIdentity(group_instance_id="b"),
                MemberIdentity(member_id=joined.member_id),
            ],
        )
        answer = await client.ask(request)
        assert [member.error_code for member in answer.members] == [
            Code.NONE,
            Code.UNKNOWN_MEMBER_ID,
            Code.UNKNOWN_MEMBER_ID,
        ]


# -- offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
async def test_committing_in_every_version(version: int) -> None:
    async with staged() as it:
        client = await it.peer()
        topic = it.cluster.topics.get("t")
        assert topic is not None
        topic_id = topic.id if version >= 10 else None
        answer = await client.ask(commit_request(version, 7, topic_id), version)
        assert answer.topics[0].partitions[0].error_code == Code.NONE
        assert answer.topics[0].topic_id == (topic_id or answer.topics[0].topic_id)
        assert await committed(client) == 7


@pytest.mark.parametrize("version", range(1, 11))
async def test_fetching_in_every_version(version: int) -> None:
    async with staged() as it:
        client = await it.peer()
        await commit(client, 7)
        topic = it.cluster.topics.get("t")
        assert topic is not None
        if version < 8:
            request = OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            )
            topics: Any = (await client.ask(request, version)).topics
        else:
            wanted = OffsetFetchRequestTopics(partition_indexes=[0, 1])
            if version >= 10:
                wanted.topic_id = topic.id
            else:
                wanted.name = "t"
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])]
            )
            topics = (await client.ask(request, version)).groups[0].topics
        found = [(it.committed_offset, it.metadata, it.error_code) for it in topics[0].partitions]
        assert found == [(7, "note", 0), (-1, "", 0)]


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
async def test_fetching_all_that_was_committed(version: int) -> None:
    async with staged() as it:
        client = await it.peer()
        await commit(client, 7)
        if version < 8:
            request = OffsetFetchRequest(group_id="g", topics=None)
            topics: Any = (await client.ask(request, version)).topics
        else:
            group = OffsetFetchRequestGroup(group_id="g", topics=None)
            answer = await client.ask(OffsetFetchRequest(groups=[group]), version)
            topics = answer.groups[0].topics
        assert [
            partition.committed_offset for topic in topics for partition in topic.partitions
        ] == [7]


async def test_fetching_for_many_groups() -> None:
    async with staged(3) as it:
        home = it.cluster.coordinator_for("g")
        client = await it.peer(home)
        await commit(client, 7)
        names = [f"group-{index}" for index in range(20)]
        near = next(name for name in names if it.cluster.coordinator_for(name) == home)
        far = next(name for name in names if it.cluster.coordinator_for(name) != home)
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        groups = [
            OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("g", near, far)
        ]
        answer = await client.ask(OffsetFetchRequest(groups=groups), 9)
        assert [group.error_code for group in answer.groups] == [0, 0, Code.NOT_COORDINATOR]
        offsets = [group.topics[0].partitions[0].committed_offset for group in answer.groups[:2]]
        assert offsets == [7, -1]


async def test_unknown_topics_are_not_committed() -> None:
    async with staged() as it:
        client = await it.peer()
        request = commit_request(9, 1)
        request.topics[0].name = "nowhere"
        answer = await client.ask(request, 9)
        assert answer.topics[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        answer = await client.ask(commit_request(10, 1), 10)
        assert answer.topics[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_ID
        request = commit_request(9, 1)
        request.topics[0].partitions[0].committed_metadata = "x" * 4097
        answer = await client.ask(request, 9)
        assert answer.topics[0].partitions[0].error_code == Code.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize(
    ("version", "code"), [(8, Code.ILLEGAL_GENERATION), (9, Code.GROUP_ID_NOT_FOUND)]
)
async def test_a_generation_of_a_group_that_does_not_exist(version: int, code: Code) -> None:
    async with staged() as it:
        client = await it.peer()
        ghost = JoinGroupResponse(member_id="ghost", generation_id=1)
        assert await commit(client, 1, ghost, version) == code


async def test_only_the_current_generation_commits() -> None:
    async with staged() as it:
        client, other = await it.peer(), await it.peer()
        joined = await join(client)
        await sync(client, joined)
        assert await commit(client, 3, joined) == Code.NONE
        assert await commit(client, 4) == Code.UNKNOWN_MEMBER_ID
        newcomer = asyncio.create_task(join(other))
        await asyncio.sleep(0.1)
        assert await heartbeat(client, joined) == Code.REBALANCE_IN_PROGRESS
        assert await commit(client, 5, joined) == Code.NONE
        again = await join(client, member_id=joined.member_id)
        await newcomer
        assert await commit(client, 6, joined) == Code.ILLEGAL_GENERATION
        assert await commit(client, 6, again) == Code.REBALANCE_IN_PROGRESS
        assert await committed(client) == 5


async def test_offsets_are_deleted_unless_a_member_reads_the_topic() -> None:
    async with staged() as it:
        client = await it.peer()
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        )
        assert (await client.ask(request)).error_code == Code.GROUP_ID_NOT_FOUND
        joined = await join(client)
        await sync(client, joined)
        await commit(client, 7, joined)
        answer = await client.ask(request)
        assert answer.topics[0].partitions[0].error_code == Code.GROUP_SUBSCRIBED_TO_TOPIC
        members = [MemberIdentity(member_id=joined.member_id)]
        await client.ask(LeaveGroupRequest(group_id="g", members=members))
        answer = await client.ask(request)
        assert answer.topics[0].partitions[0].error_code == Code.NONE
        assert await committed(client) == -1


async def test_a_deleted_topic_takes_its_offsets_along() -> None:
    async with staged() as it:
        client = await it.peer()
        await commit(client, 7)
        await it.cluster.delete_topic("t")
        await it.cluster.create_topic("t", 2)
        assert await committed(client) == -1


# -- groups ---------------------------------------------------------------------------------------


async def test_listing_and_describing() -> None:
    async with staged() as it:
        client = await it.peer()
        await commit(client, 7)
        listed = await client.ask(ListGroupsRequest())
        assert [(group.group_id, group.group_state) for group in listed.groups] == [("g", "Empty")]
        joined = await join(client)
        assert (await describe(client)).group_state == "CompletingRebalance"
        await sync(client, joined, {joined.member_id: b"mine"})
        group = await describe(client)
        assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
        assert group.protocol_data == "range"
        [member] = group.members
        assert (member.member_id, member.client_id) == (joined.member_id, "peer")
        assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")

        async def count(**filters: Any) -> int:
            return len((await client.ask(ListGroupsRequest(**filters))).groups)

        assert await count(states_filter=["stable"]) == 1
        assert await count(states_filter=["Empty"]) == 0
        assert await count(types_filter=["classic"]) == 1
        assert await count(types_filter=["consumer"]) == 0


async def test_describing_a_group_that_does_not_exist() -> None:
    async with staged() as it:
        client = await it.peer()
        group = (await client.ask(DescribeGroupsRequest(groups=["g"]), 5)).groups[0]
        assert (group.group_state, group.error_code) == ("Dead", Code.NONE)
        group = await describe(client)
        assert (group.group_state, group.error_code) == ("Dead", Code.GROUP_ID_NOT_FOUND)


async def test_deleting_groups() -> None:
    async with staged() as it:
        client = await it.peer()
        await commit(client, 7)
        request = DeleteGroupsRequest(groups_names=["g", "h"])
        codes = [result.error_code for result in (await client.ask(request)).results]
        assert codes == [Code.NONE, Code.GROUP_ID_NOT_FOUND]
        assert await committed(client) == -1
        await join(client)
        codes = [result.error_code for result in (await client.ask(request)).results]
        assert codes == [Code.NON_EMPTY_GROUP, Code.GROUP_ID_NOT_FOUND]


# -- coordinators ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_finding_the_coordinator_in_every_version(version: int) -> None:
    async with staged(3) as it:
        client = await it.peer()
        if version < 4:
            one: Any = await client.ask(FindCoordinatorRequest(key="g"), version)
        else:
            request = FindCoordinatorRequest(coordinator_keys=["g"])
            [one] = (await client.ask(request, version)).coordinators
        assert one.error_code == Code.NONE
        broker = it.cluster.brokers[one.node_id]
        assert (one.host, one.port) == (broker.host, broker.port)


async def test_there_are_no_coordinators_of_other_kinds() -> None:
    async with staged() as it:
        client = await it.peer()
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:id:0"])
        [one] = (await client.ask(request)).coordinators
        assert (one.error_code, one.node_id) == (Code.INVALID_REQUEST, -1)


def away_from(cluster: EmbeddedCluster, group_id: str = "g") -> int:
    """A broker that does not coordinate the group."""
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
    ("request_", "code_of"), CALLS, ids=[type(request).__name__ for request, _ in CALLS]
)
async def test_another_broker_does_not_answer(request_: Any, code_of: Callable[[Any], int]) -> None:
    async with staged(3) as it:
        client = await it.peer(away_from(it.cluster))
        assert code_of(await client.ask(request_)) == Code.NOT_COORDINATOR


async def test_a_group_survives_its_broker() -> None:
    async with staged(3) as it:
        first = it.cluster.coordinator_for("g")
        assert first is not None
        client = await it.peer(first)
        joined = await join(client)
        await sync(client, joined, {joined.member_id: b"mine"})
        await commit(client, 7, joined)

        await it.cluster.stop_broker(first)

        second = it.cluster.coordinator_for("g")
        assert second not in (None, first)
        client = await it.peer(second)
        assert await heartbeat(client, joined) == Code.NONE
        assert (await sync(client, joined)).assignment == b"mine"
        assert await committed(client) == 7

        await it.cluster.start_broker(first)
        assert await heartbeat(client, joined) == Code.NOT_COORDINATOR
        client = await it.peer(first)
        assert await heartbeat(client, joined) == Code.NONE


async def test_a_join_that_waits_fails_with_its_broker() -> None:
    async with staged(3) as it:
        first = it.cluster.coordinator_for("g")
        assert first is not None
        old, new = await it.peer(first), await it.peer(first)
        joined = await join(old)
        await sync(old, joined)
        waiting = asyncio.create_task(join(new))
        await asyncio.sleep(0.1)
        assert await heartbeat(old, joined) == Code.REBALANCE_IN_PROGRESS
        await it.cluster.stop_broker(first)
        with pytest.raises(ConnectionError):
            await waiting
        client = await it.peer(it.cluster.coordinator_for("g"))
        assert await heartbeat(client, joined) == Code.NONE


async def test_a_join_that_waits_is_sent_away_when_the_old_broker_is_back() -> None:
    async with staged(3) as it:
        home = it.cluster.coordinator_for("g")
        assert home is not None
        await it.cluster.stop_broker(home)
        guest = it.cluster.coordinator_for("g")
        assert guest is not None
        old, new = await it.peer(guest), await it.peer(guest)
        joined = await join(old)
        await sync(old, joined)
        waiting = asyncio.create_task(join(new))
        await asyncio.sleep(0.1)
        assert await heartbeat(old, joined) == Code.REBALANCE_IN_PROGRESS
        await it.cluster.start_broker(home)
        assert (await waiting).error_code == Code.NOT_COORDINATOR


async def test_a_new_coordinator_may_take_time_to_load() -> None:
    async with staged(3, coordinator_load_time_ms=2_000) as it:
        first = it.cluster.coordinator_for("g")
        assert first is not None
        client = await it.peer(first)
        joined = await join(client)
        await sync(client, joined)
        await it.cluster.stop_broker(first)
        client = await it.peer(it.cluster.coordinator_for("g"))
        assert await heartbeat(client, joined) == Code.COORDINATOR_LOAD_IN_PROGRESS
        listed = await client.ask(ListGroupsRequest())
        assert listed.error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(2)
        assert await heartbeat(client, joined) == Code.NONE


@pytest.mark.parametrize(
    ("request_", "code_of"), CALLS[-4:], ids=[type(it).__name__ for it, _ in CALLS[-4:]]
)
async def test_refuses_requests_while_the_group_loads(
    request_: Any, code_of: Callable[[Any], int]
) -> None:
    async with staged(3, coordinator_load_time_ms=2_000) as it:
        first = it.cluster.coordinator_for("g")
        assert first is not None
        client = await it.peer(first)
        await commit(client, 7)
        await it.cluster.stop_broker(first)
        client = await it.peer(it.cluster.coordinator_for("g"))
        assert code_of(await client.ask(request_)) == Code.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(2)
        assert code_of(await client.ask(request_)) != Code.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_stopped_cluster_leaves_nobody_waiting() -> None:
    async with staged() as it:
        clients = [await it.peer() for _ in range(2)]
        joined = await join(clients[0])
        await sync(clients[0], joined)
        waiting = asyncio.create_task(join(clients[1]))
        await asyncio.sleep(1)
        await it.cluster.stop()
        with pytest.raises(ConnectionError):
            await waiting
