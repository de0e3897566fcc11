"""A group member's options and identity, and the interface through which it is assigned partitions.

The membership task is independent of topics. Subscriptions and assignments are opaque bytes to it;
a `RebalanceHandler` encodes, computes and applies them. The consumer's handler is in
`consumer/group/rebalance_handler.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafka_async.config import seconds
from kafka_async.errors import FencedInstanceIdError, UnreleasedInstanceIdError
from kafka_async.group.member_states import Invalidation
from kafka_async.types import GroupMetadata

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from kafka_async.config import ConsumerConfig, GroupMemberConfig, ShareConsumerConfig
    from kafka_async.errors import AssignorError, KafkaError
    from kafka_async.types import TopicPartition

NO_GENERATION = -1
NO_MEMBER = ""


class PollTimeoutError(Exception):
    """The application has not polled for max_poll_interval_ms."""


class AssignorFailedError(Exception):
    """The assignor of the group leader has raised an exception.

    Attributes:
        error: Error to raise to the application.
        assignments: What SyncGroup sends: the error for members that read it, and no partitions
            for others; empty if only the leader reads it.
        read_by_all: True if every member reads it.
    """

    def __init__(
        self, error: AssignorError, assignments: Mapping[str, bytes], *, read_by_all: bool
    ) -> None:
        super().__init__(error)
        self.error = error
        self.assignments = assignments
        self.read_by_all = read_by_all


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Options of a group member; times in seconds."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout: float = 45.0
    rebalance_timeout: float = 300.0
    heartbeat_interval: float = 3.0
    request_timeout: float = 30.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0
    loop_watchdog: bool = False
    applies_rewinds: bool = False

    @classmethod
    def of(cls, config: ConsumerConfig) -> GroupSettings:
        """Return the group options of a consumer."""
        assert config.group_id is not None
        settings = cls._of(config, config.group_id, config.max_poll_interval_ms)
        return replace(settings, applies_rewinds=config.rewind_check_interval_ms > 0)

    @classmethod
    def of_share(cls, config: ShareConsumerConfig) -> GroupSettings:
        """Return the group options of a share consumer; the group has the others."""
        assert config.group_id is not None
        return cls(
            config.group_id,
            rebalance_timeout=seconds(config.max_poll_interval_ms),
            request_timeout=seconds(config.request_timeout_ms),
            retry_backoff=seconds(config.retry_backoff_ms),
            retry_backoff_max=seconds(config.retry_backoff_max_ms),
            loop_watchdog=config.loop_watchdog,
        )

    @classmethod
    def of_member(cls, config: GroupMemberConfig, group_id: str) -> GroupSettings:
        """Return the options of a member that is not a consumer."""
        return cls._of(config, group_id, config.rebalance_timeout_ms)

    @classmethod
    def _of(
        cls, config: ConsumerConfig | GroupMemberConfig, group_id: str, rebalance_timeout_ms: int
    ) -> GroupSettings:
        return cls(
            group_id,
            config.group_instance_id,
            seconds(config.session_timeout_ms),
            seconds(rebalance_timeout_ms),
            seconds(config.heartbeat_interval_ms),
            seconds(config.request_timeout_ms),
            seconds(config.retry_backoff_ms),
            seconds(config.retry_backoff_max_ms),
            config.loop_watchdog,
        )


def explain_duplicate(
    error: KafkaError, group_id: str, group_instance_id: str | None
) -> KafkaError:
    """Return the error with the static member's name and the remedy, if the name is taken."""
    if not isinstance(error, FencedInstanceIdError | UnreleasedInstanceIdError):
        return error
    explained = type(error)(
        f"another running member of group {group_id} has the group_instance_id "
        f"{group_instance_id!r}: give each member of the group its own, or stop the other one "
        "first, and start this one again",
        topic=error.topic,
        partition=error.partition,
    )
    explained.__cause__ = error
    return explained


@dataclass(slots=True)
class LocalMember:
    """This member's identity as the coordinator knows it.

    The membership task writes it; the heartbeat task only calls `invalidate`.

    Attributes:
        invalid: The part that the coordinator no longer accepts. Requests carry it until
            `discard_invalid`, so that the coordinator fences commits of lost partitions.
    """

    settings: GroupSettings
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_name: str | None = None
    invalid: Invalidation = Invalidation.NONE

    def invalidate(self, part: Invalidation) -> None:
        """Mark a part of the identity as invalid."""
        self.invalid = max(self.invalid, part)

    def discard_invalid(self) -> None:
        """Clear what is invalid: the generation, or the member id too."""
        if self.invalid >= Invalidation.GENERATION:
            self.generation = NO_GENERATION
            self.protocol_name = None
        if self.invalid >= Invalidation.MEMBER_ID:
            self.member_id = NO_MEMBER
        self.invalid = Invalidation.NONE

    def metadata(self) -> GroupMetadata:
        """Return the identity that offset commits carry, so that an outdated one is fenced."""
        return GroupMetadata(
            self.settings.group_id,
            self.generation,
            self.member_id,
            self.settings.group_instance_id,
        )


class Member(NamedTuple):
    """A member as the group leader sees it, with its subscription under the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class GroupSubscription(NamedTuple):
    """Names topics, or holds a regular expression of the broker's; that is empty without one."""

    topics: frozenset[str]
    pattern: str = ""


class AssignmentHandler(Protocol):
    """Applies the end of a membership, whichever the protocol.

    The membership task calls these methods one after another; heartbeats continue meanwhile.
    """

    def on_membership_ended(self) -> None:
        """Return no more records of the assignment; `on_partitions_lost` follows at the next poll.

        It is called as soon as the member is removed or leaves without a revocation.
        """
        ...

    async def on_partitions_lost(self) -> None:
        """Drop all partitions at the next poll: other members may own them already."""
        ...

    async def on_leave_prepare(self) -> None:
        """Revoke all partitions before leaving the group."""
        ...

    def last_poll_time(self) -> float:
        """Return the time of the application's last poll, in seconds of the event loop's clock."""
        ...


class RebalanceHandler(AssignmentHandler, Protocol):
    """Encodes subscriptions, computes assignments and applies them, in the classic protocol."""

    @property
    def protocol_type(self) -> str:
        """Protocol type of the group: "consumer", or an application's name."""
        ...

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """Return the supported assignors with their subscriptions, most preferred first."""
        ...

    async def on_join_prepare(self) -> None:
        """Revoke the partitions that must be revoked before joining. May raise PollTimeoutError."""
        ...

    async def assign(self, name: str, members: Sequence[Member]) -> Mapping[str, bytes]:
        """Compute all members' assignments as the leader, by member id.

        May raise AssignorFailedError.
        """
        ...

    async def on_assignment_kept(self, members: Sequence[Member]) -> bool:
        """Note that this member, a static leader that came back, must not assign (KIP-814).

        Return True if the assignment that the group keeps is outdated.
        """
        ...

    async def on_join_complete(self, name: str, assignment: bytes, generation: int) -> bool:
        """Apply an assignment; True if another rebalance follows. May raise PollTimeoutError."""
        ...


class ConsumerProtocolHandler(AssignmentHandler, Protocol):
    """Applies the assignments of a coordinator (KIP-848, KIP-932)."""

    def subscription(self) -> GroupSubscription:
        """Return what the member subscribes to."""
        ...

    async def topic_names(self, ids: Collection[UUID]) -> Mapping[UUID, str]:
        """Return the names of topics by id, without those that are not known yet."""
        ...

    async def on_assignment(self, assigned: frozenset[TopicPartition], epoch: int) -> None:
        """Revoke partitions, then take new ones over. May raise PollTimeoutError."""
        ...
