"""Request sequences of the classic group protocol, as generators.

Each generator yields requests, is sent the responses, and returns the result or raises the broker's
error. The action for an error is a row in `member_states.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka_async.client.wire.requested_rows import missing_row, requested_row
from kafka_async.config import request_ms
from kafka_async.errors import (
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    error_for,
)
from kafka_async.group.member import LocalMember, Member
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

_LEAVE_IN_BATCHES = 3
"""First version of LeaveGroup with a list of members (KIP-345)."""


class Joined(NamedTuple):
    """Content of a successful JoinGroup response.

    Attributes:
        has_leader: False if the coordinator assigns, because some members use the consumer
        protocol.
        skip_assignment: True if the leader keeps the assignment (KIP-814).
        members: All members if this one is the leader, else empty.
    """

    generation: int
    protocol_name: str
    member_id: str
    leads: bool
    has_leader: bool
    skip_assignment: bool
    members: Sequence[Member]


def join(
    member: LocalMember,
    protocol_type: str,
    protocols: Sequence[tuple[str, bytes]],
    reason: str,
) -> Generator[JoinGroupRequest, JoinGroupResponse, Joined]:
    """Join the group; a first response may contain the member id to join with (KIP-394)."""
    settings = member.settings
    response = yield JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=request_ms(settings.session_timeout),
        rebalance_timeout_ms=request_ms(settings.rebalance_timeout),
        member_id=member.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        # At most 255 characters (KIP-800).
        reason=reason[:255],
    )
    if response.error_code:
        error = _error(response.error_code, member)
        # The coordinator has reserved this id: joining without one would create another member.
        if isinstance(error, MemberIdRequiredError) and not member.member_id:
            member.member_id = response.member_id
            return (yield from join(member, protocol_type, protocols, reason))
        if isinstance(error, InconsistentGroupProtocolError):
            names = ", ".join(name for name, _ in protocols)
            raise InconsistentGroupProtocolError(
                f"group {settings.group_id} has another protocol type than {protocol_type!r}, or "
                f"its members do not all support one of {names}: use another group_id, a protocol "
                'that all members support, or, if it has members of group_protocol="consumer", '
                'group.consumer.migration.policy="bidirectional"'
            )
        raise error
    if response.protocol_name is None:
        # Kafka sends a protocol with every success.
        raise missing_row("the protocol of the group")
    leads = response.leader == response.member_id
    if leads:  # the leader is a member too, and needs partitions
        requested_row(response.member_id, response.members, lambda row: row.member_id)
    return Joined(
        response.generation_id,
        response.protocol_name,
        response.member_id,
        leads,
        bool(response.leader),
        response.skip_assignment,
        [Member(row.member_id, row.group_instance_id, row.metadata) for row in response.members],
    )


def sync(
    member: LocalMember, protocol_type: str, assignments: Mapping[str, bytes]
) -> Generator[SyncGroupRequest, SyncGroupResponse, bytes]:
    """Return this member's assignment; the leader sends the assignments of all members."""
    response = yield SyncGroupRequest(
        group_id=member.settings.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.settings.group_instance_id,
        protocol_type=protocol_type,
        protocol_name=member.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )
    if response.error_code:
        raise _error(response.error_code, member)
    return response.assignment


def heartbeat(member: LocalMember) -> Generator[HeartbeatRequest, HeartbeatResponse, None]:
    """Send a heartbeat."""
    response = yield HeartbeatRequest(
        group_id=member.settings.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.settings.group_instance_id,
    )
    if response.error_code:
        raise _error(response.error_code, member)


def leave(
    member: LocalMember, version: int, reason: str
) -> Generator[LeaveGroupRequest, LeaveGroupResponse, None]:
    """Leave the group; `version` is the version in which the request will be sent."""
    settings = member.settings
    request = LeaveGroupRequest(group_id=settings.group_id)
    # Older versions have a single member and no instance id.
    if version < _LEAVE_IN_BATCHES:
        request.member_id = member.member_id
    else:
        request.members = [
            MemberIdentity(
                member_id=member.member_id,
                group_instance_id=settings.group_instance_id,
                reason=reason[:255],
            )
        ]
    response = yield request
    # The response has an error for the whole request and one per member.
    codes = [response.error_code, *(row.error_code for row in response.members)]
    for code in filter(None, codes):
        raise _error(code, member)


def _error(code: int, member: LocalMember) -> KafkaError:
    return error_for(code, needs="READ", name=member.settings.group_id)
