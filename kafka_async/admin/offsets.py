"""Offsets: of partitions, and those that groups have committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafka_async.admin.call import Outcome, item_error
from kafka_async.arguments import by_partition, text, topic_partitions, whole_number
from kafka_async.cluster.request_destinations import Broker, CoordinatorKind
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    RefreshRetriableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from kafka_async.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafka_async.admin.call import Call
    from kafka_async.admin.values import At
    from kafka_async.cluster.metadata import ClusterMetadata


_BY_NAME_UNTIL = 9
"""The last version of OffsetFetch that knows topics by name."""
_CONSUMER_REPLICA = -1


async def list_offsets(
    call: Call, partitions: Mapping[TopicPartition, At], *, read_committed: bool
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Offsets of partitions; see `Admin.list_offsets`."""
    partitions = by_partition(partitions, "partitions", _at)

    async def attempt(
        pending: list[TopicPartition],
    ) -> Outcome[TopicPartition, OffsetAndTimestamp]:
        topics = {partition.topic for partition in pending}
        cluster = await call.client.refresh_metadata(topics=topics, timeout=call.left)
        outcome: Outcome[TopicPartition, OffsetAndTimestamp] = Outcome()
        led: dict[int, list[TopicPartition]] = {}
        for partition in pending:
            found = cluster.leader(partition)
            if found is None:
                outcome.errors[partition] = _no_leader(cluster, partition)
            else:
                led.setdefault(found.leader_id, []).append(partition)
        for node_id, rows in led.items():
            request = _list_offsets({row: partitions[row] for row in rows}, read_committed)
            try:
                await _ask_leader(call, node_id, request, outcome)
            except KafkaConnectionError as error:
                outcome.errors.update(dict.fromkeys(rows, error))
        return outcome

    return await call.settle(partitions, attempt)


async def _ask_leader(
    call: Call,
    node_id: int,
    request: ListOffsetsRequest,
    outcome: Outcome[TopicPartition, OffsetAndTimestamp],
) -> None:
    answer = await call.client.request(request, to=Broker(node_id), timeout=call.left)
    for topic in answer.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                outcome.errors[partition] = error_for(
                    row.error_code, topic=topic.name, partition=row.partition_index
                )
            else:
                epoch = None if row.leader_epoch < 0 else row.leader_epoch
                outcome.results[partition] = OffsetAndTimestamp(row.offset, row.timestamp, epoch)


def _at(value: object, name: str) -> int:
    """Return a timestamp of ListOffsets; -1 to -3 are those of `OffsetSpec`."""
    return whole_number(value, name, low=-3)


def _no_leader(cluster: ClusterMetadata, partition: TopicPartition) -> KafkaError:
    name, index = partition
    error = cluster.error(partition.topic)
    if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
        return error
    topic = cluster.topic(partition.topic)
    if topic is None or partition.partition not in topic.partitions:
        return UnknownTopicOrPartitionError("no such partition", topic=name, partition=index)
    return LeaderNotAvailableError(topic=name, partition=index)


def _list_offsets(
    partitions: Mapping[TopicPartition, At], read_committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, at in partitions.items():
        row = ListOffsetsPartition(partition_index=partition.partition, timestamp=int(at))
        topics.setdefault(partition.topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=_CONSUMER_REPLICA,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )


async def list_group_offsets(
    call: Call,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed; see `Admin.list_group_offsets`."""
    text(group_id, "group_id")
    topics = None if partitions is None else _by_topic(partitions)

    async def attempt(groups: list[str]) -> Outcome[str, OffsetFetchResponseGroup]:
        found = await call.client.coordinator(CoordinatorKind.GROUP, group_id, timeout=call.left)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)],
            require_stable=require_stable,
        )
        outcome: Outcome[str, OffsetFetchResponseGroup] = Outcome()
        try:
            answer = await call.client.request(
                request, to=Broker(found), timeout=call.left, max_version=_BY_NAME_UNTIL
            )
        except KafkaConnectionError as error:
            outcome.errors[group_id] = error
        else:
            _settle_group(answer.groups[0], outcome)
        if isinstance(outcome.errors.get(group_id), RefreshRetriableError):
            call.client.forget_coordinator(CoordinatorKind.GROUP, group_id)
        return outcome

    row = (await call.settle([group_id], attempt))[group_id]
    return _committed(row)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopics]:
    topics: dict[str, list[int]] = {}
    for partition in topic_partitions(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return [
        OffsetFetchRequestTopics(name=name, partition_indexes=rows) for name, rows in topics.items()
    ]


def _settle_group(
    row: OffsetFetchResponseGroup, outcome: Outcome[str, OffsetFetchResponseGroup]
) -> None:
    if row.error_code:
        outcome.errors[row.group_id] = item_error(row.error_code, "group", row.group_id)
        return
    # Offsets that a transaction has not decided yet (KIP-447) make the partition's row retriable.
    for topic in row.topics:
        for partition in topic.partitions:
            if partition.error_code:
                outcome.errors[row.group_id] = error_for(
                    partition.error_code, topic=topic.name, partition=partition.partition_index
                )
                return
    outcome.results[row.group_id] = row


def _committed(row: OffsetFetchResponseGroup) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(topic.name, partition.partition_index): OffsetAndMetadata(
            partition.committed_offset,
            None if partition.committed_leader_epoch < 0 else partition.committed_leader_epoch,
            partition.metadata or "",
        )
        for topic in row.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }
