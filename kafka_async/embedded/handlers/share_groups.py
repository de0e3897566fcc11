"""Members of share groups: ShareGroupHeartbeat and ShareGroupDescribe (KIP-932)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.groups.consumer_group_members import JOIN_EPOCH, LEAVE_EPOCH
from kafka_async.embedded.groups.share_group import ASSIGNOR, ShareHeartbeat
from kafka_async.embedded.handlers.share_fetch import MAX_MEMBER_ID_LENGTH
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.errors import InvalidRequestError, KafkaError
from kafka_async.protocol.messages.share_group_describe import Assignment as DescribedAssignment
from kafka_async.protocol.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kafka_async.protocol.messages.share_group_describe import (
    TopicPartitions as DescribedPartitions,
)
from kafka_async.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from kafka_async.embedded.groups.group_coordinator import GroupCoordinator
    from kafka_async.embedded.groups.server_assignors import TopicIdPartition
    from kafka_async.embedded.groups.share_group import ShareGroupMember
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.topics import TopicTable

NOT_COORDINATOR_MESSAGE: Final = "This is not the correct coordinator."


async def share_group_heartbeat(
    groups: GroupCoordinator,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse:
    """Let a member join, stay or leave; the response has its next assignment."""
    if settings.share_version < 1:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not 0 < len(request.member_id) <= MAX_MEMBER_ID_LENGTH:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not all(
        authorization.allows_topic(context, Operation.DESCRIBE, name)
        for name in request.subscribed_topic_names or ()
    ):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    try:
        _check(request)
        code = groups.check_coordinator(context.broker.id, request.group_id)
        if code is not ErrorCode.NONE:
            return ShareGroupHeartbeatResponse(error_code=code)
        names = request.subscribed_topic_names
        result = groups.share_heartbeat(
            request.group_id,
            ShareHeartbeat(
                member_id=request.member_id,
                epoch=request.member_epoch,
                rack_id=request.rack_id,
                topics=None if names is None else frozenset(names),
                client_id=context.client_id or "",
                client_host=f"/{context.client_host}",
            ),
        )
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(
            error_code=error_code_of(error), error_message=error.message
        )
    response = ShareGroupHeartbeatResponse(member_id=result.member_id, member_epoch=result.epoch)
    if result.epoch >= JOIN_EPOCH:
        interval = groups.share_heartbeat_interval(request.group_id)
        response.heartbeat_interval_ms = round(interval * 1000)
    if result.assignment is not None:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _by_topic(result.assignment).items()
            ]
        )
    return response


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise InvalidRequestError for a malformed request."""
    for name, value in (("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise InvalidRequestError("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")


async def share_group_describe(
    groups: GroupCoordinator,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: ShareGroupDescribeRequest,
) -> ShareGroupDescribeResponse:
    """Describe each share group; errors are per group."""
    described: list[DescribedGroup] = []
    denied: list[DescribedGroup] = []
    for group_id in request.group_ids:
        if settings.share_version < 1:
            code = ErrorCode.UNSUPPORTED_VERSION
            described.append(DescribedGroup(group_id=group_id, error_code=code))
            continue
        resource = (ResourceType.GROUP, group_id)
        if code := authorization.code(context, Operation.DESCRIBE, *resource):
            denied.append(DescribedGroup(group_id=group_id, error_code=code))
            continue
        group = _describe_group(context, group_id, groups, topics)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorization.operations(context, *resource)
        described.append(_hide_denied_topics(context, group, authorization))
    return ShareGroupDescribeResponse(groups=[*denied, *described])


def _describe_group(
    context: RequestContext, group_id: str, groups: GroupCoordinator, topics: TopicTable
) -> DescribedGroup:
    code = groups.check_coordinator(context.broker.id, group_id)
    if code is not ErrorCode.NONE:
        message = NOT_COORDINATOR_MESSAGE if code is ErrorCode.NOT_COORDINATOR else None
        return DescribedGroup(group_id=group_id, error_code=code, error_message=message)
    try:
        group = groups.require_share(group_id)
    except KafkaError as error:
        return DescribedGroup(
            group_id=group_id, error_code=error_code_of(error), error_message=error.message
        )
    if group.loading:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_describe_member(member, topics) for member in group.members.values()],
    )


def _describe_member(member: ShareGroupMember, topics: TopicTable) -> Member:
    return Member(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=DescribedAssignment(
            topic_partitions=[
                DescribedPartitions(topic_id=topic.id, topic_name=topic.name, partitions=indexes)
                for topic_id, indexes in _by_topic(member.assigned).items()
                if (topic := topics.by_id(topic_id)) is not None
            ]
        ),
    )


def _hide_denied_topics(
    context: RequestContext, group: DescribedGroup, authorization: Authorization
) -> DescribedGroup:
    """Return an error in place of a group with a topic that the client may not describe."""
    names = {
        topic.topic_name for member in group.members for topic in member.assignment.topic_partitions
    }
    if all(authorization.allows_topic(context, Operation.DESCRIBE, name) for name in names):
        return group
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to "
        "describe.",
    )


def _by_topic(partitions: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    topics: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        topics[topic_id].append(partition)
    return topics
