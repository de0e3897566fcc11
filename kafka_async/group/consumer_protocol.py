"""Encoding of subscriptions and assignments in the "consumer" group protocol. Pure.

Both begin with a version. Newer versions only append fields, so an unknown version is decoded as
the newest known one, and the rest is ignored.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from kafka_async.errors import DecodeError
from kafka_async.group.assignors.abc import MemberSubscription
from kafka_async.protocol.message import Message
from kafka_async.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafka_async.protocol.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    TopicPartition as OwnedTopic,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PROTOCOL_TYPE = "consumer"
_VERSION = struct.Struct(">h")
_NEWEST = 3

M = TypeVar("M", bound=Message)


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Encode a member's subscription for JoinGroup."""
    return _encode(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=[
                OwnedTopic(topic=topic, partitions=partitions)
                for topic, partitions in by_topic(subscription.owned).items()
            ],
            generation_id=subscription.generation,
            rack_id=subscription.rack_id,
        )
    )


def decode_subscription(
    metadata: bytes, group_instance_id: str | None = None
) -> MemberSubscription:
    """Decode a member's subscription. Raises DecodeError."""
    read = _decode(ConsumerProtocolSubscription, metadata)
    return MemberSubscription(
        topics=frozenset(read.topics),
        owned=frozenset(
            TopicPartition(row.topic, partition)
            for row in read.owned_partitions
            for partition in row.partitions
        ),
        generation=read.generation_id,
        user_data=read.user_data,
        rack_id=read.rack_id,
        group_instance_id=group_instance_id,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None
) -> bytes:
    """Encode a member's assignment for SyncGroup."""
    return _encode(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                AssignedTopic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ],
            user_data=user_data,
        )
    )


def decode_assignment(assignment: bytes) -> frozenset[TopicPartition]:
    """Decode an assignment; empty bytes are an empty assignment. Raises DecodeError."""
    if not assignment:
        return frozenset()
    read = _decode(ConsumerProtocolAssignment, assignment)
    return frozenset(
        TopicPartition(row.topic, partition)
        for row in read.assigned_partitions
        for partition in row.partitions
    )


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Return the partition numbers of each topic, both sorted."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return topics


def _encode(message: Message) -> bytes:
    return _VERSION.pack(_NEWEST) + message.encode(_NEWEST)


def _decode(cls: type[M], data: bytes) -> M:
    if len(data) < _VERSION.size:
        raise DecodeError(f"{cls.__name__}: the bytes end before the version")
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"{cls.__name__} has no version {version}")
    return cls.decode_from(data, _VERSION.size, min(version, _NEWEST))[0]
