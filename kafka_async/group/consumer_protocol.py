"""Encoding of subscriptions and assignments in the "consumer" group protocol. Pure.

Both begin with a version. Newer versions only append fields, so an unknown version is decoded as
the newest known one, and the rest is ignored.

Two additions of this package stand in the user data. A subscription's user data end with a trailer
if the member reads errors of the leader's assignor: the version of the assignor as int16, the
version of the trailer as int8, int8 1 if there are no other user data, and 4 fixed bytes. The user
data of an assignment that reports such an error are 4 other fixed bytes and the message.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

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
_TRAILER: Final = struct.Struct(">hbb4s")
_TRAILER_VERSION: Final = 0
_TRAILER_END: Final = b"\xa5KAs"
_ERROR_START: Final = b"\xa5KAe"

M = TypeVar("M", bound=Message)


class MemberAssignment(NamedTuple):
    """Content of a member's assignment; `error` is the message of an assignor that has failed."""

    partitions: frozenset[TopicPartition] = frozenset()
    user_data: bytes | None = None
    error: str | None = None


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Encode a member's subscription for JoinGroup."""
    return _encode(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=_with_trailer(subscription),
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
    user_data, version = _without_trailer(read.user_data)
    return MemberSubscription(
        topics=frozenset(read.topics),
        owned=frozenset(
            TopicPartition(row.topic, partition)
            for row in read.owned_partitions
            for partition in row.partitions
        ),
        generation=read.generation_id,
        user_data=user_data,
        rack_id=read.rack_id,
        group_instance_id=group_instance_id,
        version=version,
        reads_errors=version is not None,
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


def encode_assignor_error(message: str) -> bytes:
    """Encode an assignment without partitions that reports an error of the assignor."""
    return encode_assignment((), _ERROR_START + message.encode())


def decode_assignment(assignment: bytes) -> MemberAssignment:
    """Decode an assignment; empty bytes are an empty assignment. Raises DecodeError."""
    if not assignment:
        return MemberAssignment()
    read = _decode(ConsumerProtocolAssignment, assignment)
    if read.user_data is not None and read.user_data.startswith(_ERROR_START):
        message = read.user_data[len(_ERROR_START) :].decode(errors="replace")
        return MemberAssignment(error=message)
    return MemberAssignment(
        frozenset(
            TopicPartition(row.topic, partition)
            for row in read.assigned_partitions
            for partition in row.partitions
        ),
        read.user_data,
    )


def _with_trailer(subscription: MemberSubscription) -> bytes | None:
    data = subscription.user_data
    if not subscription.reads_errors:
        return data
    version = subscription.version or 0
    return (data or b"") + _TRAILER.pack(version, _TRAILER_VERSION, data is None, _TRAILER_END)


def _without_trailer(data: bytes | None) -> tuple[bytes | None, int | None]:
    """Return the user data, and the version of the assignor; None if there is no trailer."""
    if data is None or len(data) < _TRAILER.size or not data.endswith(_TRAILER_END):
        return data, None
    version, _, absent, _ = _TRAILER.unpack(data[-_TRAILER.size :])
    return None if absent else data[: -_TRAILER.size], version


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
