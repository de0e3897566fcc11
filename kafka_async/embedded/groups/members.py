"""The members of a classic group, and the values that go in and out of it. Times are seconds."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kafka_async.embedded.codes import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class GroupProtocol(NamedTuple):
    """One protocol that a member can speak, with what it wants the leader to know."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCall:
    """A JoinGroup request. `member_id` is empty for a member that has none yet.

    `must_know_id` is KIP-394 (v4 on), `may_skip_assignment` is KIP-814 (v9 on).
    """

    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    must_know_id: bool = True
    may_skip_assignment: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncCall:
    """A SyncGroup request; only the leader's has assignments, by member id."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """What a leader is told of a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The answer to a JoinGroup; `members` are for the leader only."""

    code: Code = Code.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[MemberEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The answer to a SyncGroup."""

    code: Code = Code.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member. `joining` and `syncing` are the tickets of its requests that wait for an answer."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    deadline: float = math.inf
    is_new: bool = True

    @classmethod
    def of(cls, call: JoinCall, member_id: str) -> Member:
        """The member that this call makes."""
        return cls(
            id=member_id,
            instance_id=call.instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            session_timeout=call.session_timeout,
            rebalance_timeout=call.rebalance_timeout,
            protocols=call.protocols,
        )

    def update(self, call: JoinCall) -> None:
        """Take over what a further JoinGroup says."""
        self.protocols = call.protocols
        self.session_timeout = call.session_timeout
        self.rebalance_timeout = call.rebalance_timeout

    def metadata(self, protocol: str | None) -> bytes:
        """What it says under a protocol; nothing if it does not speak it."""
        return next((entry.metadata for entry in self.protocols if entry.name == protocol), b"")

    @property
    def expires(self) -> float:
        """When its session ends: not while a request of it waits, once it has had its member id."""
        waits = self.joining is not None or self.syncing is not None
        return math.inf if waits and not self.is_new else self.deadline


class Roster:
    """Who is in the group, in the order of arrival, and what they agree on."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._members.values()))

    def get(self, member_id: str) -> Member | None:
        """The member of an id."""
        return self._members.get(member_id)

    def static_id(self, instance_id: str | None) -> str | None:
        """The member id that a static member has now."""
        return None if instance_id is None else self._static.get(instance_id)

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads."""
        self._members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> None:
        """Let a member go; if it led, the one that has been there longest does."""
        member = self._members.pop(member_id)
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def rename(self, member_id: str, new_id: str) -> Member:
        """Give a static member its next id, in place."""
        member = self._members[member_id]
        self._members = {
            new_id if key == member_id else key: it for key, it in self._members.items()
        }
        member.id = new_id
        if member.instance_id is not None:
            self._static[member.instance_id] = new_id
        if self.leader == member_id:
            self.leader = new_id
        return member

    def lead_by_present(self) -> bool:
        """See to a leader who has joined; False if nobody has."""
        leader = self._members.get(self.leader or "")
        if leader is not None and leader.joining is not None:
            return True
        present = next((member.id for member in self if member.joining is not None), None)
        self.leader = present or self.leader
        return present is not None

    def check(self, member_id: str, instance_id: str | None) -> Code:
        """Whether this is a member, and still the one that it says."""
        current = member_id if instance_id is None else self.static_id(instance_id)
        if current is None or current not in self._members:
            return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if current == member_id else Code.FENCED_INSTANCE_ID

    def common(self) -> set[str]:
        """The protocols that all members speak."""
        votes = Counter(name for member in self for name in {it.name for it in member.protocols})
        return {name for name, count in votes.items() if count == len(self)}

    def speaks(self, protocols: Sequence[GroupProtocol]) -> bool:
        """Whether one of these protocols is spoken by all members; with none there, any will do."""
        if not self._members:
            return bool(protocols)
        return not self.common().isdisjoint(entry.name for entry in protocols)

    def vote(self) -> str | None:
        """Of the protocols that all speak, the one that most like best; on a tie the first's."""
        common = self.common()
        votes = Counter(
            next(entry.name for entry in member.protocols if entry.name in common)
            for member in self
            if common
        )
        return votes.most_common(1)[0][0] if votes else None

    def entries(self, protocol: str | None) -> tuple[MemberEntry, ...]:
        """Everybody, as the leader is told."""
        return tuple(
            MemberEntry(member.id, member.instance_id, member.metadata(protocol)) for member in self
        )

    def copies(self) -> tuple[Member, ...]:
        """The members as they would be kept on disk: without the requests that wait."""
        return tuple(
            replace(member, joining=None, syncing=None, deadline=math.inf, is_new=False)
            for member in self
        )

    @property
    def rebalance_timeout(self) -> float:
        """How long a rebalance may take: the most patient member's."""
        return max((member.rebalance_timeout for member in self), default=0.0)
