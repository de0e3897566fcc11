"""DeleteGroups: deletes groups without members, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.delete_groups import DeleteGroupsRequest


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each group; errors are per group."""
    return DeleteGroupsResponse(
        results=[_delete(context, group_id) for group_id in request.groups_names]
    )


def _delete(context: RequestContext, group_id: str) -> DeletableGroupResult:
    groups = context.cluster.groups
    code = groups.check_coordinator(context.broker.id, group_id, allow_empty_group_id=True)
    if code is ErrorCode.NONE:
        code = groups.delete(group_id)
    return DeletableGroupResult(group_id=group_id, error_code=code)


ROUTE = Route(42, 0, 3, handle)
