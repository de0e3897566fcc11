"""Sticky assignor: balanced, moving as few partitions as possible, with eager rebalances (KIP-54).

Members revoke all partitions before they join, so each sends its former partitions to the leader in
its user data, in the format of Java's StickyAssignor: version 1 has the generation of the
assignment, version 0 has none. Assignments are computed as by the cooperative-sticky assignor,
without a second rebalance for partitions that move.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import Assignments, Assignor, Members, MemberSubscription
from kafka_async.group.assignors.cooperative_sticky import balanced
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")


class StickyAssignor(Assignor):
    """Balances partitions and moves as few as possible; members revoke all while they rebalance."""

    name = "sticky"

    def __init__(self) -> None:
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._generation = -1

    def user_data(self, topics: Iterable[str]) -> bytes:
        """Return the partitions and the generation of the last assignment."""
        return encode_owned(self._assigned, self._generation)

    def on_assignment(
        self, partitions: frozenset[TopicPartition], user_data: bytes | None, generation: int
    ) -> None:
        """Keep the assignment for the next rebalance."""
        self._assigned, self._generation = partitions, generation

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return balanced assignments, near to those in the members' user data."""
        owning = {member_id: _with_owned(member) for member_id, member in members.items()}
        return {
            member_id: sorted(assigned)
            for member_id, assigned in balanced(partitions, owning).items()
        }


def encode_owned(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Return the user data of a member that owned partitions in a generation."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        topics[topic].append(number)
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name]
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join([*parts, _INT32.pack(generation)])


def decode_owned(data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """Return the partitions and the generation in a member's user data.

    The generation is -1 in version 0. As in Java's assignor, unreadable data is ignored.
    """
    partitions: list[TopicPartition] = []
    try:
        (topics,), at = _INT32.unpack_from(data), _INT32.size
        for _ in range(topics):
            length = max(0, _INT16.unpack_from(data, at)[0])
            at += _INT16.size
            topic = data[at : at + length].decode()
            at += length
            count = _INT32.unpack_from(data, at)[0]
            numbers = struct.unpack_from(f">{count}i", data, at + _INT32.size)
            at += _INT32.size * (1 + count)
            partitions += [TopicPartition(topic, number) for number in numbers]
    except (struct.error, UnicodeDecodeError):
        return frozenset(), -1
    generation = _INT32.unpack_from(data, at)[0] if len(data) >= at + _INT32.size else -1
    return frozenset(partitions), generation


def _with_owned(member: MemberSubscription) -> MemberSubscription:
    owned, generation = decode_owned(member.user_data or b"")
    return replace(member, owned=owned, generation=generation)
