"""SyncGroup: bring or fetch the assignment of a generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.groups.members import SyncCall
from kafka_async.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.sync_group import SyncGroupRequest

NAMES_PROTOCOL: Final = 5


async def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Answers when the leader's assignment is there."""
    code = context.cluster.groups.route(context.broker.id, request.group_id)
    if code is Code.NONE and context.version >= NAMES_PROTOCOL:
        named = request.protocol_type is not None and request.protocol_name is not None
        code = Code.NONE if named else Code.INCONSISTENT_GROUP_PROTOCOL  # KIP-559
    if code is not Code.NONE:
        return SyncGroupResponse(error_code=code)
    call = SyncCall(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={it.member_id: it.assignment for it in request.assignments},
    )
    result = await context.cluster.groups.sync(request.group_id, call)
    return SyncGroupResponse(
        error_code=result.code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


ROUTE = Route(14, 0, 5, handle)
