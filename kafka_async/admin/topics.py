"""Create, delete, list and describe topics; add partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_async.admin.call import ItemResults, raise_first
from kafka_async.admin.values import (
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from kafka_async.arguments import (
    MAX_INT16,
    MAX_INT32,
    instance_of,
    iterable,
    mapping,
    text,
    texts,
    whole_number,
)
from kafka_async.cluster.request_destinations import AnyBroker, Controller
from kafka_async.errors import (
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    error_for,
    raise_for,
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
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from kafka_async.admin.call import Call


async def create(
    call: Call, topics: Iterable[NewTopic], *, wait: bool, validate_only: bool
) -> dict[str, TopicListing]:
    """Create topics; see `Admin.create_topics`."""
    wanted = {topic.name: topic for topic in map(_checked, iterable(topics, "new_topics"))}

    async def attempt(names: list[str]) -> ItemResults[str, TopicListing]:
        request = CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=int(call.left * 1000),
            validate_only=validate_only,
        )
        response = await call.client.request(request, to=Controller(), timeout=call.left)
        results: ItemResults[str, TopicListing] = ItemResults()
        for row in response.topics:
            if row.error_code:
                results.errors[row.name] = error_for(
                    row.error_code, row.error_message, topic=row.name
                )
            else:
                results.values[row.name] = _created(row, wanted[row.name])
        return results

    created = await call.collect(wanted, attempt)
    if wait and not validate_only:
        counts = {name: topic.partitions for name, topic in created.values.items()}
        await _wait_for_leaders(call, counts)
    raise_first(created.errors.values())
    return created.values


async def delete(call: Call, names: Iterable[str], *, wait: bool) -> None:
    """Delete topics; see `Admin.delete_topics`."""

    async def attempt(pending: list[str]) -> ItemResults[str, None]:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in pending],
            timeout_ms=int(call.left * 1000),
        )
        response = await call.client.request(request, to=Controller(), timeout=call.left)
        results: ItemResults[str, None] = ItemResults()
        for row in response.responses:
            name = row.name or ""
            if row.error_code:
                results.errors[name] = error_for(row.error_code, row.error_message, topic=name)
            else:
                results.values[name] = None
        return results

    wanted = texts(names, "names")
    deleted = await call.collect(wanted, attempt, final=(UnknownTopicOrPartitionError,))
    if wait:
        await _wait_until_gone(call, set(deleted.values))
    raise_first(deleted.errors.values())


async def list_all(call: Call, *, internal: bool) -> dict[str, TopicListing]:
    """List topics by name; see `Admin.list_topics`."""
    response = await call.client.request(
        MetadataRequest(topics=None, allow_auto_topic_creation=False),
        to=AnyBroker(),
        timeout=call.left,
    )
    raise_for(response.error_code)
    return {
        row.name: TopicListing(row.name, row.topic_id, len(row.partitions), row.is_internal)
        for row in response.topics
        if row.name is not None and not row.error_code and (internal or not row.is_internal)
    }


async def describe(call: Call, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Describe topics and their partitions; see `Admin.describe_topics`."""

    async def attempt(pending: list[str]) -> ItemResults[str, TopicDescription]:
        results: ItemResults[str, TopicDescription] = ItemResults()
        for row in await _fetch_topics(call, pending):
            name = row.name or ""
            if row.error_code:
                unknown = row.error_code == UnknownTopicOrPartitionError.code
                text = "there is no such topic" if unknown else None
                results.errors[name] = error_for(row.error_code, text, topic=name)
            else:
                results.values[name] = _described(name, row)
        return results

    return await call.run(texts(names, "names"), attempt, final=(UnknownTopicOrPartitionError,))


async def create_partitions(call: Call, counts: Mapping[str, int], *, wait: bool) -> None:
    """Add partitions to topics; see `Admin.create_partitions`."""
    for name, count in mapping(counts, "counts").items():
        topic = text(name, "each key of counts")
        whole_number(count, f"counts[{topic!r}]", low=1, high=MAX_INT32)

    async def attempt(names: list[str]) -> ItemResults[str, None]:
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=counts[name], assignments=None)
                for name in names
            ],
            timeout_ms=int(call.left * 1000),
        )
        response = await call.client.request(request, to=Controller(), timeout=call.left)
        results: ItemResults[str, None] = ItemResults()
        for row in response.results:
            if row.error_code:
                results.errors[row.name] = error_for(
                    row.error_code, row.error_message, topic=row.name
                )
            else:
                results.values[row.name] = None
        return results

    grown = await call.collect(counts, attempt)
    if wait:
        await _wait_for_leaders(call, {name: counts[name] for name in grown.values})
    raise_first(grown.errors.values())


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


def _described(name: str, row: MetadataResponseTopic) -> TopicDescription:
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


async def _fetch_topics(call: Call, names: Iterable[str]) -> Sequence[MetadataResponseTopic]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    response = await call.client.request(request, to=AnyBroker(), timeout=call.left)
    raise_for(response.error_code)
    return response.topics


async def _wait_for_leaders(call: Call, counts: Mapping[str, int]) -> None:
    """Wait until each topic has its number of partitions, all with a leader."""
    pending = dict(counts)
    while pending:
        for row in await _fetch_topics(call, pending):
            with_leader = [partition for partition in row.partitions if partition.leader_id >= 0]
            if row.name in pending and not row.error_code and len(with_leader) >= pending[row.name]:
                del pending[row.name]
        if pending and not await call.pause():
            names = ", ".join(pending)
            raise KafkaTimeoutError(f"the topics exist, but have no leaders yet: {names}")


async def _wait_until_gone(call: Call, pending: set[str]) -> None:
    while pending:
        for row in await _fetch_topics(call, pending):
            if row.error_code == UnknownTopicOrPartitionError.code and row.name is not None:
                pending.discard(row.name)
        if pending and not await call.pause():
            raise KafkaTimeoutError(
                f"the deletion was accepted but is not complete yet: {', '.join(sorted(pending))}"
            )
