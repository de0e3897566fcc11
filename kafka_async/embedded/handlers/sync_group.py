"""SyncGroup: the leader sends the assignment of a generation, members receive theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.members import SyncRequest
from kafka_async.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.sync_group import SyncGroupRequest

PROTOCOL_NAME_MIN_VERSION: Final = 5


async def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Respond when the leader's assignment has arrived, or at once with an error."""
    code = context.cluster.groups.check_coordinator(context.broker.id, request.group_id)
    if code is ErrorCode.NONE and context.version >= PROTOCOL_NAME_MIN_VERSION:
        has_protocol = request.protocol_type is not None and request.protocol_name is not None
        code = ErrorCode.NONE if has_protocol else ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # KIP-559
    if code is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=code)
    sync_request = SyncRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={it.member_id: it.assignment for it in request.assignments},
    )
    result = await context.cluster.groups.sync(request.group_id, sync_request)
    return SyncGroupResponse(
        error_code=result.code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


ROUTE = Route(14, 0, 5, handle)
