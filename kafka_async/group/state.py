"""The member's side of the classic group protocol, as tables. Pure.

    OUT ─wanted─▶ PREPARING ─prepared─▶ JOINING ─joined─▶ SYNCING ─synced─▶ TAKING ─taken─▶ STABLE
                      ▲                                                                       │
                      ├──────────────────────────── disturbed ────────────────────────────────┤
                      └── given up ── LOST ◀─────────── forgotten ─────────────────────────────┘

A state is something the coordinator's task does until an event ends it; a pair that `TRANSITIONS`
does not list cannot happen. What a broker's error means is a row in the table of its request:
`JOIN`, `SYNC`, `HEARTBEAT` and `COMMIT`.
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


class State(enum.Enum):
    """What a member is doing."""

    OUT = "out"
    """It is no member and does not want to be one."""
    PREPARING = "preparing"
    """It gives up what its strategy wants given up before it joins."""
    JOINING = "joining"
    """JoinGroup is under way: the coordinator waits for the other members."""
    SYNCING = "syncing"
    """SyncGroup is under way: the coordinator waits for the leader."""
    TAKING = "taking"
    """It takes its assignment over."""
    STABLE = "stable"
    """It has its assignment and sends heartbeats."""
    LOST = "lost"
    """The coordinator has struck it off: what it owned may be somebody else's already."""
    SILENT = "silent"
    """The application asked for nothing for max_poll_interval_ms; it has left until it does."""
    LEAVING = "leaving"
    """It gives up what it has and says so."""
    REFUSED = "refused"
    """The group does not take it; the caller was or will be told."""
    CLOSED = "closed"
    """It will never be a member again."""


class Event(enum.Enum):
    """What ends a state."""

    WANTED = "wanted"
    PREPARED = "prepared"
    JOINED = "joined"
    SYNCED = "synced"
    TAKEN = "taken"
    DISTURBED = "disturbed"
    """Everybody must join again."""
    FORGOTTEN = "forgotten"
    """The member's id or generation is void."""
    GIVEN_UP = "given up"
    QUIET = "quiet"
    """max_poll_interval_ms has passed without a question of the application."""
    ASKED = "asked"
    UNWANTED = "unwanted"
    LEFT = "left"
    DENIED = "denied"
    STOPPED = "stopped"


S, E = State, Event

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (S.OUT, E.WANTED): S.PREPARING,
    (S.OUT, E.STOPPED): S.CLOSED,
    (S.PREPARING, E.PREPARED): S.JOINING,
    (S.PREPARING, E.FORGOTTEN): S.LOST,
    (S.PREPARING, E.QUIET): S.SILENT,
    (S.PREPARING, E.UNWANTED): S.LEAVING,
    (S.PREPARING, E.DENIED): S.REFUSED,
    (S.JOINING, E.JOINED): S.SYNCING,
    (S.JOINING, E.FORGOTTEN): S.LOST,
    (S.JOINING, E.DENIED): S.REFUSED,
    (S.JOINING, E.UNWANTED): S.LEAVING,
    (S.SYNCING, E.SYNCED): S.TAKING,
    (S.SYNCING, E.DISTURBED): S.PREPARING,
    (S.SYNCING, E.FORGOTTEN): S.LOST,
    (S.SYNCING, E.DENIED): S.REFUSED,
    (S.SYNCING, E.UNWANTED): S.LEAVING,
    (S.TAKING, E.TAKEN): S.STABLE,
    (S.TAKING, E.FORGOTTEN): S.LOST,
    (S.TAKING, E.QUIET): S.SILENT,
    (S.TAKING, E.UNWANTED): S.LEAVING,
    (S.TAKING, E.DENIED): S.REFUSED,
    (S.STABLE, E.DISTURBED): S.PREPARING,
    (S.STABLE, E.FORGOTTEN): S.LOST,
    (S.STABLE, E.QUIET): S.SILENT,
    (S.STABLE, E.DENIED): S.REFUSED,
    (S.STABLE, E.UNWANTED): S.LEAVING,
    (S.LOST, E.GIVEN_UP): S.PREPARING,
    (S.LOST, E.UNWANTED): S.LEAVING,
    (S.SILENT, E.ASKED): S.LOST,
    (S.SILENT, E.UNWANTED): S.LEAVING,
    (S.REFUSED, E.ASKED): S.LOST,
    (S.REFUSED, E.UNWANTED): S.LEAVING,
    (S.LEAVING, E.LEFT): S.OUT,
}

BEATING: Final = frozenset({S.PREPARING, S.TAKING, S.STABLE})
"""Where heartbeats are sent. A parked JoinGroup or SyncGroup is a sign of life by itself, and the
coordinator would read a heartbeat behind it only once it is answered."""


def follow(state: State, event: Event) -> State:
    """The state after `event`. Raises IllegalStateError for what cannot happen."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalStateError(
            f"a group member that is {state.value} cannot hear {event.value!r}"
        ) from None


class Void(enum.IntEnum):
    """What of a membership an error makes void."""

    NOTHING = 0
    GENERATION = 1
    MEMBER = 2
    """The member id too."""


class Reaction(NamedTuple):
    """What to do about an error.

    Attributes:
        event: what the state machine hears; None: the same request is sent again.
        find: the coordinator is looked up again first.
        void: what the member must no longer say of itself.
    """

    event: Event | None
    find: bool = False
    void: Void = Void.NOTHING


FINAL: Final = frozenset(
    {
        FencedInstanceIdError,
        InvalidGroupIdError,
        UnsupportedVersionError,
        InvalidSessionTimeoutError,
    }
)
"""Refusals that asking again cannot change."""

AGAIN: Final = Reaction(None)
FIND: Final = Reaction(None, find=True)
REJOIN: Final = Reaction(E.DISTURBED)
EXPIRED: Final = Reaction(E.FORGOTTEN, void=Void.GENERATION)
FORGOTTEN: Final = Reaction(E.FORGOTTEN, void=Void.MEMBER)
DENIED: Final = Reaction(E.DENIED)

Reactions: TypeAlias = Mapping[type[KafkaError], Reaction]

_COORDINATOR: Final[Reactions] = {
    CoordinatorLoadInProgressError: AGAIN,
    CoordinatorNotAvailableError: FIND,
    NotCoordinatorError: FIND,
    KafkaConnectionError: FIND,
    RetriableError: AGAIN,
    UnknownServerError: AGAIN,
}
"""What every request to a coordinator may meet."""

_REFUSALS: Final[Reactions] = {
    FencedInstanceIdError: DENIED,
    GroupAuthorizationError: DENIED,
    InvalidGroupIdError: DENIED,
    UnsupportedVersionError: DENIED,
    BrokerError: DENIED,
    KafkaError: DENIED,
}

JOIN: Final[Reactions] = {
    **_COORDINATOR,
    **_REFUSALS,
    MemberIdRequiredError: AGAIN,  # with the id that came with it (KIP-394)
    RebalanceInProgressError: AGAIN,
    UnknownMemberIdError: FORGOTTEN,
    IllegalGenerationError: EXPIRED,
    InconsistentGroupProtocolError: DENIED,
    InvalidSessionTimeoutError: DENIED,
    GroupMaxSizeReachedError: DENIED,
}

SYNC: Final[Reactions] = {
    **_COORDINATOR,
    **_REFUSALS,
    # A coordinator that moved may know nothing of the generation: joining again settles it.
    NotCoordinatorError: Reaction(E.DISTURBED, find=True),
    CoordinatorNotAvailableError: Reaction(E.DISTURBED, find=True),
    KafkaConnectionError: Reaction(E.DISTURBED, find=True),
    RetriableError: REJOIN,
    RebalanceInProgressError: REJOIN,
    UnknownMemberIdError: FORGOTTEN,
    IllegalGenerationError: EXPIRED,
    InconsistentGroupProtocolError: DENIED,
}

HEARTBEAT: Final[Reactions] = {
    **_COORDINATOR,
    **_REFUSALS,
    RebalanceInProgressError: REJOIN,
    UnknownMemberIdError: FORGOTTEN,
    IllegalGenerationError: EXPIRED,
}


class CommitReaction(enum.Enum):
    """What to do about one partition's answer to OffsetCommit or OffsetFetch."""

    AGAIN = "ask again"
    FIND = "look the coordinator up, then ask again"
    CHECK = "find out whether the topic was deleted, then ask again for what was not"
    WAIT = "wait until the member is stable, then ask again for what it still owns"
    FAIL = "the group has moved on: CommitFailedError"
    RAISE = "raise it"


COMMIT: Final[Mapping[type[KafkaError], CommitReaction]] = {
    CoordinatorLoadInProgressError: CommitReaction.AGAIN,
    CoordinatorNotAvailableError: CommitReaction.FIND,
    NotCoordinatorError: CommitReaction.FIND,
    RequestTimedOutError: CommitReaction.AGAIN,
    KafkaConnectionError: CommitReaction.FIND,
    KafkaTimeoutError: CommitReaction.FIND,
    UnknownTopicOrPartitionError: CommitReaction.CHECK,
    UnknownTopicIdError: CommitReaction.CHECK,
    UnstableOffsetCommitError: CommitReaction.AGAIN,
    RebalanceInProgressError: CommitReaction.WAIT,
    UnknownMemberIdError: CommitReaction.FAIL,
    IllegalGenerationError: CommitReaction.FAIL,
    StaleMemberEpochError: CommitReaction.FAIL,
    FencedInstanceIdError: CommitReaction.RAISE,
    OffsetMetadataTooLargeError: CommitReaction.RAISE,
    InvalidCommitOffsetSizeError: CommitReaction.RAISE,
    GroupAuthorizationError: CommitReaction.RAISE,
    TopicAuthorizationError: CommitReaction.RAISE,
    InvalidGroupIdError: CommitReaction.RAISE,
    RetriableError: CommitReaction.AGAIN,
    KafkaError: CommitReaction.RAISE,
}


def reaction(table: Reactions, error: KafkaError) -> Reaction:
    """The row for an error: that of its class, or of the nearest class above it."""
    return find_by_class(table, error)


def commit_reaction(error: KafkaError) -> CommitReaction:
    """The row of `COMMIT` for an error."""
    return find_by_class(COMMIT, error)
