"""Committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.embedded.state.offset_metadata_manager import CommittedOffset
from kafka_async.embedded.transactions.transaction_metadata import ProducerIdAndEpoch
from kafka_async.errors import UnknownTopicIdError
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_async.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafka_async.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafka_async.protocol.wire import ZERO_UUID
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from uuid import UUID

    from kafka_async.embedded.groups.group_coordinator import GroupCoordinator
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.offset_metadata_manager import OffsetMetadataManager
    from kafka_async.embedded.state.topics import TopicTable
    from kafka_async.embedded.transactions.transaction_coordinator import TransactionCoordinator

T = TypeVar("T")
COMMIT_GROUP_ID_NOT_FOUND_MIN_VERSION: Final = 9
COMMIT_TOPIC_ID_MIN_VERSION: Final = 10
TXN_COMMIT_ABORTABLE_MIN_VERSION: Final = 4
TXN_COMMIT_IMPLICIT_ADD_MIN_VERSION: Final = 5
TXN_COMMIT_TOPIC_ID_MIN_VERSION: Final = 6
TXN_COMMIT_MEMBER_EPOCH_MIN_VERSION: Final = 6
OFFSET_FETCH_TOP_LEVEL_ERROR_MIN_VERSION: Final = 2
OFFSET_FETCH_BATCHED_MIN_VERSION: Final = 8
OFFSET_FETCH_MEMBER_EPOCH_MIN_VERSION: Final = 9
OFFSET_FETCH_TOPIC_ID_MIN_VERSION: Final = 10
NO_COMMITTED_OFFSET: Final = CommittedOffset(-1)


class _CommittedTopic(Protocol):
    """Type of a topic in a request."""

    name: str
    topic_id: UUID
    partitions: Any


@dataclass(frozen=True, slots=True)
class _OffsetCommit:
    """Collects the valid offsets of one request; `by_id` if its topics have ids.

    `code` is an error of the whole request.
    """

    topics: TopicTable
    settings: Settings
    authorization: Authorization
    context: RequestContext
    by_id: bool
    code: ErrorCode = ErrorCode.NONE
    offsets: dict[TopicPartition, CommittedOffset] = field(
        default_factory=dict[TopicPartition, CommittedOffset]
    )

    def valid_partitions(self, requested: Iterable[_CommittedTopic]) -> Iterator[tuple[UUID, int]]:
        """Return the partitions with valid offsets, by topic id, without group checks."""
        probe = replace(self, offsets={})
        for topic in requested:
            for partition in topic.partitions:
                probe.add(topic, partition)
        for tp in probe.offsets:
            if (known := self.topics.get(tp.topic)) is not None:
                yield known.id, tp.partition

    def collect(
        self,
        requested: Iterable[_CommittedTopic],
        topic_class: Callable[..., T],
        partition_class: Callable[..., Any],
    ) -> list[T]:
        """Collect the valid offsets of a request's topics; return the topics of its response."""
        return [
            topic_class(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    partition_class(
                        partition_index=partition.partition_index,
                        error_code=self.add(topic, partition),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in requested
        ]

    def add(self, topic: _CommittedTopic, partition: Any) -> ErrorCode:
        """Collect the offset of a partition if it is valid; return the partition's error code."""
        try:
            name = self.topics.resolve_name(topic.name, topic.topic_id, by_id=self.by_id)
        except UnknownTopicIdError:
            return self.code or ErrorCode.UNKNOWN_TOPIC_ID
        denied = self.authorization.code(self.context, Operation.READ, ResourceType.TOPIC, name)
        if code := denied or self.code:
            return code
        tp = TopicPartition(name, partition.partition_index)
        metadata = partition.committed_metadata or ""
        if self.topics.partition(tp) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(metadata) > self.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        self.offsets[tp] = CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, metadata
        )
        return ErrorCode.NONE


async def offset_commit(
    groups: GroupCoordinator,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse:
    """Commit the valid offsets; errors are per partition, or the same for all."""
    by_id = context.version >= COMMIT_TOPIC_ID_MIN_VERSION
    commit = _OffsetCommit(topics, settings, authorization, context, by_id=by_id)
    code = groups.check_coordinator(context.broker.id, request.group_id, allow_empty_group_id=True)
    if code is ErrorCode.NONE:
        knows_missing = context.version >= COMMIT_GROUP_ID_NOT_FOUND_MIN_VERSION
        code = groups.validate_offset_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            commit.valid_partitions(request.topics),
            version=context.version,
            unknown_group=ErrorCode.GROUP_ID_NOT_FOUND
            if knows_missing
            else ErrorCode.ILLEGAL_GENERATION,
            stale_epoch=ErrorCode.STALE_MEMBER_EPOCH,
        )
    commit = replace(commit, code=code)
    rows = commit.collect(request.topics, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    groups.offsets.commit(request.group_id, commit.offsets)
    return OffsetCommitResponse(topics=rows)


async def txn_offset_commit(
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    topics: TopicTable,
    settings: Settings,
    authorization: Authorization,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse:
    """Store pending offsets; from version 5 on this adds the group to the transaction."""
    by_id = context.version >= TXN_COMMIT_TOPIC_ID_MIN_VERSION
    commit = _OffsetCommit(topics, settings, authorization, context, by_id=by_id)
    valid = commit.valid_partitions(request.topics)
    code = _check_txn_offset_commit(context, request, groups, transactions, valid)
    commit = replace(commit, code=code)
    rows = commit.collect(
        request.topics, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
    )
    groups.offsets.commit_transactional(request.group_id, request.producer_id, commit.offsets)
    return TxnOffsetCommitResponse(topics=rows)


def _check_txn_offset_commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    valid: Iterable[tuple[UUID, int]],
) -> ErrorCode:
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is ErrorCode.NONE and not request.transactional_id:
        code = ErrorCode.INVALID_REQUEST
    if code is ErrorCode.NONE:
        code = transactions.add_or_verify_partition(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            groups.offsets.partition_for(request.group_id),
            implicit_add=context.version >= TXN_COMMIT_IMPLICIT_ADD_MIN_VERSION,
            supports_abortable=context.version >= TXN_COMMIT_ABORTABLE_MIN_VERSION,
        )
    if code is not ErrorCode.NONE:
        return code
    # Versions before KIP-848 have no error for a missing group or a stale epoch.
    knows_epochs = context.version >= TXN_COMMIT_MEMBER_EPOCH_MIN_VERSION
    return groups.validate_offset_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        valid,
        transactional=True,
        version=context.version,
        unknown_group=ErrorCode.GROUP_ID_NOT_FOUND
        if knows_epochs
        else ErrorCode.ILLEGAL_GENERATION,
        stale_epoch=ErrorCode.STALE_MEMBER_EPOCH if knows_epochs else ErrorCode.ILLEGAL_GENERATION,
    )


async def offset_fetch(
    groups: GroupCoordinator,
    topics: TopicTable,
    authorization: Authorization,
    context: RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse:
    """Return committed offsets; from version 8 on of several groups, with errors per group."""
    stable, offsets = request.require_stable, groups.offsets
    if context.version >= OFFSET_FETCH_BATCHED_MIN_VERSION:
        by_id = context.version >= OFFSET_FETCH_TOPIC_ID_MIN_VERSION
        results: list[OffsetFetchResponseGroup] = []
        for group in request.groups:
            member_id, epoch = (
                (group.member_id, group.member_epoch)
                if context.version >= OFFSET_FETCH_MEMBER_EPOCH_MIN_VERSION
                else (None, -1)
            )
            code = _check_offset_fetch(
                context, group.group_id, groups, authorization, member_id, epoch
            )
            result = OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
            if code is ErrorCode.NONE:
                read = _Offsets(
                    group.group_id, offsets, topics, authorization, context, stable, by_id
                )
                result.topics = [
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetFetchResponsePartitions(**read.fetch(topic, index))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in read.requested(group.topics)
                ]
            results.append(result)
        return OffsetFetchResponse(groups=results)
    code = _check_offset_fetch(context, request.group_id, groups, authorization)
    if code is not ErrorCode.NONE and context.version >= OFFSET_FETCH_TOP_LEVEL_ERROR_MIN_VERSION:
        return OffsetFetchResponse(error_code=code)
    read = _Offsets(request.group_id, offsets, topics, authorization, context, stable, code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(**read.fetch(topic, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in read.requested(request.topics)
        ]
    )


def _check_offset_fetch(
    context: RequestContext,
    group_id: str,
    groups: GroupCoordinator,
    authorization: Authorization,
    member_id: str | None = None,
    epoch: int = -1,
) -> ErrorCode:
    if code := authorization.code(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return code
    code = groups.check_coordinator(context.broker.id, group_id, allow_empty_group_id=True)
    if code is ErrorCode.NONE:
        return groups.validate_offset_fetch(group_id, member_id, epoch)
    return code


class _RequestedTopic(NamedTuple):
    """Holds a requested topic; `resolved_name` is its name if the topic id exists."""

    name: str
    topic_id: UUID
    resolved_name: str | None
    partition_indexes: Iterable[int]


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Reads the offsets of one group; `code` is an error of all its partitions."""

    group_id: str
    offsets: OffsetMetadataManager
    topics: TopicTable
    authorization: Authorization
    context: RequestContext
    stable: bool
    by_id: bool = False
    code: ErrorCode = ErrorCode.NONE

    def requested(
        self, topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None
    ) -> list[_RequestedTopic]:
        """Return the requested topics; topics that the client may not describe are last.

        None requests all topics with committed offsets that the client may describe.
        """
        requested = list(self._requested(topics))
        denied = [
            topic
            for topic in requested
            if topic.resolved_name is not None and self._denied(topic.resolved_name)
        ]
        allowed = [topic for topic in requested if topic not in denied]
        return allowed if topics is None else [*allowed, *denied]

    def _denied(self, topic: str) -> ErrorCode:
        """Return the error code of a topic that the client may not describe, else NONE."""
        return self.authorization.code(self.context, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def _requested(
        self, topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None
    ) -> Iterator[_RequestedTopic]:
        if topics is None:
            committed: dict[str, list[int]] = {}
            for tp in sorted(self.offsets.committed(self.group_id)):
                committed.setdefault(tp.topic, []).append(tp.partition)
            for name, indexes in committed.items():
                known = self.topics.get(name)
                topic_id = ZERO_UUID if known is None else known.id
                yield _RequestedTopic(name, topic_id, name, indexes)
            return
        for topic in topics:
            name, topic_id = topic.name, ZERO_UUID
            if self.by_id and isinstance(topic, OffsetFetchRequestTopics):
                topic_id = topic.topic_id
                known = self.topics.by_id(topic_id)
                name = None if known is None else known.name
            yield _RequestedTopic(topic.name, topic_id, name, topic.partition_indexes)

    def fetch(self, topic: _RequestedTopic, index: int) -> dict[str, Any]:
        """Return the fields of a partition in a response."""
        code, found = self._find(topic.resolved_name, index)
        return {
            "partition_index": index,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
            "error_code": code,
        }

    def _find(self, topic: str | None, index: int) -> tuple[ErrorCode, CommittedOffset]:
        if self.code is not ErrorCode.NONE:
            return self.code, NO_COMMITTED_OFFSET
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, NO_COMMITTED_OFFSET
        if denied := self._denied(topic):
            return denied, NO_COMMITTED_OFFSET
        tp = TopicPartition(topic, index)
        if self.stable and self.offsets.is_pending(self.group_id, tp):
            return ErrorCode.UNSTABLE_OFFSET_COMMIT, NO_COMMITTED_OFFSET
        return ErrorCode.NONE, self.offsets.committed(self.group_id).get(tp, NO_COMMITTED_OFFSET)


async def offset_delete(
    groups: GroupCoordinator,
    topics: TopicTable,
    authorization: Authorization,
    context: RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse:
    """Delete offsets of topics without subscribers; groups of non-consumers must be empty."""
    code = groups.check_coordinator(context.broker.id, request.group_id)
    if code is ErrorCode.NONE:
        code = groups.validate_offset_delete(request.group_id)
    if code is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=code)

    def denied(topic: OffsetDeleteRequestTopic) -> ErrorCode:
        return authorization.code(context, Operation.READ, ResourceType.TOPIC, topic.name)

    failed_first = sorted(
        request.topics, key=lambda topic: topics.get(topic.name) is not None and not denied(topic)
    )
    return OffsetDeleteResponse(
        topics=[
            _delete_offsets_of(request.group_id, topic, groups, topics, denied(topic))
            for topic in failed_first
        ]
    )


def _delete_offsets_of(
    group_id: str,
    topic: OffsetDeleteRequestTopic,
    groups: GroupCoordinator,
    topics: TopicTable,
    denied: ErrorCode,
) -> OffsetDeleteResponseTopic:
    in_use = groups.is_subscribed(group_id, topic.name)
    partitions: list[OffsetDeleteResponsePartition] = []
    for partition in topic.partitions:
        tp = TopicPartition(topic.name, partition.partition_index)
        code = ErrorCode.NONE
        if denied:
            code = denied
        elif in_use:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif topics.partition(tp) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            groups.offsets.delete(group_id, tp)
        partitions.append(
            OffsetDeleteResponsePartition(partition_index=tp.partition, error_code=code)
        )
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)
