"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.groups.state import GroupState
from kafka_async.protocol.messages.list_groups import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.list_groups import ListGroupsRequest

TYPE: Final = "classic"


async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """States and types may be filtered; case does not matter."""
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    groups = list(context.cluster.groups.at(context.broker.id))
    loading = any(group.state is GroupState.INITIALIZE for group in groups)
    return ListGroupsResponse(
        error_code=Code.COORDINATOR_LOAD_IN_PROGRESS if loading else Code.NONE,
        groups=[
            ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.wire,
                group_type=TYPE,
            )
            for group in groups
            if not loading
            and (not states or group.state.wire.lower() in states)
            and (not types or TYPE in types)
        ],
    )


ROUTE = Route(16, 0, 5, handle)
