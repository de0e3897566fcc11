"""Request sequences of the classic protocol, given the responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafka_async.group import classic_protocol
from kafka_async.group.member import GroupSettings, LocalMember, Member
from kafka_async.group.member_states import Invalidation
from kafka_async.protocol.messages.heartbeat import HeartbeatResponse
from kafka_async.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kafka_async.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from kafka_async.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


def exchange(
    procedure: Generator[Any, Any, Any], responses: Sequence[Any]
) -> tuple[list[Any], Any]:
    """Return the requests sent for these responses, and the result."""
    requests = [next(procedure)]
    for response in responses:
        try:
            requests.append(procedure.send(response))
        except StopIteration as result:
            return requests, result.value
    raise AssertionError("the exchange wants more answers")


@pytest.fixture
def member() -> LocalMember:
    settings = GroupSettings("g", session_timeout=10, rebalance_timeout=60)
    return LocalMember(settings, member_id="m-1", generation=4, protocol_name="range")


def test_follower_joins(member: LocalMember) -> None:
    response = JoinGroupResponse(
        generation_id=5, protocol_name="range", leader="m-2", member_id="m-1"
    )
    requests, joined = exchange(
        classic_protocol.join(member, "consumer", [("range", b"sub")], "because"), [response]
    )
    request = requests[0]
    assert (request.group_id, request.member_id, request.reason) == ("g", "m-1", "because")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, 60_000)
    assert [(p.name, p.metadata) for p in request.protocols] == [("range", b"sub")]
    assert joined == classic_protocol.Joined(5, "range", "m-1", False, False, [])


def test_leader_gets_members(member: LocalMember) -> None:
    members = [JoinGroupResponseMember(member_id="m-1", metadata=b"x", group_instance_id="i")]
    response = JoinGroupResponse(generation_id=5, leader="m-1", member_id="m-1", members=members)
    _, joined = exchange(classic_protocol.join(member, "consumer", [], ""), [response])
    assert joined.leads
    assert joined.members == [Member("m-1", "i", b"x")]


def test_new_member_joins_again_with_given_id(member: LocalMember) -> None:
    member.invalidate(Invalidation.MEMBER_ID)
    required = JoinGroupResponse(error_code=79, member_id="m-9")
    accepted = JoinGroupResponse(generation_id=1, leader="m-9", member_id="m-9")
    requests, joined = exchange(
        classic_protocol.join(member, "consumer", [], ""), [required, accepted]
    )
    assert [request.member_id for request in requests] == ["", "m-9"]
    assert joined.member_id == member.member_id == "m-9"


def test_second_member_id_required_is_raised(member: LocalMember) -> None:
    with pytest.raises(MemberIdRequiredError):
        exchange(
            classic_protocol.join(member, "consumer", [], ""),
            [JoinGroupResponse(error_code=79, member_id="m-9")],
        )


def test_join_error_is_raised(member: LocalMember) -> None:
    with pytest.raises(InconsistentGroupProtocolError):
        exchange(
            classic_protocol.join(member, "consumer", [], ""), [JoinGroupResponse(error_code=23)]
        )


def test_reason_is_truncated(member: LocalMember) -> None:
    procedure = classic_protocol.join(member, "consumer", [], "x" * 1000)
    assert len(next(procedure).reason or "") == 255


def test_sync_sends_assignments_and_returns_own(member: LocalMember) -> None:
    requests, assignment = exchange(
        classic_protocol.sync(member, "consumer", {"m-1": b"a", "m-2": b"b"}),
        [SyncGroupResponse(assignment=b"a")],
    )
    request = requests[0]
    assert (request.generation_id, request.protocol_name, request.protocol_type) == (
        *(4, "range"),
        "consumer",
    )
    assert [(row.member_id, row.assignment) for row in request.assignments] == [
        ("m-1", b"a"),
        ("m-2", b"b"),
    ]
    assert assignment == b"a"


def test_sync_error_is_raised(member: LocalMember) -> None:
    with pytest.raises(RebalanceInProgressError):
        exchange(classic_protocol.sync(member, "consumer", {}), [SyncGroupResponse(error_code=27)])


def test_heartbeat_has_generation(member: LocalMember) -> None:
    requests, _ = exchange(classic_protocol.heartbeat(member), [HeartbeatResponse()])
    assert (requests[0].member_id, requests[0].generation_id) == ("m-1", 4)
    with pytest.raises(IllegalGenerationError):
        exchange(classic_protocol.heartbeat(member), [HeartbeatResponse(error_code=22)])


@pytest.mark.parametrize("version", [2, 3, 5])
def test_leave_names_member_as_version_requires(member: LocalMember, version: int) -> None:
    requests, _ = exchange(classic_protocol.leave(member, version, "bye"), [LeaveGroupResponse()])
    requests[0].encode(version)
    named = [requests[0].member_id, *(row.member_id for row in requests[0].members)]
    assert [name for name in named if name] == ["m-1"]


def test_leave_raises_error_of_member_row(member: LocalMember) -> None:
    response = LeaveGroupResponse(members=[MemberResponse(member_id="m-1", error_code=25)])
    with pytest.raises(UnknownMemberIdError):
        exchange(classic_protocol.leave(member, 5, "bye"), [response])
