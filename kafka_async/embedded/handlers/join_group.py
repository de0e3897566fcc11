"""JoinGroup: joins a group, or rejoins it for its next generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.members import GroupProtocol, JoinRequest
from kafka_async.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.join_group import JoinGroupRequest

REBALANCE_TIMEOUT_MIN_VERSION: Final = 1
MEMBER_ID_REQUIRED_MIN_VERSION: Final = 4
PROTOCOL_TYPE_MIN_VERSION: Final = 7
SKIP_ASSIGNMENT_MIN_VERSION: Final = 9


async def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Respond at the end of the rebalance, or at once with an error."""
    version = context.version
    code = context.cluster.groups.check_coordinator(context.broker.id, request.group_id)
    if code is not ErrorCode.NONE:
        return JoinGroupResponse(
            error_code=code,
            member_id=request.member_id,
            protocol_name="" if version < PROTOCOL_TYPE_MIN_VERSION else None,
        )
    rebalance_timeout_ms = (
        request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_MIN_VERSION else -1
    )
    join_request = JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout=request.session_timeout_ms / 1000,
        rebalance_timeout=(
            request.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms
        )
        / 1000,
        protocol_type=request.protocol_type,
        protocols=tuple(GroupProtocol(it.name, it.metadata) for it in request.protocols),
        requires_known_member_id=version >= MEMBER_ID_REQUIRED_MIN_VERSION,
        supports_skipping_assignment=version >= SKIP_ASSIGNMENT_MIN_VERSION,
    )
    result = await context.cluster.groups.join(request.group_id, join_request)
    return JoinGroupResponse(
        error_code=result.code,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol or ("" if version < PROTOCOL_TYPE_MIN_VERSION else None),
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=it.member_id, group_instance_id=it.instance_id, metadata=it.metadata
            )
            for it in result.members
        ],
    )


ROUTE = Route(11, 0, 9, handle)
