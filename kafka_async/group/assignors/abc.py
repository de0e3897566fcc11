"""What an assignor is. Pure: it sees subscriptions and partition counts, and gives shares."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from kafka_async.types import TopicPartition


class RebalanceProtocol(enum.IntEnum):
    """What a member gives up when its group rebalances; the higher is preferred (KIP-429)."""

    EAGER = 0
    """Everything, before it joins."""
    COOPERATIVE = 1
    """Only what it is told to, after it has been told."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member wants, and what it had.

    Attributes:
        topics: what it subscribes to; it is given nothing else.
        owned: what it owned when it joined, and
        generation: in which generation it got that (-1 if unknown).
        user_data: what its assignor's `user_data` gave.
        rack_id: where it is.
        group_instance_id: its name if it is a static member.
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    user_data: bytes | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
Shares: TypeAlias = dict[str, list[TopicPartition]]


class Assignor(ABC):
    """A way to share out partitions. Every member of a group must offer it under the same name."""

    name: ClassVar[str]
    rebalance_protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(
        {RebalanceProtocol.EAGER}
    )

    def user_data(self, topics: Iterable[str]) -> bytes | None:
        """What this member tells the leader's assignor, besides its subscription."""
        return None

    @abstractmethod
    def assign(self, partitions: Mapping[str, int], members: Members) -> Shares:
        """Everybody's share: by member id, with a row for each member.

        In a group of more than 256 partitions and members the leader calls it in a thread, so that
        the event loop is not held: it must touch nothing that belongs to the loop.

        Args:
            partitions: how many partitions each topic has; topics that do not exist are missing.
            members: everybody's subscription, by member id.
        """


def in_order(members: Members) -> list[str]:
    """Member ids in the order that Kafka's own assignors use: static members first, by name."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].group_instance_id
        return instance is None, member_id if instance is None else instance

    return sorted(members, key=rank)


def subscribers_of(topics: Iterable[str], members: Members) -> dict[str, list[str]]:
    """Who subscribes to each topic, in that order; topics of the same members share one list."""
    ordered = in_order(members)
    kinds = list({member.topics for member in members.values()})
    lists: dict[tuple[int, ...], list[str]] = {}
    found: dict[str, list[str]] = {}
    for topic in topics:
        wanted = tuple(number for number, kind in enumerate(kinds) if topic in kind)
        if wanted not in lists:
            lists[wanted] = [each for each in ordered if topic in members[each].topics]
        found[topic] = lists[wanted]
    return found
