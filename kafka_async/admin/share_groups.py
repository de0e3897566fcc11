"""Describe share groups; list, alter and delete their offsets (KIP-932)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kafka_async.admin.call import Results, first_error, item_error, raise_first, topic_error
from kafka_async.admin.groups import (
    assigned_group,
    query_coordinators,
    with_session_timeouts,
)
from kafka_async.admin.values import GroupDescription, ShareGroupOffset
from kafka_async.client.metadata.request_router import FoundBroker
from kafka_async.client.wire.requested_rows import requested_rows
from kafka_async.errors import KafkaError, UnknownTopicOrPartitionError, error_for
from kafka_async.foundation.arguments import (
    by_partition,
    text,
    texts,
    topic_partitions,
    whole_number,
)
from kafka_async.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kafka_async.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kafka_async.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)
from kafka_async.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import TypeVar

    from kafka_async.admin.call import Call

    V = TypeVar("V")

_SHARE = "share"


async def describe(
    call: Call, group_ids: Iterable[str], *, session_timeouts: bool
) -> dict[str, GroupDescription]:
    """Describe share groups and their members; see `Admin.describe_share_groups`."""

    async def query(node_id: int, names: list[str]) -> Results[str, GroupDescription]:
        request = ShareGroupDescribeRequest(group_ids=names)
        response = await call.services.request(request, to=FoundBroker(node_id), timeout=call.left)
        return {row.group_id: assigned_group(row, node_id, _SHARE) for row in response.groups}

    wanted = texts(group_ids, "group_ids")
    found = await call.run(wanted, lambda names: query_coordinators(call, names, query))
    return await with_session_timeouts(call, found) if session_timeouts else found


async def list_offsets(
    call: Call, group_id: str, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, ShareGroupOffset]:
    """Return the start offsets of a share group; see `Admin.list_share_group_offsets`."""
    text(group_id, "group_id")
    topics = wanted = None
    if partitions is not None:
        wanted = topic_partitions(partitions)
        by_topic = _by_topic(wanted)
        # Kafka 4.4.0 sends no response if a topic lacks one of the partitions.
        cluster = await call.services.metadata.refresh(topics=by_topic, timeout=call.left)
        raise_first(filter(None, map(cluster.unknown_partition, wanted)))
        topics = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in by_topic.items()
        ]

    async def query(
        node_id: int, names: list[str]
    ) -> Results[str, dict[TopicPartition, ShareGroupOffset]]:
        groups = [
            DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=topics) for name in names
        ]
        request = DescribeShareGroupOffsetsRequest(groups=groups)
        response = await call.services.request(request, to=FoundBroker(node_id), timeout=call.left)
        return {row.group_id: _offsets(row, wanted) for row in response.groups}

    return await _run(call, group_id, query)


async def alter_offsets(call: Call, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set start offsets of a share group; see `Admin.alter_share_group_offsets`."""
    text(group_id, "group_id")
    wanted = by_partition(offsets, "offsets", lambda value, name: whole_number(value, name, low=0))
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=number, start_offset=wanted[TopicPartition(name, number)]
                )
                for number in numbers
            ],
        )
        for name, numbers in _by_topic(wanted).items()
    ]

    async def alter(node_id: int, names: list[str]) -> Results[str, None]:
        request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)
        response = await call.services.request(request, to=FoundBroker(node_id), timeout=call.left)
        rows = {
            TopicPartition(topic.topic_name, row.partition_index): row
            for topic in response.responses
            for row in topic.partitions
        }
        # A group error may come without rows.
        errors = (
            row
            if isinstance(row, KafkaError)
            else error_for(
                row.error_code,
                row.error_message,
                topic=tp.topic,
                partition=tp.partition,
                needs="READ",
            )
            for tp, row in requested_rows(wanted, rows).items()
            if isinstance(row, KafkaError) or row.error_code
        )
        group_error = item_error(
            "group", group_id, response.error_code, response.error_message, needs="READ"
        )
        return dict.fromkeys(names, group_error or first_error(errors))

    await _run(call, group_id, alter)


async def delete_offsets(call: Call, group_id: str, topics: Iterable[str]) -> None:
    """Delete the offsets of topics; see `Admin.delete_share_group_offsets`."""
    text(group_id, "group_id")
    rows = [
        DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in texts(topics, "topics")
    ]

    async def delete(node_id: int, names: list[str]) -> Results[str, None]:
        request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=rows)
        response = await call.services.request(request, to=FoundBroker(node_id), timeout=call.left)
        found = {
            row.topic_name: topic_error(
                row.topic_name, row.error_code, row.error_message, needs="READ"
            )
            for row in response.responses
        }
        errors = requested_rows([row.topic_name for row in rows], found).values()
        group_error = item_error(
            "group", group_id, response.error_code, response.error_message, needs="DELETE"
        )
        return dict.fromkeys(names, group_error or first_error(errors))

    await _run(call, group_id, delete)


# -- helpers --------------------------------------------------------------------------------------


async def _run(
    call: Call, group_id: str, query: Callable[[int, list[str]], Awaitable[Results[str, V]]]
) -> V:
    """Query a group's coordinator; do not retry for partitions that do not exist."""
    found = await call.run(
        [group_id],
        lambda names: query_coordinators(call, names, query),
        final=(UnknownTopicOrPartitionError,),
    )
    return found[group_id]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition.partition)
    return dict(topics)


def _offsets(
    group: DescribeShareGroupOffsetsResponseGroup, wanted: Iterable[TopicPartition] | None
) -> dict[TopicPartition, ShareGroupOffset] | KafkaError:
    if error := item_error(
        "group", group.group_id, group.error_code, group.error_message, needs="DESCRIBE"
    ):
        return error
    rows = {
        TopicPartition(topic.topic_name, row.partition_index): row
        for topic in group.topics
        for row in topic.partitions
    }
    found: dict[TopicPartition, ShareGroupOffset] = {}
    errors: list[KafkaError] = []
    for partition, row in requested_rows(rows if wanted is None else wanted, rows).items():
        if isinstance(row, KafkaError):
            errors.append(row)
        elif row.error_code:
            error = error_for(
                row.error_code,
                row.error_message,
                topic=partition.topic,
                partition=partition.partition,
                needs="DESCRIBE",
            )
            errors.append(error)
        elif row.start_offset >= 0:
            found[partition] = ShareGroupOffset(
                row.start_offset, row.leader_epoch, None if row.lag < 0 else row.lag
            )
    return first_error(errors) or found
