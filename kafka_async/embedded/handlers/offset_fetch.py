"""OffsetFetch: committed offsets of groups, for some partitions or for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.classic_group_state import ClassicGroupState
from kafka_async.embedded.groups.offset_metadata_manager import CommittedOffset
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
    )

TOP_LEVEL_ERROR_MIN_VERSION: Final = 2
BATCHED_MIN_VERSION: Final = 8
TOPIC_ID_MIN_VERSION: Final = 10
NO_OFFSET: Final = CommittedOffset(-1)
NO_TOPIC_ID: Final = UUID(int=0)


class _RequestedTopic(NamedTuple):
    """Holds a requested topic; `resolved_name` is its name if the topic id exists."""

    name: str
    id: UUID
    resolved_name: str | None
    indexes: Iterable[int]


async def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return committed offsets; from version 8 on of several groups, with errors per group."""
    if context.version >= BATCHED_MIN_VERSION:
        groups = [_group(context, group, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    group_id = request.group_id
    code = _check(context, group_id)
    if code is not ErrorCode.NONE and context.version >= TOP_LEVEL_ERROR_MIN_VERSION:
        return OffsetFetchResponse(error_code=code)
    topics: list[OffsetFetchResponseTopic] = []
    for topic in _requested_topics(context, group_id, request.topics):
        partitions: list[OffsetFetchResponsePartition] = []
        for index in topic.indexes:
            error, found = _offset(context, group_id, topic, index, code, request.require_stable)
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=error,
                )
            )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=topics)


def _group(
    context: RequestContext, group: OffsetFetchRequestGroup, stable: bool
) -> OffsetFetchResponseGroup:
    code = _check(context, group.group_id)
    if code is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    topics: list[OffsetFetchResponseTopics] = []
    for topic in _requested_topics(context, group.group_id, group.topics):
        partitions: list[OffsetFetchResponsePartitions] = []
        for index in topic.indexes:
            error, found = _offset(context, group.group_id, topic, index, code, stable)
            partitions.append(
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=error,
                )
            )
        topics.append(
            OffsetFetchResponseTopics(name=topic.name, topic_id=topic.id, partitions=partitions)
        )
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _check(context: RequestContext, group_id: str) -> ErrorCode:
    groups = context.cluster.groups
    code = groups.check_coordinator(context.broker.id, group_id, allow_empty_group_id=True)
    group = groups.get(group_id)
    if code is ErrorCode.NONE and group is not None and group.state is ClassicGroupState.LOADING:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code


def _requested_topics(
    context: RequestContext,
    group_id: str,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> list[_RequestedTopic]:
    """Return the requested topics; None requests all with committed offsets."""
    if topics is None:
        committed: dict[str, list[int]] = {}
        for tp in sorted(context.cluster.groups.offsets.committed(group_id)):
            committed.setdefault(tp.topic, []).append(tp.partition)
        return [
            _RequestedTopic(name, _topic_id(context, name), name, indexes)
            for name, indexes in committed.items()
        ]
    if context.version < TOPIC_ID_MIN_VERSION:
        return [
            _RequestedTopic(it.name, NO_TOPIC_ID, it.name, it.partition_indexes) for it in topics
        ]
    return [_by_id(context, it) for it in topics if isinstance(it, OffsetFetchRequestTopics)]


def _by_id(context: RequestContext, topic: OffsetFetchRequestTopics) -> _RequestedTopic:
    found = context.cluster.topics.by_id(topic.topic_id)
    name = None if found is None else found.name
    return _RequestedTopic(topic.name, topic.topic_id, name, topic.partition_indexes)


def _topic_id(context: RequestContext, name: str) -> UUID:
    topic = context.cluster.topics.get(name)
    return NO_TOPIC_ID if topic is None else topic.id


def _offset(
    context: RequestContext,
    group_id: str,
    topic: _RequestedTopic,
    index: int,
    code: ErrorCode,
    stable: bool,
) -> tuple[ErrorCode, CommittedOffset]:
    if code is not ErrorCode.NONE:
        return code, NO_OFFSET
    if topic.resolved_name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, NO_OFFSET
    offsets, tp = context.cluster.groups.offsets, TopicPartition(topic.resolved_name, index)
    if stable and offsets.is_pending(group_id, tp):
        return ErrorCode.UNSTABLE_OFFSET_COMMIT, NO_OFFSET
    return ErrorCode.NONE, offsets.committed(group_id).get(tp, NO_OFFSET)


ROUTE = Route(9, 1, 10, handle)
