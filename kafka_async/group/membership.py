"""Who a member is, how patient it is, and what its group is about.

The coordinator knows nothing of topics. What the members of a group say of themselves, what they
share out and what it means to own a part of it is a `GroupProtocol`: a consumer's is in
`consumer/rebalance_handler.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafka_async.config import seconds
from kafka_async.group.state import Void
from kafka_async.types import GroupMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.config import ConsumerConfig

NO_GENERATION = -1
NO_MEMBER = ""


class QuietError(Exception):
    """The application has asked for nothing for max_poll_interval_ms."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A member's options; times in seconds."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout: float = 45.0
    rebalance_timeout: float = 300.0
    heartbeat_interval: float = 3.0
    request_timeout: float = 30.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0

    @classmethod
    def of(cls, config: ConsumerConfig) -> GroupSettings:
        """The settings of a consumer's group."""
        assert config.group_id is not None
        return cls(
            config.group_id,
            config.group_instance_id,
            seconds(config.session_timeout_ms),
            seconds(config.max_poll_interval_ms),
            seconds(config.heartbeat_interval_ms),
            seconds(config.request_timeout_ms),
            seconds(config.retry_backoff_ms),
            seconds(config.retry_backoff_max_ms),
        )


@dataclass(slots=True)
class Membership:
    """What a member says of itself. Written by the coordinator's task alone."""

    settings: GroupSettings
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_name: str | None = None

    def void(self, what: Void) -> None:
        """Forget what the coordinator no longer knows."""
        if what >= Void.GENERATION:
            self.generation = NO_GENERATION
            self.protocol_name = None
        if what >= Void.MEMBER:
            self.member_id = NO_MEMBER

    def metadata(self) -> GroupMetadata:
        """What fences this member's offsets once the group has moved on."""
        return GroupMetadata(
            self.settings.group_id,
            self.generation,
            self.member_id,
            self.settings.group_instance_id,
        )


class Member(NamedTuple):
    """A member as the leader sees it: what it said of itself under the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class GroupProtocol(Protocol):
    """What the members of a group share out, and what it means to own a part of it.

    The coordinator's task calls these one after another; heartbeats go on meanwhile.
    """

    @property
    def protocol_type(self) -> str:
        """The kind of group: "consumer", or a name of the application's own."""
        ...

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """What this member can do, the preferred first: names, and what it says under each."""
        ...

    async def prepare(self) -> None:
        """Give up what has to be given up before joining. May raise QuietError."""
        ...

    async def assign(self, name: str, members: Sequence[Member]) -> Mapping[str, bytes]:
        """As the leader: everybody's share under the chosen protocol, by member id."""
        ...

    async def take(self, name: str, assignment: bytes, generation: int) -> bool:
        """Take a share over; True if everybody has to join again. May raise QuietError."""
        ...

    async def lose(self) -> None:
        """Somebody else may own the share already: drop it, once the application asks again."""
        ...

    async def release(self) -> None:
        """Give up the share in good order, for good."""
        ...

    def last_asked(self) -> float:
        """When the application was last heard of, in the loop's time."""
        ...
