"""JoinGroup: enter a group, or enter it again for its next generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.groups.members import GroupProtocol, JoinCall
from kafka_async.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.join_group import JoinGroupRequest

KNOWS_REBALANCE_TIMEOUT: Final = 1
MUST_KNOW_ID: Final = 4
NAMES_TYPE: Final = 7
MAY_SKIP_ASSIGNMENT: Final = 9


async def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Answers when the rebalance is over, or at once with what is wrong."""
    version = context.version
    code = context.cluster.groups.route(context.broker.id, request.group_id)
    if code is not Code.NONE:
        return JoinGroupResponse(
            error_code=code,
            member_id=request.member_id,
            protocol_name="" if version < NAMES_TYPE else None,
        )
    patience = request.rebalance_timeout_ms if version >= KNOWS_REBALANCE_TIMEOUT else -1
    call = JoinCall(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout=request.session_timeout_ms / 1000,
        rebalance_timeout=(request.session_timeout_ms if patience < 0 else patience) / 1000,
        protocol_type=request.protocol_type,
        protocols=tuple(GroupProtocol(it.name, it.metadata) for it in request.protocols),
        must_know_id=version >= MUST_KNOW_ID,
        may_skip_assignment=version >= MAY_SKIP_ASSIGNMENT,
    )
    result = await context.cluster.groups.join(request.group_id, call)
    return JoinGroupResponse(
        error_code=result.code,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol or ("" if version < NAMES_TYPE else None),
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
