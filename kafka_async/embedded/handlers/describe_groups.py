"""DescribeGroups: state, protocol and members of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.groups.state import GroupState
from kafka_async.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.groups.classic import ClassicGroup
    from kafka_async.protocol.messages.describe_groups import DescribeGroupsRequest

KNOWS_MISSING_GROUPS: Final = 6
ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: nothing is forbidden here."""
NOT_ASKED: Final = -(1 << 31)


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """A group that does not exist is Dead; from version 6 on that is an error as well."""
    described = [_describe(context, group_id) for group_id in request.groups]
    for group in described:
        asked = request.include_authorized_operations and group.error_code == Code.NONE
        group.authorized_operations = ALL_OPERATIONS if asked else NOT_ASKED
    return DescribeGroupsResponse(groups=described)


def _describe(context: RequestContext, group_id: str) -> DescribedGroup:
    groups = context.cluster.groups
    code, group = groups.route(context.broker.id, group_id, unnamed=True), groups.find(group_id)
    if code is not Code.NONE:
        return DescribedGroup(group_id=group_id, error_code=code)
    if group is None:
        missing = context.version >= KNOWS_MISSING_GROUPS
        return DescribedGroup(
            group_id=group_id,
            group_state=GroupState.DOWN.wire,
            error_code=Code.GROUP_ID_NOT_FOUND if missing else Code.NONE,
            error_message=f"Group {group_id} not found." if missing else None,
        )
    if group.state is GroupState.INITIALIZE:
        return DescribedGroup(group_id=group_id, error_code=Code.COORDINATOR_LOAD_IN_PROGRESS)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.wire,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is GroupState.STABLE else "",
        members=_members(group),
    )


def _members(group: ClassicGroup) -> list[DescribedGroupMember]:
    """Return the members; metadata only while a protocol is chosen."""
    stable = group.state is GroupState.STABLE
    return [
        DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.roster
    ]


ROUTE = Route(15, 0, 6, handle)
