"""State table and error tables of a group member in the classic protocol. Pure.

    UNJOINED ──▶ PREPARING_REBALANCE ──▶ JOINING ──▶ SYNCING ──▶ ASSIGNING ──▶ STABLE
                        ▲                                                        │
                        ├──────────────── rebalance needed ──────────────────────┤
                        └────────── LOST ◀──────── membership lost ──────────────┘

The membership task runs the work of a state until an event ends the state. A pair of state and
event that `TRANSITIONS` does not list is a bug. The action for a broker's error is a row in the
table of the request: `JOIN_ERRORS`, `SYNC_ERRORS`, `HEARTBEAT_ERRORS` and `COMMIT_ERRORS`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kafka_async.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidCommitOffsetSizeError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MemberIdRequiredError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RequestTimedOutError,
    RetriableError,
    StaleMemberEpochError,
    TopicAuthorizationError,
    UnknownMemberIdError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
    UnsupportedVersionError,
    find_by_class,
)


class MemberState(enum.Enum):
    """States of a group member."""

    UNJOINED = "unjoined"
    """Not a member, and not requested to join."""
    PREPARING_REBALANCE = "preparing rebalance"
    """Revokes the partitions that the rebalance protocol requires before JoinGroup."""
    JOINING = "joining"
    """JoinGroup is in flight: the coordinator waits for the other members."""
    SYNCING = "syncing"
    """SyncGroup is in flight. On the group leader, the assignor runs first."""
    ASSIGNING = "assigning"
    """Applies the new assignment."""
    STABLE = "stable"
    """Has its assignment and sends heartbeats."""
    LOST = "lost"
    """The coordinator removed the member: its partitions may belong to another member already."""
    POLL_TIMEOUT = "poll timeout"
    """Left because max_poll_interval_ms passed without a poll; the next poll joins again."""
    LEAVING = "leaving"
    """Revokes its partitions and sends LeaveGroup."""
    FATAL = "fatal"
    """The group rejected the member: the error is raised to the application. The next poll joins
    again, unless the error is one of `FATAL_ERRORS`."""
    CLOSED = "closed"
    """Closed for good."""


class MembershipEvent(enum.Enum):
    """Events that end a state."""

    JOIN_REQUESTED = "join requested"
    PREPARED = "prepared"
    JOINED = "joined"
    SYNCED = "synced"
    ASSIGNED = "assigned"
    REBALANCE_NEEDED = "rebalance needed"
    """All members must join again."""
    MEMBERSHIP_LOST = "membership lost"
    """The member id or the generation is no longer valid."""
    PARTITIONS_DROPPED = "partitions dropped"
    POLL_TIMED_OUT = "poll timed out"
    """max_poll_interval_ms has passed without a poll."""
    POLLED = "polled"
    LEAVE_REQUESTED = "leave requested"
    LEFT = "left"
    FAILED = "failed"
    CLOSE_REQUESTED = "close requested"


S, E = MemberState, MembershipEvent

TRANSITIONS: Final[Mapping[tuple[MemberState, MembershipEvent], MemberState]] = {
    (S.UNJOINED, E.JOIN_REQUESTED): S.PREPARING_REBALANCE,
    (S.UNJOINED, E.CLOSE_REQUESTED): S.CLOSED,
    (S.PREPARING_REBALANCE, E.PREPARED): S.JOINING,
    (S.PREPARING_REBALANCE, E.MEMBERSHIP_LOST): S.LOST,
    (S.PREPARING_REBALANCE, E.POLL_TIMED_OUT): S.POLL_TIMEOUT,
    (S.PREPARING_REBALANCE, E.LEAVE_REQUESTED): S.LEAVING,
    (S.PREPARING_REBALANCE, E.FAILED): S.FATAL,
    (S.JOINING, E.JOINED): S.SYNCING,
    (S.JOINING, E.MEMBERSHIP_LOST): S.LOST,
    (S.JOINING, E.FAILED): S.FATAL,
    (S.JOINING, E.LEAVE_REQUESTED): S.LEAVING,
    (S.SYNCING, E.SYNCED): S.ASSIGNING,
    (S.SYNCING, E.REBALANCE_NEEDED): S.PREPARING_REBALANCE,
    (S.SYNCING, E.MEMBERSHIP_LOST): S.LOST,
    (S.SYNCING, E.FAILED): S.FATAL,
    (S.SYNCING, E.LEAVE_REQUESTED): S.LEAVING,
    (S.ASSIGNING, E.ASSIGNED): S.STABLE,
    (S.ASSIGNING, E.MEMBERSHIP_LOST): S.LOST,
    (S.ASSIGNING, E.POLL_TIMED_OUT): S.POLL_TIMEOUT,
    (S.ASSIGNING, E.LEAVE_REQUESTED): S.LEAVING,
    (S.ASSIGNING, E.FAILED): S.FATAL,
    (S.STABLE, E.REBALANCE_NEEDED): S.PREPARING_REBALANCE,
    (S.STABLE, E.MEMBERSHIP_LOST): S.LOST,
    (S.STABLE, E.POLL_TIMED_OUT): S.POLL_TIMEOUT,
    (S.STABLE, E.FAILED): S.FATAL,
    (S.STABLE, E.LEAVE_REQUESTED): S.LEAVING,
    (S.LOST, E.PARTITIONS_DROPPED): S.PREPARING_REBALANCE,
    (S.LOST, E.LEAVE_REQUESTED): S.LEAVING,
    (S.POLL_TIMEOUT, E.POLLED): S.LOST,
    (S.POLL_TIMEOUT, E.LEAVE_REQUESTED): S.LEAVING,
    (S.FATAL, E.POLLED): S.LOST,
    (S.FATAL, E.LEAVE_REQUESTED): S.LEAVING,
    (S.LEAVING, E.LEFT): S.UNJOINED,
}

HEARTBEAT_STATES: Final = frozenset({S.PREPARING_REBALANCE, S.ASSIGNING, S.STABLE})
"""States in which heartbeats are sent.

While JoinGroup or SyncGroup is in flight the coordinator counts the request as a sign of life, and
would read a heartbeat behind it only after it has responded.
"""


def next_state(state: MemberState, event: MembershipEvent) -> MemberState:
    """Return the state that follows `event`.

    Raises:
        IllegalStateError: The table has no such transition.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalStateError(
            f"the group member's state {state.value!r} has no transition for {event.value!r}"
        ) from None


class Invalidation(enum.IntEnum):
    """The part of a membership that an error invalidates."""

    NONE = 0
    GENERATION = 1
    MEMBER_ID = 2
    """The member id and the generation."""


class MembershipErrorAction(NamedTuple):
    """Action to take for an error.

    Attributes:
        event: Event for the state machine; None sends the same request again.
        find_coordinator: Whether the coordinator is looked up first.
        invalidates: The part of the membership that is no longer valid.
    """

    event: MembershipEvent | None
    find_coordinator: bool = False
    invalidates: Invalidation = Invalidation.NONE


FATAL_ERRORS: Final = frozenset(
    {
        FencedInstanceIdError,
        InvalidGroupIdError,
        UnsupportedVersionError,
        InvalidSessionTimeoutError,
    }
)
"""Errors that a further JoinGroup cannot resolve."""

RETRY: Final = MembershipErrorAction(None)
FIND_COORDINATOR: Final = MembershipErrorAction(None, find_coordinator=True)
REJOIN: Final = MembershipErrorAction(E.REBALANCE_NEEDED)
GENERATION_LOST: Final = MembershipErrorAction(
    E.MEMBERSHIP_LOST, invalidates=Invalidation.GENERATION
)
MEMBER_ID_LOST: Final = MembershipErrorAction(E.MEMBERSHIP_LOST, invalidates=Invalidation.MEMBER_ID)
FAIL: Final = MembershipErrorAction(E.FAILED)

MembershipErrorTable: TypeAlias = Mapping[type[KafkaError], MembershipErrorAction]

_COORDINATOR_ERRORS: Final[MembershipErrorTable] = {
    CoordinatorLoadInProgressError: RETRY,
    CoordinatorNotAvailableError: FIND_COORDINATOR,
    NotCoordinatorError: FIND_COORDINATOR,
    KafkaConnectionError: FIND_COORDINATOR,
    RetriableError: RETRY,
    UnknownServerError: RETRY,
}
"""Rows for every request to a coordinator."""

_FATAL_ERROR_ROWS: Final[MembershipErrorTable] = {
    FencedInstanceIdError: FAIL,
    GroupAuthorizationError: FAIL,
    InvalidGroupIdError: FAIL,
    UnsupportedVersionError: FAIL,
    BrokerError: FAIL,
    KafkaError: FAIL,
}

JOIN_ERRORS: Final[MembershipErrorTable] = {
    **_COORDINATOR_ERRORS,
    **_FATAL_ERROR_ROWS,
    MemberIdRequiredError: RETRY,  # with the id that came with it (KIP-394)
    RebalanceInProgressError: RETRY,
    UnknownMemberIdError: MEMBER_ID_LOST,
    IllegalGenerationError: GENERATION_LOST,
    InconsistentGroupProtocolError: FAIL,
    InvalidSessionTimeoutError: FAIL,
    GroupMaxSizeReachedError: FAIL,
}

SYNC_ERRORS: Final[MembershipErrorTable] = {
    **_COORDINATOR_ERRORS,
    **_FATAL_ERROR_ROWS,
    # A new coordinator may not have this generation: the member has to join again.
    NotCoordinatorError: MembershipErrorAction(E.REBALANCE_NEEDED, find_coordinator=True),
    CoordinatorNotAvailableError: MembershipErrorAction(E.REBALANCE_NEEDED, find_coordinator=True),
    KafkaConnectionError: MembershipErrorAction(E.REBALANCE_NEEDED, find_coordinator=True),
    RetriableError: REJOIN,
    RebalanceInProgressError: REJOIN,
    UnknownMemberIdError: MEMBER_ID_LOST,
    IllegalGenerationError: GENERATION_LOST,
    InconsistentGroupProtocolError: FAIL,
}

HEARTBEAT_ERRORS: Final[MembershipErrorTable] = {
    **_COORDINATOR_ERRORS,
    **_FATAL_ERROR_ROWS,
    RebalanceInProgressError: REJOIN,
    UnknownMemberIdError: MEMBER_ID_LOST,
    IllegalGenerationError: GENERATION_LOST,
}


class CommitErrorAction(enum.Enum):
    """Action for one partition's error in a response to OffsetCommit or OffsetFetch."""

    RETRY = "retry"
    FIND_COORDINATOR = "look up the coordinator, then retry"
    CHECK_TOPIC = "check whether the topic was deleted, then retry the other topics"
    WAIT_FOR_REBALANCE = "wait for the rebalance, then retry the partitions still owned"
    RAISE_COMMIT_FAILED = "raise CommitFailedError: the member lost the partition"
    RAISE = "raise the error"


COMMIT_ERRORS: Final[Mapping[type[KafkaError], CommitErrorAction]] = {
    CoordinatorLoadInProgressError: CommitErrorAction.RETRY,
    CoordinatorNotAvailableError: CommitErrorAction.FIND_COORDINATOR,
    NotCoordinatorError: CommitErrorAction.FIND_COORDINATOR,
    RequestTimedOutError: CommitErrorAction.RETRY,
    KafkaConnectionError: CommitErrorAction.FIND_COORDINATOR,
    KafkaTimeoutError: CommitErrorAction.FIND_COORDINATOR,
    UnknownTopicOrPartitionError: CommitErrorAction.CHECK_TOPIC,
    UnknownTopicIdError: CommitErrorAction.CHECK_TOPIC,
    UnstableOffsetCommitError: CommitErrorAction.RETRY,
    RebalanceInProgressError: CommitErrorAction.WAIT_FOR_REBALANCE,
    UnknownMemberIdError: CommitErrorAction.RAISE_COMMIT_FAILED,
    IllegalGenerationError: CommitErrorAction.RAISE_COMMIT_FAILED,
    StaleMemberEpochError: CommitErrorAction.RAISE_COMMIT_FAILED,
    FencedInstanceIdError: CommitErrorAction.RAISE,
    OffsetMetadataTooLargeError: CommitErrorAction.RAISE,
    InvalidCommitOffsetSizeError: CommitErrorAction.RAISE,
    GroupAuthorizationError: CommitErrorAction.RAISE,
    TopicAuthorizationError: CommitErrorAction.RAISE,
    InvalidGroupIdError: CommitErrorAction.RAISE,
    RetriableError: CommitErrorAction.RETRY,
    KafkaError: CommitErrorAction.RAISE,
}


def membership_error_action(
    table: MembershipErrorTable, error: KafkaError
) -> MembershipErrorAction:
    """Return the row for the error's class, or for its nearest base class."""
    return find_by_class(table, error)


def commit_error_action(error: KafkaError) -> CommitErrorAction:
    """Return the row of `COMMIT_ERRORS` for an error."""
    return find_by_class(COMMIT_ERRORS, error)
