"""Members of a classic group, and the group's requests and results. Times are seconds."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kafka_async.embedded.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class GroupProtocol(NamedTuple):
    """Holds a protocol that a member supports, and its metadata for the leader."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """Represents a JoinGroup request; `member_id` is empty for a new member.

    Attributes:
        requires_known_member_id: A new member has to join again with its id (KIP-394, version 4).
        supports_skipping_assignment: The client supports KIP-814 (version 9).
    """

    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    requires_known_member_id: bool = True
    supports_skipping_assignment: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """Represents a SyncGroup request; the leader's request has assignments by member id."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """Describes a member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """Represents a JoinGroup response; `members` is for the leader only."""

    code: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """Represents a SyncGroup response."""

    code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class ClassicGroupMember:
    """Holds a member; `awaiting_join` and `awaiting_sync` are ids of its pending requests."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    awaiting_join: int | None = None
    awaiting_sync: int | None = None
    deadline: float = math.inf
    is_new: bool = True

    @classmethod
    def of(cls, request: JoinRequest, member_id: str) -> ClassicGroupMember:
        """Return the member that a JoinGroup request creates."""
        return cls(
            id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout=request.session_timeout,
            rebalance_timeout=request.rebalance_timeout,
            protocols=request.protocols,
        )

    def update(self, request: JoinRequest) -> None:
        """Update the member from another JoinGroup request."""
        self.protocols = request.protocols
        self.session_timeout = request.session_timeout
        self.rebalance_timeout = request.rebalance_timeout

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata for a protocol, or empty bytes if the member does not support it."""
        return next((entry.metadata for entry in self.protocols if entry.name == protocol), b"")

    @property
    def session_deadline(self) -> float:
        """The end of the session; infinity while a request is pending, unless the member is new."""
        pending = self.awaiting_join is not None or self.awaiting_sync is not None
        return math.inf if pending and not self.is_new else self.deadline


class GroupMembers:
    """Holds the members of a group in the order in which they joined, and the leader."""

    def __init__(self) -> None:
        self._members: dict[str, ClassicGroupMember] = {}
        self._static: dict[str, str] = {}
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicGroupMember]:
        return iter(tuple(self._members.values()))

    def get(self, member_id: str) -> ClassicGroupMember | None:
        """Return a member by id, or None."""
        return self._members.get(member_id)

    def static_member_id(self, instance_id: str | None) -> str | None:
        """Return the current member id of a static member."""
        return None if instance_id is None else self._static.get(instance_id)

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member; the first one becomes the leader."""
        self._members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> None:
        """Remove a member; if it was the leader, the oldest member becomes the leader."""
        member = self._members.pop(member_id)
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def replace_static_member(self, member_id: str, new_id: str) -> ClassicGroupMember:
        """Give a static member a new id; return the member."""
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

    def elect_joined_leader(self, *, at_random: bool) -> bool:
        """Elect a leader among the joined members; return False if no member has joined.

        The former leader stays if it has joined, unless the leader is elected at random.
        """
        joined = [it.id for it in self if it.awaiting_join is not None]
        if joined and (at_random or self.leader not in joined):
            self.leader = random.choice(joined) if at_random else joined[0]
        return bool(joined)

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE if the member exists and its instance id is not fenced."""
        current = member_id if instance_id is None else self.static_member_id(instance_id)
        if current is None or current not in self._members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if current == member_id else ErrorCode.FENCED_INSTANCE_ID

    def candidate_protocols(self) -> set[str]:
        """Return the protocols that all members support."""
        votes = Counter(name for member in self for name in {it.name for it in member.protocols})
        return {name for name, count in votes.items() if count == len(self)}

    def supports_protocols(self, protocols: Sequence[GroupProtocol]) -> bool:
        """Return True if all members support one of these protocols, or the group is empty."""
        if not self._members:
            return bool(protocols)
        return not self.candidate_protocols().isdisjoint(entry.name for entry in protocols)

    def select_protocol(self) -> str | None:
        """Return the candidate that most members prefer, or None."""
        candidates = self.candidate_protocols()
        votes = Counter(
            next(entry.name for entry in member.protocols if entry.name in candidates)
            for member in self
            if candidates
        )
        return votes.most_common(1)[0][0] if votes else None

    def joined_members(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """Return all members for the leader's response."""
        return tuple(
            JoinedMember(member.id, member.instance_id, member.metadata(protocol))
            for member in self
        )

    def persistent_copies(self) -> tuple[ClassicGroupMember, ...]:
        """Return copies of the members without pending requests and deadlines."""
        return tuple(
            replace(member, awaiting_join=None, awaiting_sync=None, deadline=math.inf, is_new=False)
            for member in self
        )

    @property
    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout of the members, in seconds."""
        return max((member.rebalance_timeout for member in self), default=0.0)
