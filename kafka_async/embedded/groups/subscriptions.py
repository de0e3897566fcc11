"""Subscriptions and assignments in the requests of consumers of the classic protocol. Pure.

The coordinator reads them only if necessary: to find offsets in use, and in groups with members of
both protocols, where it computes all assignments.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kafka_async.errors import DecodeError, UnsupportedVersionError
from kafka_async.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafka_async.protocol.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from kafka_async.embedded.groups.server_assignors import TopicIdPartition

CONSUMER: Final = "consumer"
"""Protocol type of consumer groups; the metadata of other groups has another format."""
_VERSION: Final = struct.Struct(">h")
_ASSIGNOR_ERROR: Final = b"\xa5KAe"
"""First bytes of the user data of an assignment that reports an error of the leader's assignor."""


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return the subscription in a member's metadata. Raises DecodeError."""
    version = _version(metadata, ConsumerProtocolSubscription.VERSIONS.max)
    return ConsumerProtocolSubscription.decode_from(metadata, _VERSION.size, version)[0]


def owned_partitions(
    subscription: ConsumerProtocolSubscription, ids: Mapping[str, UUID]
) -> frozenset[TopicIdPartition]:
    """Return the partitions that a member reports, without topics that no longer exist."""
    rows = ((row.topic, row.partitions) for row in subscription.owned_partitions)
    return _by_id(rows, ids)


def decode_assignment(data: bytes, ids: Mapping[str, UUID]) -> frozenset[TopicIdPartition]:
    """Return an assignment, without topics that no longer exist. Raises DecodeError."""
    if not data:
        return frozenset()
    version = _version(data, ConsumerProtocolAssignment.VERSIONS.max)
    assignment = ConsumerProtocolAssignment.decode_from(data, _VERSION.size, version)[0]
    return _by_id(((row.topic, row.partitions) for row in assignment.assigned_partitions), ids)


def reports_assignor_error(data: bytes) -> bool:
    """Return True if an assignment reports that the leader's assignor has failed."""
    try:
        version = _version(data, ConsumerProtocolAssignment.VERSIONS.max)
        assignment = ConsumerProtocolAssignment.decode_from(data, _VERSION.size, version)[0]
    except (DecodeError, UnsupportedVersionError):  # of another protocol type, or empty
        return False
    return (assignment.user_data or b"").startswith(_ASSIGNOR_ERROR)


def encode_assignment(
    partitions: Iterable[TopicIdPartition], metadata: bytes, names: Mapping[UUID, str]
) -> bytes:
    """Encode an assignment in the version of a member's metadata."""
    version = _version(metadata, ConsumerProtocolAssignment.VERSIONS.max)
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic_id, index in sorted(partitions):
        if topic_id in names:
            topics[names[topic_id]].append(index)
    rows = [AssignedTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    assignment = ConsumerProtocolAssignment(assigned_partitions=rows)
    return _VERSION.pack(version) + assignment.encode(version)


def _by_id(
    rows: Iterable[tuple[str, Iterable[int]]], ids: Mapping[str, UUID]
) -> frozenset[TopicIdPartition]:
    return frozenset(
        (ids[name], index) for name, indexes in rows if name in ids for index in indexes
    )


def _version(data: bytes, newest: int) -> int:
    if len(data) < _VERSION.size:
        raise DecodeError("the bytes end before the version")
    return min(_VERSION.unpack_from(data)[0], newest)
