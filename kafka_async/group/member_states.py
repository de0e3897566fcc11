"""State table and error tables of a group member in the classic protocol. Pure.

    UNJOINED ──▶ PREPARING_REBALANCE ──▶ JOINING ──▶ SYNCING ──▶ ASSIGNING ──▶ STABLE
                        ▲                                                        │
                        ├──────────────── rebalance needed ──────────────────────┤
                        └────────── LOST ◀──────── membership lost ──────────────┘

    JOINING, SYNCING ── access denied ──▶ JOIN_DENIED ── polled ──▶ PREPARING_REBALANCE
    PREPARING_REBALANCE to STABLE ── failed ──▶ FAILED ── polled ──▶ LOST
    PREPARING_REBALANCE to STABLE ── rejected ──▶ FATAL ── close requested ──▶ CLOSED

In the consumer protocol (KIP-848) a member joins in JOINING by its first heartbeat, and passes
through PREPARING_REBALANCE to STABLE whenever the coordinator has sent another assignment, which it
applies in ASSIGNING; nothing is revoked before, and SYNCING ends at once.

The membership task runs the work of a state until an event ends it: an event of that work, or one
that another task has posted (`PendingEvents`). A pair of state and event that is not in
`TRANSITIONS` is a bug. The action for a broker's error is a row in the table of the request:
`JOIN_ERRORS`, `SYNC_ERRORS` and `HEARTBEAT_ERRORS`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kafka_async.errors import (
    AuthenticationError,
    AuthorizationError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidGroupIdError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KafkaConnectionError,
    KafkaError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
    UnknownServerError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
    find_by_class,
)


class MemberState(enum.Enum):
    """States of a group member."""

    UNJOINED = "unjoined"
    """Not a member; `join` was not called."""
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
    JOIN_DENIED = "join denied"
    """Authentication or authorization of JoinGroup or SyncGroup has failed: the error is raised to
    the application, and the next poll joins again with the same member id."""
    LEAVING = "leaving"
    """Revokes its partitions and sends LeaveGroup."""
    FAILED = "failed"
    """An error is raised to the application, and the next poll joins again."""
    FATAL = "fatal"
    """The group rejected the member, and joining again cannot help: each poll raises the error
    until the consumer is closed."""
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
    ACCESS_DENIED = "access denied"
    """Authentication or authorization of a request has failed."""
    FAILED = "failed"
    """An error that joining again may resolve."""
    REJECTED = "rejected"
    """An error that joining again cannot resolve."""
    CLOSE_REQUESTED = "close requested"


S, E = MemberState, MembershipEvent

TRANSITIONS: Final[Mapping[tuple[MemberState, MembershipEvent], MemberState]] = {
    (S.UNJOINED, E.JOIN_REQUESTED): S.PREPARING_REBALANCE,
    (S.UNJOINED, E.CLOSE_REQUESTED): S.CLOSED,
    (S.PREPARING_REBALANCE, E.PREPARED): S.JOINING,
    (S.PREPARING_REBALANCE, E.MEMBERSHIP_LOST): S.LOST,
    (S.PREPARING_REBALANCE, E.POLL_TIMED_OUT): S.POLL_TIMEOUT,
    (S.PREPARING_REBALANCE, E.LEAVE_REQUESTED): S.LEAVING,
    (S.PREPARING_REBALANCE, E.FAILED): S.FAILED,
    (S.PREPARING_REBALANCE, E.REJECTED): S.FATAL,
    (S.JOINING, E.JOINED): S.SYNCING,
    (S.JOINING, E.MEMBERSHIP_LOST): S.LOST,
    (S.JOINING, E.ACCESS_DENIED): S.JOIN_DENIED,
    (S.JOINING, E.FAILED): S.FAILED,
    (S.JOINING, E.REJECTED): S.FATAL,
    (S.JOINING, E.LEAVE_REQUESTED): S.LEAVING,
    (S.SYNCING, E.SYNCED): S.ASSIGNING,
    (S.SYNCING, E.REBALANCE_NEEDED): S.PREPARING_REBALANCE,
    (S.SYNCING, E.MEMBERSHIP_LOST): S.LOST,
    (S.SYNCING, E.ACCESS_DENIED): S.JOIN_DENIED,
    (S.SYNCING, E.FAILED): S.FAILED,
    (S.SYNCING, E.REJECTED): S.FATAL,
    (S.SYNCING, E.LEAVE_REQUESTED): S.LEAVING,
    # Events of other tasks stay pending until the assignment is applied.
    (S.ASSIGNING, E.ASSIGNED): S.STABLE,
    (S.ASSIGNING, E.POLL_TIMED_OUT): S.POLL_TIMEOUT,
    (S.ASSIGNING, E.FAILED): S.FAILED,
    (S.STABLE, E.REBALANCE_NEEDED): S.PREPARING_REBALANCE,
    (S.STABLE, E.MEMBERSHIP_LOST): S.LOST,
    (S.STABLE, E.POLL_TIMED_OUT): S.POLL_TIMEOUT,
    (S.STABLE, E.FAILED): S.FAILED,
    (S.STABLE, E.REJECTED): S.FATAL,
    (S.STABLE, E.LEAVE_REQUESTED): S.LEAVING,
    (S.LOST, E.PARTITIONS_DROPPED): S.PREPARING_REBALANCE,
    (S.LOST, E.LEAVE_REQUESTED): S.LEAVING,
    (S.POLL_TIMEOUT, E.POLLED): S.LOST,
    (S.POLL_TIMEOUT, E.LEAVE_REQUESTED): S.LEAVING,
    (S.JOIN_DENIED, E.POLLED): S.PREPARING_REBALANCE,
    (S.JOIN_DENIED, E.LEAVE_REQUESTED): S.LEAVING,
    (S.FAILED, E.POLLED): S.LOST,
    (S.FAILED, E.LEAVE_REQUESTED): S.LEAVING,
    (S.LEAVING, E.LEFT): S.UNJOINED,
    (S.FATAL, E.CLOSE_REQUESTED): S.CLOSED,
}

HEARTBEAT_STATES: Final = frozenset({S.PREPARING_REBALANCE, S.ASSIGNING, S.STABLE})
"""States in which heartbeats are sent.

While JoinGroup or SyncGroup is in flight the coordinator keeps the session alive, and would read a
heartbeat behind it only after it has responded.
"""

REJOINS_AT_POLL: Final = frozenset({S.POLL_TIMEOUT, S.JOIN_DENIED, S.FAILED})
"""States outside the group that last until the application polls."""


def next_state(state: MemberState, event: MembershipEvent) -> MemberState:
    """Return the state that follows `event`; raise IllegalStateError if the table has none."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalStateError(
            f"the group member's state {state.value!r} has no transition for {event.value!r}"
        ) from None


POSTED_EVENTS: Final[Mapping[MemberState, tuple[MembershipEvent, ...]]] = {
    S.UNJOINED: (E.JOIN_REQUESTED, E.CLOSE_REQUESTED),
    S.PREPARING_REBALANCE: (E.MEMBERSHIP_LOST, E.REJECTED, E.FAILED, E.LEAVE_REQUESTED),
    S.JOINING: (E.LEAVE_REQUESTED,),
    S.SYNCING: (E.LEAVE_REQUESTED,),
    S.STABLE: (
        *(E.MEMBERSHIP_LOST, E.REJECTED, E.FAILED),
        *(E.LEAVE_REQUESTED, E.REBALANCE_NEEDED),
    ),
    S.LOST: (E.LEAVE_REQUESTED,),
    S.POLL_TIMEOUT: (E.LEAVE_REQUESTED, E.POLLED),
    S.JOIN_DENIED: (E.LEAVE_REQUESTED, E.POLLED),
    S.FAILED: (E.LEAVE_REQUESTED, E.POLLED),
    S.FATAL: (E.CLOSE_REQUESTED,),
}
"""Events of other tasks that end a state, the most important first; others stay pending."""

_CONTRADICTIONS: Final[Mapping[MembershipEvent, MembershipEvent]] = {
    E.JOIN_REQUESTED: E.LEAVE_REQUESTED,
    E.LEAVE_REQUESTED: E.JOIN_REQUESTED,
}
# The first of these decides how the membership ends.
_ENDS_OF_MEMBERSHIP: Final = frozenset({E.MEMBERSHIP_LOST, E.REJECTED, E.FAILED})
# These concern the application's wish, whatever happens to the current membership.
_REQUESTS: Final = frozenset({E.JOIN_REQUESTED, E.LEAVE_REQUESTED, E.CLOSE_REQUESTED})


class PendingEvents:
    """Events that other tasks have posted and the membership task has not handled."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: set[MembershipEvent] = set()

    def __contains__(self, event: MembershipEvent) -> bool:
        return event in self._events

    def post(self, event: MembershipEvent) -> bool:
        """Add an event; return False if an earlier one makes it void.

        A request to leave replaces a request to join and vice versa. A closing member does not join
        again. Only the first event that ends the membership counts.
        """
        events = self._events
        if event is E.JOIN_REQUESTED and E.CLOSE_REQUESTED in events:
            return False
        if event in _ENDS_OF_MEMBERSHIP and not _ENDS_OF_MEMBERSHIP.isdisjoint(events):
            return False
        if event in _CONTRADICTIONS:
            events.discard(_CONTRADICTIONS[event])
        events.add(event)
        return True

    def take(self, state: MemberState) -> MembershipEvent | None:
        """Remove and return the most important event that ends `state`, or None."""
        for event in POSTED_EVENTS[state]:
            if event in self._events:
                self._events.discard(event)
                return event
        return None

    def discard(self, event: MembershipEvent) -> None:
        """Remove an event that the member acts on anyway."""
        self._events.discard(event)

    def end_membership(self) -> None:
        """Remove the events that concern the former membership; requests stay."""
        self._events &= _REQUESTS


class Invalidation(enum.IntEnum):
    """The part of a membership that an error invalidates."""

    NONE = 0
    GENERATION = 1
    MEMBER_ID = 2
    """The member id and the generation."""


class MembershipErrorAction(NamedTuple):
    """Action to take for an error: `event` ends the state, and None retries the same request.

    `find_coordinator`: look up the coordinator first; `invalidates`: the part of the membership
    that is lost; `raised`: polls raise the error, although it ends no state.
    """

    event: MembershipEvent | None
    find_coordinator: bool = False
    invalidates: Invalidation = Invalidation.NONE
    raised: bool = False


RETRY: Final = MembershipErrorAction(None)
RAISE_AND_RETRY: Final = MembershipErrorAction(None, raised=True)
FIND_COORDINATOR: Final = MembershipErrorAction(None, find_coordinator=True)
REJOIN: Final = MembershipErrorAction(E.REBALANCE_NEEDED)
GENERATION_LOST: Final = MembershipErrorAction(
    E.MEMBERSHIP_LOST, invalidates=Invalidation.GENERATION
)
MEMBER_ID_LOST: Final = MembershipErrorAction(E.MEMBERSHIP_LOST, invalidates=Invalidation.MEMBER_ID)
DENY: Final = MembershipErrorAction(E.ACCESS_DENIED)
FAIL: Final = MembershipErrorAction(E.FAILED)
REJECT: Final = MembershipErrorAction(E.REJECTED)

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

_OTHER_ERRORS: Final[MembershipErrorTable] = {
    AuthenticationError: DENY,
    AuthorizationError: DENY,
    # Configuration of this member, or a second member with its name: joining again cannot help.
    FencedInstanceIdError: REJECT,
    InvalidGroupIdError: REJECT,
    InvalidSessionTimeoutError: REJECT,
    UnsupportedVersionError: REJECT,
    KafkaError: FAIL,
}

JOIN_ERRORS: Final[MembershipErrorTable] = {
    **_COORDINATOR_ERRORS,
    **_OTHER_ERRORS,
    MemberIdRequiredError: RETRY,  # with the id from the response (KIP-394)
    RebalanceInProgressError: RETRY,
    UnknownMemberIdError: MEMBER_ID_LOST,
    IllegalGenerationError: GENERATION_LOST,
}

SYNC_ERRORS: Final[MembershipErrorTable] = {
    **_COORDINATOR_ERRORS,
    **_OTHER_ERRORS,
    # A new coordinator may not have this generation: the member has to join again.
    NotCoordinatorError: MembershipErrorAction(E.REBALANCE_NEEDED, find_coordinator=True),
    CoordinatorNotAvailableError: MembershipErrorAction(E.REBALANCE_NEEDED, find_coordinator=True),
    KafkaConnectionError: MembershipErrorAction(E.REBALANCE_NEEDED, find_coordinator=True),
    RetriableError: REJOIN,
    RebalanceInProgressError: REJOIN,
    UnknownMemberIdError: MEMBER_ID_LOST,
    IllegalGenerationError: GENERATION_LOST,
}

HEARTBEAT_ERRORS: Final[MembershipErrorTable] = {
    **_COORDINATOR_ERRORS,
    **_OTHER_ERRORS,
    # The membership lasts until its session ends: the cause may be removed before that.
    AuthenticationError: RAISE_AND_RETRY,
    AuthorizationError: RAISE_AND_RETRY,
    RebalanceInProgressError: REJOIN,
    UnknownMemberIdError: MEMBER_ID_LOST,
    IllegalGenerationError: GENERATION_LOST,
}

CONSUMER_JOIN_ERRORS: Final[MembershipErrorTable] = {
    **_COORDINATOR_ERRORS,
    **_OTHER_ERRORS,
    FencedMemberEpochError: GENERATION_LOST,
    UnknownMemberIdError: GENERATION_LOST,
    GroupIdNotFoundError: REJECT,  # the group has members of the classic protocol
    InvalidRegularExpressionError: REJECT,
    InvalidRequestError: REJECT,
    UnreleasedInstanceIdError: REJECT,
    UnsupportedAssignorError: REJECT,
}
"""Rows for the ConsumerGroupHeartbeat that joins a group (KIP-848)."""

CONSUMER_HEARTBEAT_ERRORS: Final[MembershipErrorTable] = {
    **CONSUMER_JOIN_ERRORS,
    # The group has lost this member since, and was deleted or has become a classic group.
    GroupIdNotFoundError: GENERATION_LOST,
    AuthenticationError: RAISE_AND_RETRY,
    AuthorizationError: RAISE_AND_RETRY,
}
"""Rows for later heartbeats: the membership lasts until its session ends."""


def membership_error_action(
    table: MembershipErrorTable, error: KafkaError
) -> MembershipErrorAction:
    """Return the row for the error's class, or for its nearest base class."""
    return find_by_class(table, error)
