"""What handlers of partitions ask first: is it there, do we lead it, is the epoch current."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.partition import Partition


def topic_name(context: RequestContext, name: str, topic_id: UUID, *, by_id: bool) -> str:
    """Return the name of the topic that a request names, by id or by name (KIP-516).

    Raises UnknownTopicIdError.
    """
    if not by_id:
        return name
    topic = context.cluster.topics.by_id(topic_id)
    if topic is None:
        raise UnknownTopicIdError("This server does not host this topic ID.")
    return topic.name


def hosted_partition(context: RequestContext, topic: str, index: int) -> Partition:
    """Return a partition of which the requested broker has a replica.

    Raises UnknownTopicOrPartitionError and NotLeaderOrFollowerError.
    """
    partition = context.cluster.topics.partition(TopicPartition(topic, index))
    if partition is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    if context.broker.id not in partition.replicas:
        raise NotLeaderOrFollowerError(f"broker {context.broker.id} does not host {partition.tp}")
    return partition


def led_partition(
    context: RequestContext, topic: str, index: int, leader_epoch: int = -1
) -> Partition:
    """A partition that the asked broker leads.

    Raises UnknownTopicOrPartitionError, NotLeaderOrFollowerError, and FencedLeaderEpochError or
    UnknownLeaderEpochError if the client gave an epoch (not -1) that is not the leader's (KIP-320).
    """
    partition = hosted_partition(context, topic, index)
    if partition.leader != context.broker.id:
        raise NotLeaderOrFollowerError(f"broker {context.broker.id} does not lead {partition.tp}")
    if leader_epoch != -1 and leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpochError("The leader epoch in the request is older than the leader's.")
    if leader_epoch > partition.leader_epoch:
        raise UnknownLeaderEpochError("The leader epoch in the request is newer than the leader's.")
    return partition
