"""DescribeGroups: state, protocol and members of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.classic_group_state import ClassicGroupState
from kafka_async.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.groups.classic_group import ClassicGroup
    from kafka_async.protocol.messages.describe_groups import DescribeGroupsRequest

GROUP_ID_NOT_FOUND_MIN_VERSION: Final = 6
ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: there is no authorization."""
NO_AUTHORIZED_OPERATIONS: Final = -(1 << 31)


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group; one that does not exist is Dead, from version 6 on with an error."""
    described = [_describe(context, group_id) for group_id in request.groups]
    for group in described:
        requested = request.include_authorized_operations and group.error_code == ErrorCode.NONE
        group.authorized_operations = ALL_OPERATIONS if requested else NO_AUTHORIZED_OPERATIONS
    return DescribeGroupsResponse(groups=described)


def _describe(context: RequestContext, group_id: str) -> DescribedGroup:
    groups = context.cluster.groups
    code, group = (
        groups.check_coordinator(context.broker.id, group_id, allow_empty_group_id=True),
        groups.get(group_id),
    )
    if code is not ErrorCode.NONE:
        return DescribedGroup(group_id=group_id, error_code=code)
    if group is None:
        missing = context.version >= GROUP_ID_NOT_FOUND_MIN_VERSION
        return DescribedGroup(
            group_id=group_id,
            group_state=ClassicGroupState.DEAD.value,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
            error_message=f"Group {group_id} not found." if missing else None,
        )
    if group.state is ClassicGroupState.LOADING:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is ClassicGroupState.STABLE else "",
        members=_members(group),
    )


def _members(group: ClassicGroup) -> list[DescribedGroupMember]:
    """Return the members, with metadata if the group is stable."""
    stable = group.state is ClassicGroupState.STABLE
    return [
        DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members
    ]


ROUTE = Route(15, 0, 6, handle)
