"""The assignor interface. Pure: from subscriptions and partition counts to assignments."""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, runtime_checkable

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
        generation: Generation in which `owned` was assigned, or -1.
        user_data: Bytes returned by the `user_data` method of the member's assignor.
        rack_id: Rack of the member (`client_rack`, KIP-881).
        group_instance_id: Name of a static member, or None.
        version: Version of the member's assignor, or None for a member of another client.
        reads_errors: True if the member reads the error of an assignor that has failed.
        rewinds: Message of `Consumer.rewind` for the group; not for assignors.
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    user_data: bytes | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None
    version: int | None = None
    reads_errors: bool = False
    rewinds: bytes = b""


_NO_RACKS: Final[frozenset[str]] = frozenset()


class TopicPartitions(Mapping[str, int]):
    """Maps topics to their numbers of partitions, and partitions to the racks of their replicas.

    Args:
        counts: Number of partitions of each topic.
        racks: Racks of the replicas of each partition, as far as they are known.
    """

    __slots__ = ("_counts", "_racks")

    def __init__(
        self,
        counts: Mapping[str, int],
        racks: Mapping[TopicPartition, frozenset[str]] = MappingProxyType({}),
    ) -> None:
        self._counts = counts
        self._racks = racks

    def __getitem__(self, topic: str) -> int:
        return self._counts[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"TopicPartitions({dict(self._counts)}, {dict(self._racks)})"

    def racks(self, partition: TopicPartition) -> frozenset[str]:
        """Return the racks of a partition's replicas; empty if they are unknown."""
        return self._racks.get(partition, _NO_RACKS)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TopicPartitions):
            return self._counts == other._counts and self._racks == other._racks
        return super().__eq__(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as Mapping

    def part(self, topics: Collection[str]) -> TopicPartitions:
        """Return the topics that are in `topics`, with the same racks."""
        return TopicPartitions({t: n for t, n in self._counts.items() if t in topics}, self._racks)


Members: TypeAlias = Mapping[str, MemberSubscription]
Assignments: TypeAlias = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """Assignments together with bytes for the assignors of the members.

    Attributes:
        partitions: Partitions of each member, by member id.
        user_data: Bytes for the `on_assignment` method of a member's assignor, by member id.
    """

    partitions: Mapping[str, Collection[TopicPartition]]
    user_data: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    @classmethod
    def of(cls, found: Assignments | GroupAssignment) -> GroupAssignment:
        """Return the result of `Assignor.assign` in this form."""
        return found if isinstance(found, GroupAssignment) else cls(found)


@runtime_checkable
class Assignor(Protocol):
    """Assigns partitions to members.

    To use your own assignor, derive a class from this protocol, or write one with the same
    attributes and methods, and pass the class or an instance in `partition_assignment_strategy`.
    All members of a group must offer an assignor of one name. An instance belongs to one consumer.

    Attributes:
        name: Name of the assignor in JoinGroup.
        version: Version of its user data, 0 to 32,767, which the leader sees as
            `MemberSubscription.version` (default: 0).
        rebalance_protocols: Supported rebalance protocols (default: EAGER only).
        reads_errors: True declares to the leader that this member reads the error of an assignor
            that fails (default: True). The declaration is 8 bytes at the end of the user data,
            which also contain the version; set False if members of other clients have an assignor
            of this name and reject such bytes.
    """

    name: str
    version: int = 0
    rebalance_protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.EAGER})
    reads_errors: bool = True

    def user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return bytes for the leader's assignor, sent with this member's subscription.

        Args:
            topics: The subscribed topics.
        """
        return None

    @abstractmethod
    def assign(
        self, partitions: Mapping[str, int], members: Members
    ) -> Assignments | GroupAssignment:
        """Return the partitions of each member, by member id, with a row for every member.

        If partitions plus members exceed 256, the leader calls this in a thread, to keep the event
        loop free: it must not use objects that belong to the event loop.

        Args:
            partitions: Number of partitions of each topic; topics that do not exist are missing.
                The leader passes a `TopicPartitions`, whose method `racks` returns the racks of a
                partition's replicas.
            members: Subscription of each member, by member id.
        """
        ...

    def on_assignment(
        self, partitions: frozenset[TopicPartition], user_data: bytes | None, generation: int
    ) -> None:
        """Take note of this member's assignment, before listeners are called.

        Args:
            partitions: Partitions assigned to this member.
            user_data: This member's bytes in `GroupAssignment.user_data`, or None.
            generation: Generation of the group.
        """

    def commits(self, partition: TopicPartition) -> bool:
        """Return True if this member commits the offsets of one of its partitions.

        Args:
            partition: A partition assigned to this member. With several owners, all but one return
                False (default: True).
        """
        return True


def racks_of(partitions: Mapping[str, int], partition: TopicPartition) -> frozenset[str]:
    """Return the racks of a partition's replicas; empty if they are unknown."""
    return partitions.racks(partition) if isinstance(partitions, TopicPartitions) else _NO_RACKS


def uses_racks(racks: Collection[frozenset[str]], member_racks: Collection[str]) -> bool:
    """Return True if racks distinguish partitions for the members (KIP-881).

    They do not if no member is in a replica's rack, or if each rack has all partitions.
    """
    all_racks = frozenset[str]().union(*racks)
    return not all_racks.isdisjoint(member_racks) and any(each != all_racks for each in racks)


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
    # Thousands of topics usually have few distinct sets of subscribers.
    kinds = list({member.topics for member in members.values()})
    lists: dict[tuple[int, ...], list[str]] = {}
    found: dict[str, list[str]] = {}
    for topic in topics:
        wanted = tuple(number for number, kind in enumerate(kinds) if topic in kind)
        if wanted not in lists:
            lists[wanted] = [each for each in ordered if topic in members[each].topics]
        found[topic] = lists[wanted]
    return found
