"""Encoding of subscriptions and assignments in the "consumer" group protocol. Pure.

Both begin with a version. Newer versions only append fields, so an unknown version is decoded as
the newest known one, and the rest is ignored.

Additions of this package are in the user data. The user data of a subscription ends with a trailer
if the member reads errors of the leader's assignor: the version of the assignor as int16, the
version of the trailer as int8, int8 1 if there is no other user data, and 4 fixed bytes. Version 1
of the trailer follows a message of `Consumer.rewind` and its size as int32. The user data of an
assignment that reports an error is 4 other fixed bytes and the message. With a message of
`Consumer.rewind` it is 4 other fixed bytes, int8 1 if there is other user data, the size of the
message as int32, the message, and the other user data.
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
# The formats in the module's docstring.
_TRAILER: Final = struct.Struct(">hbb4s")
_TRAILER_VERSION: Final = 0
_TRAILER_END: Final = b"\xa5KAs"
_ERROR_START: Final = b"\xa5KAe"
_REWIND_TRAILER_VERSION: Final = 1
_REWIND_START: Final = b"\xa5KAr"
_REWIND_SIZE: Final = struct.Struct(">i")
_REWIND_HEADER: Final = struct.Struct(">4sbi")

M = TypeVar("M", bound=Message)


class MemberAssignment(NamedTuple):
    """Content of a member's assignment.

    Attributes:
        partitions: The partitions.
        user_data: Bytes of the assignor for the member.
        error: The message of an assignor that has failed.
        rewinds: Message of `Consumer.rewind` for the members, or None if the leader sends none.
    """

    partitions: frozenset[TopicPartition] = frozenset()
    user_data: bytes | None = None
    error: str | None = None
    rewinds: bytes | None = None


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
    user_data, rewinds, version = _without_trailer(read.user_data)
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
        rewinds=rewinds,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None, rewinds: bytes = b""
) -> bytes:
    """Encode a member's assignment for SyncGroup."""
    if rewinds:
        # Absent user data and empty user data differ for an assignor.
        header = _REWIND_HEADER.pack(_REWIND_START, user_data is not None, len(rewinds))
        user_data = header + rewinds + (user_data or b"")
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
    user_data, rewinds = _without_rewinds(read.user_data)
    return MemberAssignment(
        frozenset(
            TopicPartition(row.topic, partition)
            for row in read.assigned_partitions
            for partition in row.partitions
        ),
        user_data,
        rewinds=rewinds,
    )


def _without_rewinds(data: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Return the other user data, and the message of `Consumer.rewind` or None."""
    if data is None or len(data) < _REWIND_HEADER.size or not data.startswith(_REWIND_START):
        return data, None
    _, present, size = _REWIND_HEADER.unpack_from(data)
    end = _REWIND_HEADER.size + size
    # A truncated message must not be read as user data.
    if size < 0 or end > len(data):
        raise DecodeError("the rewinds of an assignment end before their size")
    return data[end:] if present else None, data[_REWIND_HEADER.size : end]


def _with_trailer(subscription: MemberSubscription) -> bytes | None:
    data = subscription.user_data
    if not subscription.reads_errors:
        return data
    version, rewinds = subscription.version or 0, subscription.rewinds
    kind = _TRAILER_VERSION
    if rewinds:
        kind, rewinds = _REWIND_TRAILER_VERSION, rewinds + _REWIND_SIZE.pack(len(rewinds))
    return (data or b"") + rewinds + _TRAILER.pack(version, kind, data is None, _TRAILER_END)


def _without_trailer(data: bytes | None) -> tuple[bytes | None, bytes, int | None]:
    """Return the user data, the rewinds and the assignor's version, None without a trailer."""
    if data is None or len(data) < _TRAILER.size or not data.endswith(_TRAILER_END):
        return data, b"", None
    version, kind, absent, _ = _TRAILER.unpack(data[-_TRAILER.size :])
    data, rewinds = data[: -_TRAILER.size], b""
    if kind >= _REWIND_TRAILER_VERSION:
        body, size = data[: -_REWIND_SIZE.size], data[-_REWIND_SIZE.size :]
        if len(size) < _REWIND_SIZE.size or not 0 <= _REWIND_SIZE.unpack(size)[0] <= len(body):
            raise DecodeError("the rewinds of a subscription end before their size")
        end = len(body) - _REWIND_SIZE.unpack(size)[0]
        data, rewinds = body[:end], body[end:]
    return None if absent else data, rewinds, version


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
    # Newer versions only append fields.
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"{cls.__name__} has no version {version}")
    return cls.decode_from(data, _VERSION.size, min(version, _NEWEST))[0]
