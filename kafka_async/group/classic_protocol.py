"""The classic protocol's exchanges as generators: they yield requests and are sent the responses.

Each returns what came of it or raises the broker's error; what to do about an error is a row in
state.py, so a test of an exchange is a list of responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafka_async.errors import MemberIdRequiredError, error_for
from kafka_async.group.membership import Member, Membership
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kafka_async.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from kafka_async.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

R = TypeVar("R")
_LEAVE_IN_BATCHES = 3
"""The first version of LeaveGroup that names members in a list (KIP-345)."""


class Joined(NamedTuple):
    """What JoinGroup told.

    `members` is empty unless this member leads; `skip_assignment` says that it leads but that the
    assignment stands (KIP-814).
    """

    generation: int
    protocol_name: str
    member_id: str
    leads: bool
    skip_assignment: bool
    members: Sequence[Member]


def join(
    membership: Membership,
    protocol_type: str,
    protocols: Sequence[tuple[str, bytes]],
    reason: str,
) -> Generator[JoinGroupRequest, JoinGroupResponse, Joined]:
    """Join the group, with the member id that the coordinator gives out first (KIP-394)."""
    settings = membership.settings
    response = yield JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=_ms(settings.session_timeout),
        rebalance_timeout_ms=_ms(settings.rebalance_timeout),
        member_id=membership.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        reason=reason[:255],
    )
    if response.error_code:
        error = error_for(response.error_code)
        if isinstance(error, MemberIdRequiredError) and not membership.member_id:
            membership.member_id = response.member_id
            return (yield from join(membership, protocol_type, protocols, reason))
        raise error
    leads = response.leader == response.member_id
    return Joined(
        response.generation_id,
        response.protocol_name or "",
        response.member_id,
        leads,
        response.skip_assignment,
        [Member(row.member_id, row.group_instance_id, row.metadata) for row in response.members],
    )


def sync(
    membership: Membership, protocol_type: str, assignments: Mapping[str, bytes]
) -> Generator[SyncGroupRequest, SyncGroupResponse, bytes]:
    """Collect this member's share; the leader brings everybody's."""
    response = yield SyncGroupRequest(
        group_id=membership.settings.group_id,
        generation_id=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.settings.group_instance_id,
        protocol_type=protocol_type,
        protocol_name=membership.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=assignment)
            for member, assignment in assignments.items()
        ],
    )
    if response.error_code:
        raise error_for(response.error_code)
    return response.assignment


def heartbeat(
    membership: Membership,
) -> Generator[HeartbeatRequest, HeartbeatResponse, None]:
    """Say that this member is alive."""
    response = yield HeartbeatRequest(
        group_id=membership.settings.group_id,
        generation_id=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.settings.group_instance_id,
    )
    if response.error_code:
        raise error_for(response.error_code)


def leave(
    membership: Membership, version: int, reason: str
) -> Generator[LeaveGroupRequest, LeaveGroupResponse, None]:
    """Leave the group; `version` is the one that the request will be sent in."""
    settings = membership.settings
    request = LeaveGroupRequest(group_id=settings.group_id)
    if version < _LEAVE_IN_BATCHES:
        request.member_id = membership.member_id
    else:
        request.members = [
            MemberIdentity(
                member_id=membership.member_id,
                group_instance_id=settings.group_instance_id,
                reason=reason[:255],
            )
        ]
    response = yield request
    codes = [response.error_code, *(row.error_code for row in response.members)]
    for code in filter(None, codes):
        raise error_for(code)


def _ms(duration: float) -> int:
    return round(duration * 1000)
