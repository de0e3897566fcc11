"""Responses of group coordinators to valid and invalid requests, on every kind of cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded import ErrorCode
from kafka_async.protocol.messages.delete_groups import DeleteGroupsRequest
from kafka_async.protocol.messages.describe_groups import DescribeGroupsRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafka_async.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.integration.raw_cluster import NOT_READY, TIMEOUT, RawCluster, RawConnection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.testing.fixtures import ClusterHandle

RANGE = JoinGroupRequestProtocol(name="range", metadata=b"m")


class Group:
    """Sends requests about one group to its coordinator."""

    def __init__(self, cluster: RawCluster, group_id: str, topic: str) -> None:
        self.id = group_id
        self.topic = topic
        self.at: RawConnection = cluster.coordinator(0, group_id)

    def join(self, member_id: str = "", version: int = 9, **fields: Any) -> JoinGroupResponse:
        chosen: dict[str, Any] = {
            "group_id": self.id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [RANGE],
            **fields,
        }
        return self.at.call(JoinGroupRequest(**chosen), version)

    def enter(self, **fields: Any) -> JoinGroupResponse:
        """Join as a new member, with a second request after MEMBER_ID_REQUIRED."""
        deadline = time.monotonic() + TIMEOUT
        response = self.join(**fields)
        while response.error_code in NOT_READY and time.monotonic() < deadline:
            time.sleep(0.1)
            response = self.join(**fields)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            response = self.join(response.member_id, **fields)
        assert response.error_code == ErrorCode.NONE
        return response

    def sync(self, joined: JoinGroupResponse, **fields: Any) -> SyncGroupResponse:
        assignment = SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=b"assignment"
        )
        chosen: dict[str, Any] = {
            "group_id": self.id,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [assignment],
            **fields,
        }
        return self.at.call(SyncGroupRequest(**chosen), 5)

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        return self.at.call(request, 4).error_code

    def commit(self, member_id: str = "", generation: int = -1, version: int = 9) -> int:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        return self.at.call(request, version).topics[0].partitions[0].error_code

    def committed(self) -> int:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=self.id, topics=topics)
        response = self.at.call(OffsetFetchRequest(groups=[group]), 9)
        return response.groups[0].topics[0].partitions[0].committed_offset

    def leave(self, member_id: str, instance_id: str | None = None) -> int:
        member = MemberIdentity(member_id=member_id, group_instance_id=instance_id)
        response = self.at.call(LeaveGroupRequest(group_id=self.id, members=[member]), 5)
        return response.error_code or response.members[0].error_code

    def state(self, version: int = 6) -> tuple[int, str]:
        [group] = self.at.call(DescribeGroupsRequest(groups=[self.id]), version).groups
        return group.error_code, group.group_state

    def delete(self) -> int:
        return self.at.call(DeleteGroupsRequest(groups_names=[self.id]), 2).results[0].error_code


@pytest.fixture
def group(kafka_cluster: ClusterHandle) -> Iterator[Group]:
    cluster = RawCluster(kafka_cluster.bootstrap_servers)
    topic = kafka_cluster.topic()
    cluster.create_topic(topic)
    yield Group(cluster, kafka_cluster.group(), topic)
    cluster.close()


def test_responses_about_a_group_that_does_not_exist(group: Group) -> None:
    ghost = JoinGroupResponse(member_id="ghost", generation_id=1)
    deadline = time.monotonic() + TIMEOUT
    while group.heartbeat("ghost", 1) in NOT_READY and time.monotonic() < deadline:
        time.sleep(0.1)
    assert group.join("ghost").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync(ghost).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync(ghost, protocol_type=None).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.heartbeat("ghost", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.leave("ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit("ghost", 1, version=8) == ErrorCode.ILLEGAL_GENERATION
    assert group.commit("ghost", 1, version=9) == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.committed() == -1
    assert group.state(version=5) == (ErrorCode.NONE, "Dead")
    assert group.state() == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert group.delete() == ErrorCode.GROUP_ID_NOT_FOUND


def test_responses_during_one_generation(group: Group) -> None:
    joined = group.enter()
    member = joined.member_id
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, member, "range")
    assert group.commit(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.sync(joined, generation_id=2).error_code == ErrorCode.ILLEGAL_GENERATION
    assert group.sync(joined, protocol_name="x").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.sync(joined).assignment == b"assignment"
    assert group.state() == (ErrorCode.NONE, "Stable")
    assert group.heartbeat(member, 1) == ErrorCode.NONE
    assert group.heartbeat(member, 2) == ErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat(member, 1, "unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit(member, 1) == ErrorCode.NONE
    assert group.commit(member, -1) == ErrorCode.ILLEGAL_GENERATION
    assert group.commit() == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.committed() == 7
    other = JoinGroupRequestProtocol(name="other", metadata=b"")
    assert group.join(protocols=[other]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join(protocol_type="other").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.delete() == ErrorCode.NON_EMPTY_GROUP
    assert group.leave(member) == ErrorCode.NONE
    assert group.state() == (ErrorCode.NONE, "Empty")
    assert group.join(member).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.delete() == ErrorCode.NONE
    assert group.committed() == -1


def test_responses_to_static_members(group: Group) -> None:
    first = group.enter(group_instance_id="a")
    assert group.sync(first, group_instance_id="a").error_code == ErrorCode.NONE
    second = group.join(group_instance_id="a")
    assert (second.error_code, second.generation_id) == (ErrorCode.NONE, 1)
    assert second.leader == second.member_id != first.member_id
    assert second.skip_assignment
    assert group.heartbeat(first.member_id, 1, "a") == ErrorCode.FENCED_INSTANCE_ID
    assert (
        group.join(first.member_id, group_instance_id="a").error_code
        == ErrorCode.FENCED_INSTANCE_ID
    )
    old = group.join(group_instance_id="a", version=8)
    assert (old.error_code, old.leader, len(old.members)) == (ErrorCode.NONE, second.member_id, 0)
    assert group.leave("", "a") == ErrorCode.NONE
    assert group.leave("", "a") == ErrorCode.UNKNOWN_MEMBER_ID
