"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.classic_group_state import ClassicGroupState
from kafka_async.protocol.messages.list_groups import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.list_groups import ListGroupsRequest

CLASSIC_GROUP_TYPE: Final = "classic"


async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """Return the groups; state and type filters ignore case."""
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    groups = list(context.cluster.groups.coordinated_by(context.broker.id))
    loading = any(group.state is ClassicGroupState.LOADING for group in groups)
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC_GROUP_TYPE,
            )
            for group in groups
            if not loading
            and (not states or group.state.value.lower() in states)
            and (not types or CLASSIC_GROUP_TYPE in types)
        ],
    )


ROUTE = Route(16, 0, 5, handle)
