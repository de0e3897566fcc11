"""The exchanges of the classic protocol, as lists of answers."""

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
from kafka_async.group.membership import GroupSettings, Member, Membership
from kafka_async.group.state import Void
from kafka_async.protocol.messages.heartbeat import HeartbeatResponse
from kafka_async.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kafka_async.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from kafka_async.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


def converse(procedure: Generator[Any, Any, Any], answers: Sequence[Any]) -> tuple[list[Any], Any]:
    """The requests of an exchange that is given these answers, and what comes of it."""
    requests = [next(procedure)]
    for answer in answers:
        try:
            requests.append(procedure.send(answer))
        except StopIteration as result:
            return requests, result.value
    raise AssertionError("the exchange wants more answers")


@pytest.fixture
def membership() -> Membership:
    settings = GroupSettings("g", session_timeout=10, rebalance_timeout=60)
    return Membership(settings, member_id="m-1", generation=4, protocol_name="range")


def test_a_follower_joins(membership: Membership) -> None:
    answer = JoinGroupResponse(
        generation_id=5, protocol_name="range", leader="m-2", member_id="m-1"
    )
    requests, joined = converse(
        classic_protocol.join(membership, "consumer", [("range", b"sub")], "because"), [answer]
    )
    request = requests[0]
    assert (request.group_id, request.member_id, request.reason) == ("g", "m-1", "because")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, 60_000)
    assert [(p.name, p.metadata) for p in request.protocols] == [("range", b"sub")]
    assert joined == classic_protocol.Joined(5, "range", "m-1", False, False, [])


def test_a_leader_learns_who_is_there(membership: Membership) -> None:
    members = [JoinGroupResponseMember(member_id="m-1", metadata=b"x", group_instance_id="i")]
    answer = JoinGroupResponse(generation_id=5, leader="m-1", member_id="m-1", members=members)
    _, joined = converse(classic_protocol.join(membership, "consumer", [], ""), [answer])
    assert joined.leads
    assert joined.members == [Member("m-1", "i", b"x")]


def test_a_newcomer_is_given_an_id_and_joins_with_it(membership: Membership) -> None:
    membership.void(Void.MEMBER)
    required = JoinGroupResponse(error_code=79, member_id="m-9")
    taken = JoinGroupResponse(generation_id=1, leader="m-9", member_id="m-9")
    requests, joined = converse(
        classic_protocol.join(membership, "consumer", [], ""), [required, taken]
    )
    assert [request.member_id for request in requests] == ["", "m-9"]
    assert joined.member_id == membership.member_id == "m-9"


def test_an_id_that_is_required_twice_is_an_error(membership: Membership) -> None:
    with pytest.raises(MemberIdRequiredError):
        converse(
            classic_protocol.join(membership, "consumer", [], ""),
            [JoinGroupResponse(error_code=79, member_id="m-9")],
        )


def test_a_refusal_is_raised(membership: Membership) -> None:
    with pytest.raises(InconsistentGroupProtocolError):
        converse(
            classic_protocol.join(membership, "consumer", [], ""),
            [JoinGroupResponse(error_code=23)],
        )


def test_a_reason_is_cut_to_what_brokers_keep(membership: Membership) -> None:
    procedure = classic_protocol.join(membership, "consumer", [], "x" * 1000)
    assert len(next(procedure).reason or "") == 255


def test_sync_brings_the_leaders_shares_and_collects_ones_own(membership: Membership) -> None:
    requests, share = converse(
        classic_protocol.sync(membership, "consumer", {"m-1": b"a", "m-2": b"b"}),
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
    assert share == b"a"


def test_sync_raises(membership: Membership) -> None:
    with pytest.raises(RebalanceInProgressError):
        converse(
            classic_protocol.sync(membership, "consumer", {}), [SyncGroupResponse(error_code=27)]
        )


def test_a_heartbeat_names_the_generation(membership: Membership) -> None:
    requests, _ = converse(classic_protocol.heartbeat(membership), [HeartbeatResponse()])
    assert (requests[0].member_id, requests[0].generation_id) == ("m-1", 4)
    with pytest.raises(IllegalGenerationError):
        converse(classic_protocol.heartbeat(membership), [HeartbeatResponse(error_code=22)])


@pytest.mark.parametrize("version", [2, 3, 5])
def test_leaving_names_the_member_as_the_version_wants(
    membership: Membership, version: int
) -> None:
    requests, _ = converse(
        classic_protocol.leave(membership, version, "bye"), [LeaveGroupResponse()]
    )
    requests[0].encode(version)
    named = [requests[0].member_id, *(row.member_id for row in requests[0].members)]
    assert [name for name in named if name] == ["m-1"]


def test_leaving_raises_what_the_members_row_says(membership: Membership) -> None:
    answer = LeaveGroupResponse(members=[MemberResponse(member_id="m-1", error_code=25)])
    with pytest.raises(UnknownMemberIdError):
        converse(classic_protocol.leave(membership, 5, "bye"), [answer])
