"""The assignor interface. Pure: from subscriptions and partition counts to assignments."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from kafka_async.types import TopicPartition


class RebalanceProtocol(enum.IntEnum):
    """Partitions that a member revokes in a rebalance (KIP-429); the higher value is preferred."""

    EAGER = 0
    """All partitions, before JoinGroup."""
    COOPERATIVE = 1
    """Only partitions of topics no longer subscribed, before JoinGroup, and partitions that the new
    assignment lacks, after SyncGroup."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's subscription and the partitions it owns.

    Attributes:
        topics: Subscribed topics; the member is assigned no others.
        owned: Partitions owned when the member joined.
        generation: Generation in which `owned` was assigned; -1 if unknown.
        user_data: Bytes returned by the assignor's `user_data` method.
        rack_id: Rack of the member.
        group_instance_id: Name of a static member; None for a dynamic one.
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    user_data: bytes | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
Assignments: TypeAlias = dict[str, list[TopicPartition]]


class Assignor(ABC):
    """Assigns partitions to members.

    To use your own assignor, derive a class and pass the class or an instance in
    `partition_assignment_strategy`. All members of a group must offer an assignor of one name.

    Attributes:
        name: Name of the assignor in JoinGroup.
        rebalance_protocols: Supported rebalance protocols (default: EAGER only).
    """

    name: ClassVar[str]
    rebalance_protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(
        {RebalanceProtocol.EAGER}
    )

    def user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return bytes for the leader's assignor, sent with this member's subscription.

        Args:
            topics: The subscribed topics.
        """
        return None

    @abstractmethod
    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        """Return the partitions of each member, by member id, with a row for every member.

        If partitions plus members exceed 256, the leader calls this in a thread, to
        keep the event loop free: it must not use objects that belong to the event loop.

        Args:
            partitions: Number of partitions of each topic; topics that do not exist are missing.
            members: Subscription of each member, by member id.
        """


def sorted_member_ids(members: Members) -> list[str]:
    """Return the member ids in the order of Kafka's assignors: static members first, by name."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].group_instance_id
        return instance is None, member_id if instance is None else instance

    return sorted(members, key=rank)


def subscribers_of(topics: Iterable[str], members: Members) -> dict[str, list[str]]:
    """Return each topic's subscribers, in the order of `sorted_member_ids`.

    Topics with the same subscribers share one list.
    """
    ordered = sorted_member_ids(members)
    kinds = list({member.topics for member in members.values()})
    lists: dict[tuple[int, ...], list[str]] = {}
    found: dict[str, list[str]] = {}
    for topic in topics:
        wanted = tuple(number for number, kind in enumerate(kinds) if topic in kind)
        if wanted not in lists:
            lists[wanted] = [each for each in ordered if topic in members[each].topics]
        found[topic] = lists[wanted]
    return found
