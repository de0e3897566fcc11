"""Create, delete, list and describe topics; add partitions; list their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_async.admin.call import Results, raise_first, topic_error, with_throttle_time
from kafka_async.admin.values import (
    NewTopic,
    OffsetSpec,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from kafka_async.client.metadata.request_router import AnyBroker, Controller, FoundBroker
from kafka_async.config import request_ms
from kafka_async.errors import (
    IncompleteResponseError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
    raise_for,
)
from kafka_async.foundation.arguments import (
    MAX_INT16,
    MAX_INT32,
    by_partition,
    instance_of,
    iterable,
    mapping,
    milliseconds,
    text,
    texts,
    whole_number,
)
from kafka_async.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafka_async.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kafka_async.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from kafka_async.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafka_async.admin.call import Call
    from kafka_async.admin.values import OffsetTarget
    from kafka_async.client.metadata.metadata import ClusterMetadata

_CONSUMER_REPLICA = -1


async def create(
    call: Call, topics: Iterable[NewTopic], *, wait: bool, validate_only: bool
) -> dict[str, TopicListing]:
    """Create topics; see `Admin.create_topics`."""
    wanted = {topic.name: topic for topic in map(_checked, iterable(topics, "new_topics"))}

    async def attempt(names: list[str]) -> Results[str, TopicListing]:
        request = CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=request_ms(call.left),
            validate_only=validate_only,
        )
        response = await call.services.request(request, to=Controller(), timeout=call.left)
        results: dict[str, TopicListing | KafkaError] = {
            row.name: topic_error(row.name, row.error_code, row.error_message, needs="CREATE")
            or _created(row, wanted[row.name])
            for row in response.topics
            if row.name in wanted
        }
        return with_throttle_time(results, response.throttle_time_ms)

    created, errors = await call.collect(wanted, attempt, final=(IncompleteResponseError,))
    if wait and not validate_only:
        await _wait_for_leaders(call, {name: topic.partitions for name, topic in created.items()})
    raise_first(errors)
    return created


async def delete(call: Call, names: Iterable[str], *, wait: bool) -> None:
    """Delete topics; see `Admin.delete_topics`."""

    async def attempt(pending: list[str]) -> Results[str, None]:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in pending],
            timeout_ms=request_ms(call.left),
        )
        try:
            response = await call.services.request(request, to=Controller(), timeout=call.left)
        except UnsupportedVersionError:  # before Kafka 2.8
            request = DeleteTopicsRequest(topic_names=pending, timeout_ms=request.timeout_ms)
            response = await call.services.request(request, to=Controller(), timeout=call.left)
        results: dict[str, KafkaError | None] = {
            row.name or "": topic_error(
                row.name or "", row.error_code, row.error_message, needs="DELETE"
            )
            for row in response.responses
        }
        return with_throttle_time(results, response.throttle_time_ms)

    wanted = texts(names, "names")
    final = (UnknownTopicOrPartitionError, IncompleteResponseError)
    deleted, errors = await call.collect(wanted, attempt, final=final)
    if wait:
        await _wait_until_gone(call, set(deleted))
    raise_first(errors)


async def list_all(call: Call, *, internal: bool) -> dict[str, TopicListing]:
    """List topics by name; see `Admin.list_topics`."""
    return {
        row.name: TopicListing(row.name, row.topic_id, len(row.partitions), row.is_internal)
        for row in await _fetch_topics(call, None)
        if row.name is not None and not row.error_code and (internal or not row.is_internal)
    }


async def describe(call: Call, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Describe topics and their partitions; see `Admin.describe_topics`."""

    async def attempt(pending: list[str]) -> Results[str, TopicDescription]:
        return {row.name or "": _described(row) for row in await _fetch_topics(call, pending)}

    return await call.run(texts(names, "names"), attempt, final=(UnknownTopicOrPartitionError,))


async def create_partitions(call: Call, counts: Mapping[str, int], *, wait: bool) -> None:
    """Add partitions to topics; see `Admin.create_partitions`."""
    for name, count in mapping(counts, "counts").items():
        topic = text(name, "each key of counts")
        whole_number(count, f"counts[{topic!r}]", low=1, high=MAX_INT32)

    async def attempt(names: list[str]) -> Results[str, None]:
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=counts[name], assignments=None)
                for name in names
            ],
            timeout_ms=request_ms(call.left),
        )
        response = await call.services.request(request, to=Controller(), timeout=call.left)
        results: dict[str, KafkaError | None] = {
            row.name: topic_error(row.name, row.error_code, row.error_message, needs="ALTER")
            for row in response.results
        }
        return with_throttle_time(results, response.throttle_time_ms)

    # The controller's metadata is current.
    final = (UnknownTopicOrPartitionError, IncompleteResponseError)
    grown, errors = await call.collect(counts, attempt, final=final)
    if wait:
        await _wait_for_leaders(call, {name: counts[name] for name in grown})
    raise_first(errors)


def offset_timestamps(
    partitions: Mapping[TopicPartition, OffsetTarget],
) -> dict[TopicPartition, int]:
    """Return the timestamps for `list_offsets`; raise for a number that is not a time."""
    return by_partition(partitions, "partitions", _timestamp)


async def list_offsets(
    call: Call, timestamps: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """List offsets by timestamp in milliseconds or `OffsetSpec`; see `Admin.list_offsets`."""

    async def query(
        node_id: int, rows: list[TopicPartition]
    ) -> Results[TopicPartition, OffsetAndTimestamp]:
        request = _list_offsets({row: timestamps[row] for row in rows}, read_committed)
        response = await call.services.request(request, to=FoundBroker(node_id), timeout=call.left)
        return {
            TopicPartition(topic.name, row.partition_index): _listed(topic.name, row)
            for topic in response.topics
            for row in topic.partitions
        }

    async def attempt(pending: list[TopicPartition]) -> Results[TopicPartition, OffsetAndTimestamp]:
        topics = {partition.topic for partition in pending}
        cluster = await call.services.metadata.refresh(topics=topics, timeout=call.left)
        leaders: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for partition in pending:
            leader = cluster.leader(partition)
            if leader is None:
                errors[partition] = _no_leader(cluster, partition)
            else:
                leaders[partition] = leader.leader_id
        return {**errors, **await call.query_brokers(leaders, query)}

    return await call.run(timestamps, attempt)


# -- helpers --------------------------------------------------------------------------------------


def _checked(topic: object) -> NewTopic:
    """Return the topic; raise for fields that cannot be encoded."""
    new = instance_of(topic, NewTopic, "each of new_topics")
    name = text(new.name, "the name of a NewTopic")
    whole_number(new.partitions, f"partitions of {name}", low=-1, high=MAX_INT32)
    whole_number(new.replication_factor, f"replication_factor of {name}", low=-1, high=MAX_INT16)
    for key, value in mapping(new.configs, f"configs of {name}").items():
        text(key, f"each key of configs of {name}")
        if value is not None:
            instance_of(value, str, f"configs[{key!r}] of {name}")
    for index, brokers in mapping(new.assignments, f"assignments of {name}").items():
        whole_number(index, f"each key of assignments of {name}", low=0, high=MAX_INT32)
        for broker in iterable(brokers, f"assignments[{index}] of {name}"):
            whole_number(broker, f"each broker of {name}-{index}", low=0, high=MAX_INT32)
    return new


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _created(row: CreatableTopicResult, requested: NewTopic) -> TopicListing:
    count = row.num_partitions
    if count < 0:
        count = len(requested.assignments) or requested.partitions
    return TopicListing(row.name, row.topic_id, count, is_internal=False)


def _described(row: MetadataResponseTopic) -> TopicDescription | KafkaError:
    name = row.name or ""
    if row.error_code:
        unknown = row.error_code == UnknownTopicOrPartitionError.code
        message = "there is no such topic" if unknown else None
        return error_for(row.error_code, message, topic=name, needs="DESCRIBE")
    partitions = [
        PartitionDescription(
            partition.partition_index,
            partition.leader_id if partition.leader_id >= 0 else None,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(row.partitions, key=lambda partition: partition.partition_index)
    ]
    return TopicDescription(name, row.topic_id, row.is_internal, tuple(partitions))


async def _fetch_topics(call: Call, names: Iterable[str] | None) -> Sequence[MetadataResponseTopic]:
    """Return the metadata of topics; None stands for all topics."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response = await call.services.request(request, to=AnyBroker(), timeout=call.left)
    raise_for(response.error_code)
    return response.topics


async def _wait_for_leaders(call: Call, counts: Mapping[str, int]) -> None:
    """Wait until each topic has its number of partitions, all with a leader."""
    pending = dict(counts)
    while pending:
        for row in await _fetch_topics(call, pending):
            _raise_if_hidden(row)
            with_leader = [partition for partition in row.partitions if partition.leader_id >= 0]
            if row.name in pending and not row.error_code and len(with_leader) >= pending[row.name]:
                del pending[row.name]
        if pending and not await call.pause():
            names = ", ".join(pending)
            raise KafkaTimeoutError(f"the topics exist, but have no leaders yet: {names}")


async def _wait_until_gone(call: Call, pending: set[str]) -> None:
    while pending:
        for row in await _fetch_topics(call, pending):
            _raise_if_hidden(row)
            if row.error_code == UnknownTopicOrPartitionError.code and row.name is not None:
                pending.discard(row.name)
        if pending and not await call.pause():
            raise KafkaTimeoutError(
                f"the deletion was accepted but is not complete yet: {', '.join(sorted(pending))}"
            )


def _raise_if_hidden(row: MetadataResponseTopic) -> None:
    """Raise if the principal may change a topic but not describe it, which waiting needs."""
    if row.error_code == TopicAuthorizationError.code:
        raise TopicAuthorizationError(
            "the topic has been changed, but the principal lacks DESCRIBE on it to wait for the "
            "brokers: add an ACL that allows it, or pass wait=False",
            topic=row.name,
        )


def _timestamp(value: object, name: str) -> int:
    """Return the ListOffsets timestamp of an `OffsetSpec` or a time."""
    if isinstance(value, OffsetSpec):
        return value
    for spec in OffsetSpec:
        if value == spec:
            raise ValueError(
                f"{name} is a time or an OffsetSpec, not {value}: write OffsetSpec.{spec.name}"
            )
    return milliseconds(value, name)


def _no_leader(cluster: ClusterMetadata, partition: TopicPartition) -> KafkaError:
    name, index = partition
    error = cluster.error(partition.topic)
    if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
        return error
    unknown = cluster.unknown_partition(partition)
    return unknown or LeaderNotAvailableError(topic=name, partition=index)


def _list_offsets(
    timestamps: Mapping[TopicPartition, int], read_committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, timestamp in timestamps.items():
        row = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        topics.setdefault(partition.topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=_CONSUMER_REPLICA,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )


def _listed(topic: str, row: ListOffsetsPartitionResponse) -> OffsetAndTimestamp | KafkaError:
    if row.error_code:
        return error_for(
            row.error_code, topic=topic, partition=row.partition_index, needs="DESCRIBE"
        )
    epoch = None if row.leader_epoch < 0 else row.leader_epoch
    return OffsetAndTimestamp(row.offset, row.timestamp, epoch)
