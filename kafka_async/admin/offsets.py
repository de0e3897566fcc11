"""List offsets of partitions and committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafka_async.admin.call import ItemResults, item_error
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
    from kafka_async.admin.values import OffsetTarget
    from kafka_async.cluster.metadata import ClusterMetadata


_TOPIC_NAME_MAX_VERSION = 9
"""Last version of OffsetFetch that has topic names instead of ids."""
_CONSUMER_REPLICA = -1


async def list_offsets(
    call: Call, partitions: Mapping[TopicPartition, OffsetTarget], *, read_committed: bool
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """List offsets of partitions; see `Admin.list_offsets`."""
    partitions = by_partition(partitions, "partitions", _at)

    async def attempt(
        pending: list[TopicPartition],
    ) -> ItemResults[TopicPartition, OffsetAndTimestamp]:
        topics = {partition.topic for partition in pending}
        cluster = await call.client.refresh_metadata(topics=topics, timeout=call.left)
        results: ItemResults[TopicPartition, OffsetAndTimestamp] = ItemResults()
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in pending:
            leader = cluster.leader(partition)
            if leader is None:
                results.errors[partition] = _no_leader(cluster, partition)
            else:
                by_leader.setdefault(leader.leader_id, []).append(partition)
        for node_id, rows in by_leader.items():
            request = _list_offsets({row: partitions[row] for row in rows}, read_committed)
            try:
                await _query_leader(call, node_id, request, results)
            except KafkaConnectionError as error:
                results.errors.update(dict.fromkeys(rows, error))
        return results

    return await call.run(partitions, attempt)


async def _query_leader(
    call: Call,
    node_id: int,
    request: ListOffsetsRequest,
    results: ItemResults[TopicPartition, OffsetAndTimestamp],
) -> None:
    response = await call.client.request(request, to=Broker(node_id), timeout=call.left)
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                results.errors[partition] = error_for(
                    row.error_code, topic=topic.name, partition=row.partition_index
                )
            else:
                epoch = None if row.leader_epoch < 0 else row.leader_epoch
                results.values[partition] = OffsetAndTimestamp(row.offset, row.timestamp, epoch)


def _at(value: object, name: str) -> int:
    """Return a ListOffsets timestamp; -1 to -3 are the values of `OffsetSpec`."""
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
    partitions: Mapping[TopicPartition, OffsetTarget], read_committed: bool
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
    """Return the committed offsets of a group; see `Admin.list_group_offsets`."""
    text(group_id, "group_id")
    topics = None if partitions is None else _by_topic(partitions)

    async def attempt(groups: list[str]) -> ItemResults[str, OffsetFetchResponseGroup]:
        node_id = await call.client.coordinator(CoordinatorKind.GROUP, group_id, timeout=call.left)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)],
            require_stable=require_stable,
        )
        results: ItemResults[str, OffsetFetchResponseGroup] = ItemResults()
        try:
            response = await call.client.request(
                request, to=Broker(node_id), timeout=call.left, max_version=_TOPIC_NAME_MAX_VERSION
            )
        except KafkaConnectionError as error:
            results.errors[group_id] = error
        else:
            _add_group(response.groups[0], results)
        if isinstance(results.errors.get(group_id), RefreshRetriableError):
            call.client.forget_coordinator(CoordinatorKind.GROUP, group_id)
        return results

    row = (await call.run([group_id], attempt))[group_id]
    return _committed(row)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopics]:
    topics: dict[str, list[int]] = {}
    for partition in topic_partitions(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return [
        OffsetFetchRequestTopics(name=name, partition_indexes=rows) for name, rows in topics.items()
    ]


def _add_group(
    row: OffsetFetchResponseGroup, results: ItemResults[str, OffsetFetchResponseGroup]
) -> None:
    if row.error_code:
        results.errors[row.group_id] = item_error(row.error_code, "group", row.group_id)
        return
    # Offsets of a transaction that has not ended (KIP-447) fail their partition with a retriable
    # error.
    for topic in row.topics:
        for partition in topic.partitions:
            if partition.error_code:
                results.errors[row.group_id] = error_for(
                    partition.error_code, topic=topic.name, partition=partition.partition_index
                )
                return
    results.values[row.group_id] = row


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
