"""Groups: members (JoinGroup, SyncGroup, Heartbeat, LeaveGroup), descriptions and deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.classic_group_state import ClassicGroupState
from kafka_async.embedded.groups.consumer_group import ConsumerGroup
from kafka_async.embedded.groups.members import GroupProtocol, JoinRequest, SyncRequest
from kafka_async.embedded.groups.share_group import ShareGroup
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kafka_async.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kafka_async.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from kafka_async.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka_async.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from kafka_async.embedded.groups.classic_group import ClassicGroup
    from kafka_async.embedded.groups.group_coordinator import Group, GroupCoordinator
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext

REBALANCE_TIMEOUT_MIN_VERSION: Final = 1
MEMBER_ID_REQUIRED_MIN_VERSION: Final = 4
JOIN_PROTOCOL_TYPE_MIN_VERSION: Final = 7
SKIP_ASSIGNMENT_MIN_VERSION: Final = 9
SYNC_PROTOCOL_MIN_VERSION: Final = 5
LEAVING_MEMBERS_MIN_VERSION: Final = 3
DESCRIBE_GROUPS_NOT_FOUND_MIN_VERSION: Final = 6
CLASSIC_GROUP_TYPE: Final = "classic"
CONSUMER_GROUP_TYPE: Final = "consumer"
SHARE_GROUP_TYPE: Final = "share"


async def join_group(
    groups: GroupCoordinator, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    """Respond at the end of the rebalance, or at once with an error."""
    version = context.version
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is not ErrorCode.NONE:
        return JoinGroupResponse(
            error_code=code,
            member_id=request.member_id,
            protocol_name="" if version < JOIN_PROTOCOL_TYPE_MIN_VERSION else None,
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
    result = await groups.join(request.group_id, join_request)
    return JoinGroupResponse(
        error_code=result.code,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol or ("" if version < JOIN_PROTOCOL_TYPE_MIN_VERSION else None),
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


async def sync_group(
    groups: GroupCoordinator, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse:
    """Respond when the leader's assignment has arrived, or at once with an error."""
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is ErrorCode.NONE and context.version >= SYNC_PROTOCOL_MIN_VERSION:
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
    result = await groups.sync(request.group_id, sync_request)
    return SyncGroupResponse(
        error_code=result.code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


async def heartbeat(
    groups: GroupCoordinator, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    """Return the error code of the group coordinator."""
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is ErrorCode.NONE:
        code = groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    return HeartbeatResponse(error_code=code)


async def leave_group(
    groups: GroupCoordinator, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Remove the members; before version 3, one member with one error code."""
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=code)
    if context.version < LEAVING_MEMBERS_MIN_VERSION:
        [code] = groups.leave(request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(error_code=code)
    codes = groups.leave(
        request.group_id, [(it.member_id, it.group_instance_id) for it in request.members]
    )
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
            for member, code in zip(request.members, codes, strict=True)
        ]
    )


async def describe_groups(
    groups: GroupCoordinator,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse:
    """Describe each group; a missing group is Dead, and from version 6 on an error."""
    described: list[DescribedGroup] = []
    denied: list[DescribedGroup] = []
    for group_id in request.groups:
        resource = (ResourceType.GROUP, group_id)
        if code := authorization.code(context, Operation.DESCRIBE, *resource):
            denied.append(DescribedGroup(group_id=group_id, error_code=code))
            continue
        group = _describe_group(context, group_id, groups)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorization.operations(context, *resource)
        described.append(group)
    return DescribeGroupsResponse(groups=[*denied, *described])


def _describe_group(
    context: RequestContext, group_id: str, groups: GroupCoordinator
) -> DescribedGroup:
    code = groups.check_coordinator(context.broker.id, group_id, allow_empty_group_id=True)
    group = groups.classic(group_id)
    if code is not ErrorCode.NONE:
        return DescribedGroup(group_id=group_id, error_code=code)
    if group is None:
        missing = context.version >= DESCRIBE_GROUPS_NOT_FOUND_MIN_VERSION
        return DescribedGroup(
            group_id=group_id,
            group_state=ClassicGroupState.DEAD.value,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
            error_message=f"Classic group {group_id} not found." if missing else None,
        )
    if group.loading:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is ClassicGroupState.STABLE else "",
        members=_described_members(group),
    )


def _described_members(group: ClassicGroup) -> list[DescribedGroupMember]:
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


async def list_groups(
    groups: GroupCoordinator,
    authorization: Authorization,
    context: RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse:
    """Return the groups that the client may describe; state and type filters ignore case."""
    sees_all = authorization.allows_cluster(context, Operation.DESCRIBE)
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    coordinated = list(groups.coordinated_by(context.broker.id))
    loading = any(group.loading for group in coordinated)
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=_type_of(group),
            )
            for group in coordinated
            if not loading
            and (not states or group.state.value.lower() in states)
            and (not types or _type_of(group) in types)
            and (
                sees_all
                or authorization.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group.id)
            )
        ],
    )


def _type_of(group: Group) -> str:
    if isinstance(group, ShareGroup):
        return SHARE_GROUP_TYPE
    return CONSUMER_GROUP_TYPE if isinstance(group, ConsumerGroup) else CLASSIC_GROUP_TYPE


async def delete_groups(
    groups: GroupCoordinator,
    authorization: Authorization,
    context: RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse:
    """Delete each group; errors are per group."""
    results: list[DeletableGroupResult] = []
    denied: list[DeletableGroupResult] = []
    for group_id in request.groups_names:
        if code := authorization.code(context, Operation.DELETE, ResourceType.GROUP, group_id):
            denied.append(DeletableGroupResult(group_id=group_id, error_code=code))
            continue
        code = groups.check_coordinator(context.broker.id, group_id, allow_empty_group_id=True)
        if code is ErrorCode.NONE:
            code = groups.delete(group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=[*results, *denied])
