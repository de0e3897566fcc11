"""Heartbeat: extends a member's session and tells it to join again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.heartbeat import HeartbeatResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.heartbeat import HeartbeatRequest


async def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Return the error code of the group coordinator."""
    groups = context.cluster.groups
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is ErrorCode.NONE:
        code = groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    return HeartbeatResponse(error_code=code)


ROUTE = Route(12, 0, 4, handle)
