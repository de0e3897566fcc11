"""Lookup of topics and partitions in requests: existence, replica, leader, leader epoch."""

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
    """Return the name of a topic that a request has by name or by id (KIP-516).

    Raises:
        UnknownTopicIdError: There is no topic with this id.
    """
    if not by_id:
        return name
    topic = context.cluster.topics.by_id(topic_id)
    if topic is None:
        raise UnknownTopicIdError("This server does not host this topic ID.")
    return topic.name


def replica_partition(context: RequestContext, topic: str, index: int) -> Partition:
    """Return a partition that has a replica on this broker.

    Raises:
        UnknownTopicOrPartitionError: There is no such partition.
        NotLeaderOrFollowerError: This broker has no replica.
    """
    partition = context.cluster.topics.partition(TopicPartition(topic, index))
    if partition is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    if context.broker.id not in partition.replicas:
        raise NotLeaderOrFollowerError(f"broker {context.broker.id} does not host {partition.tp}")
    return partition


def leader_partition(
    context: RequestContext, topic: str, index: int, leader_epoch: int = -1
) -> Partition:
    """Return a partition that this broker leads; `leader_epoch` is -1 or the client's (KIP-320).

    Raises:
        UnknownTopicOrPartitionError: There is no such partition.
        NotLeaderOrFollowerError: This broker is not the leader.
        FencedLeaderEpochError: The client's leader epoch is older.
        UnknownLeaderEpochError: The client's leader epoch is newer.
    """
    partition = replica_partition(context, topic, index)
    if partition.leader != context.broker.id:
        raise NotLeaderOrFollowerError(f"broker {context.broker.id} does not lead {partition.tp}")
    if leader_epoch != -1 and leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpochError("The leader epoch in the request is older than the leader's.")
    if leader_epoch > partition.leader_epoch:
        raise UnknownLeaderEpochError("The leader epoch in the request is newer than the leader's.")
    return partition
