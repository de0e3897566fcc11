"""LeaveGroup: members leave, or an administrator removes static members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.leave_group import LeaveGroupRequest

MEMBERS_MIN_VERSION: Final = 3


async def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove the members; before version 3 there is one member and one error code."""
    groups = context.cluster.groups
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=code)
    if context.version < MEMBERS_MIN_VERSION:
        return LeaveGroupResponse(
            error_code=groups.leave(request.group_id, request.member_id, None)
        )
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=groups.leave(
                    request.group_id, member.member_id, member.group_instance_id
                ),
            )
            for member in request.members
        ]
    )


ROUTE = Route(13, 0, 5, handle)
