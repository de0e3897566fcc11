"""OffsetFetch: how far a group has come, for some partitions or for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.groups.offsets import CommittedOffset
from kafka_async.embedded.groups.state import GroupState
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

HAS_GROUP_ERROR: Final = 2
ASKS_FOR_MANY: Final = 8
BY_TOPIC_ID: Final = 10
NOTHING: Final = CommittedOffset(-1)
NO_ID: Final = UUID(int=0)


class _Wanted(NamedTuple):
    """A topic that is asked for; `known` is its name if there is such a topic."""

    name: str
    id: UUID
    known: str | None
    indexes: Iterable[int]


async def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """From version 8 on any number of groups; a group of another broker fails by itself."""
    if context.version >= ASKS_FOR_MANY:
        groups = [_group(context, group, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    group_id = request.group_id
    code = _check(context, group_id)
    if code is not Code.NONE and context.version >= HAS_GROUP_ERROR:
        return OffsetFetchResponse(error_code=code)
    topics: list[OffsetFetchResponseTopic] = []
    for topic in _wanted(context, group_id, request.topics):
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
    if code is not Code.NONE:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    topics: list[OffsetFetchResponseTopics] = []
    for topic in _wanted(context, group.group_id, group.topics):
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


def _check(context: RequestContext, group_id: str) -> Code:
    groups = context.cluster.groups
    code = groups.route(context.broker.id, group_id, unnamed=True)
    group = groups.find(group_id)
    if code is Code.NONE and group is not None and group.state is GroupState.INITIALIZE:
        return Code.COORDINATOR_LOAD_IN_PROGRESS
    return code


def _wanted(
    context: RequestContext,
    group_id: str,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> list[_Wanted]:
    """The topics that are asked for; None asks for all that the group has committed."""
    if topics is None:
        committed: dict[str, list[int]] = {}
        for tp in sorted(context.cluster.groups.offsets.committed(group_id)):
            committed.setdefault(tp.topic, []).append(tp.partition)
        return [
            _Wanted(name, _topic_id(context, name), name, indexes)
            for name, indexes in committed.items()
        ]
    if context.version < BY_TOPIC_ID:
        return [_Wanted(it.name, NO_ID, it.name, it.partition_indexes) for it in topics]
    return [_by_id(context, it) for it in topics if isinstance(it, OffsetFetchRequestTopics)]


def _by_id(context: RequestContext, topic: OffsetFetchRequestTopics) -> _Wanted:
    known = context.cluster.topics.by_id(topic.topic_id)
    name = None if known is None else known.name
    return _Wanted(topic.name, topic.topic_id, name, topic.partition_indexes)


def _topic_id(context: RequestContext, name: str) -> UUID:
    topic = context.cluster.topics.get(name)
    return NO_ID if topic is None else topic.id


def _offset(
    context: RequestContext, group_id: str, topic: _Wanted, index: int, code: Code, stable: bool
) -> tuple[Code, CommittedOffset]:
    if code is not Code.NONE:
        return code, NOTHING
    if topic.known is None:
        return Code.UNKNOWN_TOPIC_ID, NOTHING
    offsets, tp = context.cluster.groups.offsets, TopicPartition(topic.known, index)
    if stable and offsets.unstable(group_id, tp):
        return Code.UNSTABLE_OFFSET_COMMIT, NOTHING
    return Code.NONE, offsets.committed(group_id).get(tp, NOTHING)


ROUTE = Route(9, 1, 10, handle)
