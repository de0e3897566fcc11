"""Groups of the consumer protocol: ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.groups.consumer_group_members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
)
from kafka_async.embedded.groups.server_assignors import SERVER_ASSIGNORS
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.errors import InvalidRequestError, KafkaError, UnsupportedAssignorError
from kafka_async.protocol.messages.consumer_group_describe import (
    Assignment as DescribedAssignment,
)
from kafka_async.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kafka_async.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from kafka_async.embedded.groups.consumer_group import ConsumerGroup
    from kafka_async.embedded.groups.consumer_group_members import ConsumerGroupMember
    from kafka_async.embedded.groups.group_coordinator import GroupCoordinator
    from kafka_async.embedded.groups.server_assignors import TopicIdPartition
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.topics import TopicTable

MEMBER_ID_REQUIRED_MIN_VERSION: Final = 1
CONSUMER_MEMBER, CLASSIC_MEMBER = 1, 0


async def consumer_group_heartbeat(
    groups: GroupCoordinator,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse:
    """Let a member join, stay or leave; the response has its next assignment."""
    if settings.group_version < 1:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    def may_describe(topic: str) -> bool:
        return authorization.allows_topic(context, Operation.DESCRIBE, topic)

    if not all(map(may_describe, request.subscribed_topic_names or ())):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    try:
        _check(context, request)
        code = groups.check_coordinator(context.broker.id, request.group_id)
        if code is not ErrorCode.NONE:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        result = groups.consumer_heartbeat(
            request.group_id, _heartbeat_of(context, request), may_describe
        )
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=error_code_of(error), error_message=error.message
        )
    leaves = result.epoch < JOIN_EPOCH
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=0
        if leaves
        else round(groups.heartbeat_interval(request.group_id) * 1000),
        assignment=None
        if result.assignment is None
        else Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=it, partitions=partitions)
                for it, partitions in _by_topic(result.assignment).items()
            ]
        ),
    )


def _check(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise InvalidRequestError or UnsupportedAssignorError for a malformed request."""
    epoch = request.member_epoch
    stays = epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    if not request.member_id and (context.version >= MEMBER_ID_REQUIRED_MIN_VERSION or stays):
        raise InvalidRequestError("MemberId can't be empty.")
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequestError(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    if epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in SERVER_ASSIGNORS:
        raise UnsupportedAssignorError(
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(SERVER_ASSIGNORS)}."
        )


def _heartbeat_of(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerHeartbeat:
    timeout_ms, owned = request.rebalance_timeout_ms, request.topic_partitions
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout=None if timeout_ms == -1 else timeout_ms / 1000,
        topics=None if names is None else frozenset(names),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset((row.topic_id, index) for row in owned for index in row.partitions),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
    )


async def consumer_group_describe(
    groups: GroupCoordinator,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse:
    """Describe each group of the consumer protocol; errors are per group."""
    described: list[DescribedGroup] = []
    denied: list[DescribedGroup] = []
    for group_id in request.group_ids:
        if settings.group_version < 1:
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
    return ConsumerGroupDescribeResponse(groups=[*denied, *described])


def _describe_group(
    context: RequestContext, group_id: str, groups: GroupCoordinator, topics: TopicTable
) -> DescribedGroup:
    code = groups.check_coordinator(context.broker.id, group_id)
    if code is not ErrorCode.NONE:
        return DescribedGroup(group_id=group_id, error_code=code)
    group = groups.consumer(group_id)
    if group is None:
        reason = "is not a consumer group" if groups.exists(group_id) else "not found"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )
    if group.loading:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_describe_member(group, member, topics) for member in group.members.values()],
    )


def _describe_member(
    group: ConsumerGroup, member: ConsumerGroupMember, topics: TopicTable
) -> Member:
    owned = {**member.assigned, **member.pending_revocation}
    return Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern or "",
        assignment=_describe_assignment(owned, topics),
        target_assignment=_describe_assignment(group.targets.get(member.id, ()), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _describe_assignment(
    partitions: Iterable[TopicIdPartition], topics: TopicTable
) -> DescribedAssignment:
    """Return the partitions of topics that still exist."""
    return DescribedAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.id, topic_name=topic.name, partitions=indexes)
            for topic_id, indexes in _by_topic(partitions).items()
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )


def _hide_denied_topics(
    context: RequestContext, group: DescribedGroup, authorization: Authorization
) -> DescribedGroup:
    """Return an error in place of a group with a topic that the client may not describe."""
    names = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
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
