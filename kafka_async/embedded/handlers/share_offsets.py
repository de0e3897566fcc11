"""Offsets of share groups: description, alteration, deletion (KIP-932, KIP-1226)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.groups.share_states import UNINITIALIZED, ShareKey
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.errors import KafkaError
from kafka_async.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kafka_async.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kafka_async.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from kafka_async.embedded.groups.group_coordinator import GroupCoordinator
    from kafka_async.embedded.groups.server_assignors import TopicIdPartition
    from kafka_async.embedded.groups.share_states import ShareStates
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.partition import Topic
    from kafka_async.embedded.state.topics import TopicTable


def _message(code: ErrorCode) -> str | None:
    """Return the message of an error code, or None for NONE."""
    return f"The request failed with {code.name}." if code else None


async def describe(
    groups: GroupCoordinator,
    states: ShareStates,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse:
    """Return start offsets and lags; errors are per group.

    Any broker responds for given topics. Partitions without a share state, also in missing topics
    and groups, have the offset -1.
    """
    described: list[DescribeShareGroupOffsetsResponseGroup] = []
    for group in request.groups:
        code = ErrorCode.NONE if settings.share_version else ErrorCode.UNSUPPORTED_VERSION
        group_id = group.group_id
        code = code or authorization.code(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not code and group.topics is None:
            code = groups.check_coordinator(context.broker.id, group_id)
        elif not code and group.topics and not group_id:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        result = DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id,
            error_code=code,
            error_message=_message(code),
        )
        if not code:
            result.topics = _describe_topics(context, group, groups, states, topics, authorization)
        described.append(result)
    return DescribeShareGroupOffsetsResponse(groups=described)


def _describe_topics(
    context: RequestContext,
    group: DescribeShareGroupOffsetsRequestGroup,
    groups: GroupCoordinator,
    states: ShareStates,
    topics: TopicTable,
    authorization: Authorization,
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    described: list[DescribeShareGroupOffsetsResponseTopic] = []
    missing: list[DescribeShareGroupOffsetsResponseTopic] = []
    denied: list[DescribeShareGroupOffsetsResponseTopic] = []
    every = group.topics is None
    requested: Iterable[tuple[str, Iterable[int]]]
    if group.topics is None:
        requested = _initialized(group.group_id, groups, topics)
    else:
        requested = [(it.topic_name, it.partitions) for it in group.topics]
    for name, indexes in requested:
        if code := authorization.code(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if not every:
                denied.append(
                    DescribeShareGroupOffsetsResponseTopic(
                        topic_name=name,
                        partitions=[
                            DescribeShareGroupOffsetsResponsePartition(
                                partition_index=index,
                                error_code=code,
                                error_message=_message(code),
                            )
                            for index in indexes
                        ],
                    )
                )
            continue
        topic = topics.get(name)
        row = DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            partitions=[
                _describe_partition(group.group_id, topic, index, states) for index in indexes
            ],
        )
        if topic is None:
            missing.append(row)
        else:
            row.topic_id = topic.id
            described.append(row)
    return [*described, *missing, *denied]


def _initialized(
    group_id: str, groups: GroupCoordinator, topics: TopicTable
) -> list[tuple[str, list[int]]]:
    """Return the partitions with share states of a group, by the names of existing topics."""
    try:
        group = groups.require_share(group_id)
    except KafkaError:
        return []
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(group.initialized):
        if (topic := topics.by_id(topic_id)) is not None:
            found.setdefault(topic.name, []).append(index)
    return list(found.items())


def _describe_partition(
    group_id: str, topic: Topic | None, index: int, states: ShareStates
) -> DescribeShareGroupOffsetsResponsePartition:
    state = None if topic is None else states.get(ShareKey(group_id, topic.id, index))
    row = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=UNINITIALIZED
    )
    if topic is None or state is None or not index < len(topic.partitions):
        return row
    row.start_offset, row.leader_epoch = state.start_offset, state.leader_epoch
    if UNINITIALIZED not in (state.start_offset, state.done_count):
        end_offset = topic.partitions[index].log.end_offset
        row.lag = end_offset - state.start_offset - state.done_count
    return row


async def alter(
    groups: GroupCoordinator,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse:
    """Set start offsets; the group is created if needed, and must have no members."""
    code = _check(context, request.group_id, groups, settings)
    if code is not ErrorCode.NONE:
        return AlterShareGroupOffsetsResponse(error_code=code, error_message=_message(code))
    rows: list[AlterShareGroupOffsetsResponseTopic] = []
    offsets: dict[TopicIdPartition, int] = {}
    for requested in request.topics:
        name = requested.topic_name
        topic = topics.get(name)
        row = AlterShareGroupOffsetsResponseTopic(topic_name=name)
        if topic is not None:
            row.topic_id = topic.id
        denied = authorization.code(context, Operation.READ, ResourceType.TOPIC, name)
        partitions: list[AlterShareGroupOffsetsResponsePartition] = []
        for partition in requested.partitions:
            index = partition.partition_index
            code = denied
            if topic is None or topics.partition(TopicPartition(name, index)) is None:
                code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not code:
                offsets[topic.id, index] = partition.start_offset
            partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=index, error_code=code, error_message=_message(code)
                )
            )
        row.partitions = partitions
        rows.append(row)
    try:
        groups.alter_share_offsets(request.group_id, offsets)
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(
            error_code=error_code_of(error), error_message=error.message
        )
    return AlterShareGroupOffsetsResponse(responses=rows)


async def delete(
    groups: GroupCoordinator,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: DeleteShareGroupOffsetsRequest,
) -> DeleteShareGroupOffsetsResponse:
    """Delete the share states of topics; the group must have no members."""
    code = _check(context, request.group_id, groups, settings)
    if code is not ErrorCode.NONE:
        return DeleteShareGroupOffsetsResponse(error_code=code, error_message=_message(code))
    known: dict[UUID, str] = {}
    failed: dict[str, ErrorCode] = {}
    for requested in request.topics:
        name = requested.topic_name
        denied = authorization.code(context, Operation.READ, ResourceType.TOPIC, name)
        topic = topics.get(name)
        if denied or topic is None:
            failed[name] = denied or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            known[topic.id] = name
    try:
        deleted = groups.delete_share_offsets(request.group_id, known)
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(
            error_code=error_code_of(error), error_message=error.message
        )
    for topic_id, name in known.items():
        if topic_id not in deleted:
            failed[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DeleteShareGroupOffsetsResponse(
        responses=[*_deleted_topics(known, deleted), *_failed_topics(failed)]
    )


def _deleted_topics(
    known: Mapping[UUID, str], deleted: Iterable[UUID]
) -> list[DeleteShareGroupOffsetsResponseTopic]:
    return [
        DeleteShareGroupOffsetsResponseTopic(topic_name=known[topic_id], topic_id=topic_id)
        for topic_id in deleted
    ]


def _failed_topics(failed: Mapping[str, ErrorCode]) -> list[DeleteShareGroupOffsetsResponseTopic]:
    return [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=code, error_message=_message(code)
        )
        for name, code in failed.items()
    ]


def _check(
    context: RequestContext, group_id: str, groups: GroupCoordinator, settings: Settings
) -> ErrorCode:
    if settings.share_version < 1:
        return ErrorCode.UNSUPPORTED_VERSION
    return groups.check_coordinator(context.broker.id, group_id)
