"""Redundant assignor: each partition to several members, one of which commits its offsets.

A group has one committed offset per partition, so only one owner may commit it. The leader puts
this committer into the user data of the assignment, in the format of `sticky.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import InvalidConfigurationError
from kafka_async.group.assignors.abc import (
    Assignor,
    GroupAssignment,
    Members,
    sorted_member_ids,
    subscribers_of,
)
from kafka_async.group.assignors.sticky import decode_owned, encode_owned
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class RedundantAssignor(Assignor):
    """Assigns each partition to several members, for example for replicas of a search index.

    One owner of a partition is its committer: only its consumer commits the offset. A new owner
    starts at the committed offset, which may be behind or ahead of what it has processed; an owner
    that must not miss a record keeps its own offsets, and seeks to them when partitions are
    assigned. Owners keep their partitions as far as the balance allows.

    Args:
        owners: Owners of each partition, at most as many as it has subscribers (default: 2).
    """

    name = "redundant"

    def __init__(self, owners: int = 2) -> None:
        if owners < 1:
            raise InvalidConfigurationError(f"owners is {owners}; it must be at least 1")
        self.owners = owners
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._generation = -1
        self._committed: frozenset[TopicPartition] = frozenset()

    def user_data(self, topics: Iterable[str]) -> bytes:
        """Return the partitions and the generation of the last assignment."""
        return encode_owned(self._assigned, self._generation)

    def on_assignment(
        self, partitions: frozenset[TopicPartition], user_data: bytes | None, generation: int
    ) -> None:
        """Keep the assignment, and the partitions whose offsets this member commits."""
        self._assigned, self._generation = partitions, generation
        self._committed = decode_owned(user_data or b"")[0]

    def commits(self, partition: TopicPartition) -> bool:
        """Return True if this member is the partition's committer."""
        return partition in self._committed

    def assign(self, partitions: Mapping[str, int], members: Members) -> GroupAssignment:
        """Return the owners of each partition, and its committer in the user data."""
        holders = _Holders(partitions, members, self.owners)
        committed: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for partition in holders.partitions:
            owners = holders.owners_of[partition]
            if owners:
                # Preferably an owner that had the partition before: a new one starts at the
                # committed offset.
                former = [m for m in owners if partition in holders.former[m]]
                committer = min(former or owners, key=lambda m: len(committed[m]))
                committed[committer].append(partition)
        return GroupAssignment(
            {member_id: sorted(assigned) for member_id, assigned in holders.held.items()},
            {member_id: encode_owned(rows, -1) for member_id, rows in committed.items()},
        )


class _Holders:
    """Owners of all partitions while they are computed."""

    def __init__(self, partitions: Mapping[str, int], members: Members, owners: int) -> None:
        ordered = sorted_member_ids(members)
        self._subscribers = subscribers_of(partitions, members)
        self._wanted = {t: min(owners, len(of)) for t, of in self._subscribers.items()}
        self.partitions = [
            TopicPartition(topic, number)
            for topic in sorted(partitions)
            for number in range(partitions[topic])
        ]
        self.held: dict[str, set[TopicPartition]] = {member_id: set() for member_id in ordered}
        self.owners_of: dict[TopicPartition, list[str]] = {p: [] for p in self.partitions}
        self.former = {m: decode_owned(members[m].user_data or b"")[0] for m in ordered}
        self._keep()
        self._fill()
        while self._move_one():
            pass

    def _add(self, partition: TopicPartition, member_id: str) -> None:
        self.held[member_id].add(partition)
        self.owners_of[partition].append(member_id)

    def _keep(self) -> None:
        for partition in self.partitions:
            for member_id in self._subscribers[partition.topic]:
                missing = self._wanted[partition.topic] - len(self.owners_of[partition])
                if missing and partition in self.former[member_id]:
                    self._add(partition, member_id)

    def _fill(self) -> None:
        for partition in self.partitions:
            missing = self._wanted[partition.topic] - len(self.owners_of[partition])
            for _ in range(missing):
                others = [
                    m
                    for m in self._subscribers[partition.topic]
                    if m not in self.owners_of[partition]
                ]
                self._add(partition, min(others, key=lambda m: len(self.held[m])))

    def _move_one(self) -> bool:
        """Move a partition to a member with at least two fewer; return False without one."""
        by_size = sorted(self.held, key=lambda m: len(self.held[m]))
        for giver in reversed(by_size):
            for taker in by_size:
                # In ascending order, so no later member has fewer.
                if len(self.held[giver]) - len(self.held[taker]) < 2:
                    break
                movable = [
                    p
                    for p in self.held[giver]
                    if taker not in self.owners_of[p] and taker in self._subscribers[p.topic]
                ]
                if movable:
                    # Preferably one that the giver did not have before, so that fewer partitions
                    # move.
                    partition = max(movable, key=lambda p: (p not in self.former[giver], p))
                    self.held[giver].remove(partition)
                    self.owners_of[partition].remove(giver)
                    self._add(partition, taker)
                    return True
        return False
