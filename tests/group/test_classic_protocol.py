"""Request sequences of the classic protocol, given the responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import (
    IncompleteResponseError,
    MemberIdRequiredError,
    UnknownMemberIdError,
)
from kafka_async.group import classic_protocol
from kafka_async.group.member import GroupSettings, LocalMember
from kafka_async.group.member_states import Invalidation
from kafka_async.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kafka_async.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse

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


def test_new_member_joins_again_with_given_id(member: LocalMember) -> None:
    member.invalidate(Invalidation.MEMBER_ID)
    member.discard_invalid()
    required = JoinGroupResponse(error_code=79, member_id="m-9")
    accepted = JoinGroupResponse(
        generation_id=1,
        protocol_name="range",
        leader="m-9",
        member_id="m-9",
        members=[JoinGroupResponseMember(member_id="m-9")],
    )
    requests, joined = exchange(
        classic_protocol.join(member, "consumer", [], ""), [required, accepted]
    )
    assert [request.member_id for request in requests] == ["", "m-9"]
    assert joined.member_id == member.member_id == "m-9"


@pytest.mark.parametrize(
    ("response", "missing"),
    [
        (JoinGroupResponse(leader="m-1", member_id="m-1", protocol_name="range"), "m-1"),
        (
            JoinGroupResponse(leader="m-2", member_id="m-1", protocol_name=None),
            "the protocol of the group",
        ),
    ],
)
def test_incomplete_response_is_retriable(
    member: LocalMember, response: JoinGroupResponse, missing: str
) -> None:
    with pytest.raises(IncompleteResponseError, match=f"response lacks {missing}"):
        exchange(classic_protocol.join(member, "consumer", [], ""), [response])


def test_second_member_id_required_is_raised(member: LocalMember) -> None:
    with pytest.raises(MemberIdRequiredError):
        exchange(
            classic_protocol.join(member, "consumer", [], ""),
            [JoinGroupResponse(error_code=79, member_id="m-9")],
        )


def test_reason_is_truncated(member: LocalMember) -> None:
    procedure = classic_protocol.join(member, "consumer", [], "x" * 1000)
    assert len(next(procedure).reason or "") == 255


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
