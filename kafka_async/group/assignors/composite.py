"""Composite assignor: a strategy per topic.

Each strategy gets only its topics, in the subscriptions too. The user data of the strategies is
sent together: their number as int16, and for each its length as int32, -1 for none, and its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_async.errors import InvalidConfigurationError
from kafka_async.group.assignors.abc import (
    Assignor,
    GroupAssignment,
    Members,
    RebalanceProtocol,
    TopicPartitions,
)

if TYPE_CHECKING:
    from kafka_async.types import TopicPartition

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class CompositeAssignor(Assignor):
    """Assigns some topics by one strategy and others by another.

    For example, topics that are joined are co-partitioned, and the rest is assigned in turn:
    `CompositeAssignor([(CoPartitionedAssignor(), {"orders", "payments"})], RoundRobinAssignor())`.
    All members need the same strategies in the same order. Strategies are independent of each
    other, so each is balanced separately.

    Args:
        strategies: Assignors with their topics.
        default: Assignor of all other topics.
        name: Name in JoinGroup (default: "composite"); groups that change their strategies one
            member after another need a new one.
    """

    def __init__(
        self,
        strategies: Iterable[tuple[Assignor, Collection[str]]],
        default: Assignor,
        *,
        name: str = "composite",
    ) -> None:
        self.name = name
        rows = list(strategies)
        self._parts = [*(assignor for assignor, _ in rows), default]
        self._part_of: dict[str, int] = {}
        for number, (_, topics) in enumerate(rows):
            for topic in topics:
                if topic in self._part_of:
                    raise InvalidConfigurationError(f"two strategies have the topic {topic}")
                self._part_of[topic] = number
        # A group has one rebalance protocol, which therefore all strategies must support.
        self.rebalance_protocols = frozenset(RebalanceProtocol).intersection(
            *(part.rebalance_protocols for part in self._parts)
        )
        if not self.rebalance_protocols:
            names = ", ".join(part.name for part in self._parts)
            raise InvalidConfigurationError(f"the strategies share no rebalance protocol: {names}")

    def _number(self, topic: str) -> int:
        return self._part_of.get(topic, len(self._parts) - 1)

    def _of(self, number: int, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(topic for topic in topics if self._number(topic) == number)

    def user_data(self, topics: Iterable[str]) -> bytes:
        """Return the user data of all strategies."""
        # Each strategy iterates over all topics.
        known = list(topics)
        return _join([p.user_data(self._of(n, known)) for n, p in enumerate(self._parts)])

    def on_assignment(
        self, partitions: frozenset[TopicPartition], user_data: bytes | None, generation: int
    ) -> None:
        """Pass each strategy its part of the assignment."""
        rows = _split(user_data, len(self._parts))
        for number, part in enumerate(self._parts):
            own = frozenset(p for p in partitions if self._number(p.topic) == number)
            part.on_assignment(own, rows[number], generation)

    def commits(self, partition: TopicPartition) -> bool:
        """Return True if the topic's strategy lets this member commit."""
        return self._parts[self._number(partition.topic)].commits(partition)

    def assign(self, partitions: Mapping[str, int], members: Members) -> GroupAssignment:
        """Return the assignments of all strategies together."""
        topics = (
            partitions if isinstance(partitions, TopicPartitions) else TopicPartitions(partitions)
        )
        received = {m: _split(member.user_data, len(self._parts)) for m, member in members.items()}
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        data: dict[str, list[bytes | None]] = {m: [None] * len(self._parts) for m in members}
        for number, part in enumerate(self._parts):
            subscriptions = {
                m: replace(
                    member,
                    topics=self._of(number, member.topics),
                    owned=frozenset(p for p in member.owned if self._number(p.topic) == number),
                    user_data=received[m][number],
                )
                for m, member in members.items()
            }
            rows = GroupAssignment.of(
                part.assign(topics.part(self._of(number, topics)), subscriptions)
            )
            for member_id in members:
                assigned[member_id] += rows.partitions.get(member_id, ())
                data[member_id][number] = rows.user_data.get(member_id)
        return GroupAssignment(assigned, {m: _join(each) for m, each in data.items()})


def _join(rows: Sequence[bytes | None]) -> bytes:
    parts = [_INT16.pack(len(rows))]
    for row in rows:
        parts += [_INT32.pack(-1)] if row is None else [_INT32.pack(len(row)), row]
    return b"".join(parts)


def _split(data: bytes | None, count: int) -> list[bytes | None]:
    """Return the user data of each strategy, or None for all if it cannot be read."""
    rows: list[bytes | None] = []
    try:
        (found,), at = _INT16.unpack_from(data or b""), _INT16.size
        # A member with other strategies counts as one without user data.
        if found != count:
            return [None] * count
        for _ in range(count):
            length, at = _INT32.unpack_from(data or b"", at)[0], at + _INT32.size
            rows.append(None if length < 0 else (data or b"")[at : at + length])
            at += max(0, length)
    except struct.error:
        return [None] * count
    return rows
