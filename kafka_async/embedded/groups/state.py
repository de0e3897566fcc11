"""The classic group protocol as a table: which event, in which state, has which answer.

The states are those of Kafka's group membership design; the wire has other names for some of them:

    design       wire                  what it is
    ----------   -------------------   ------------------------------------------------------------
    Down         Dead                  deleted; nothing may be done with it
    Initialize   (none)                its coordinator is still loading it; ask again
    Stable       Empty                 no members; may hold committed offsets
    Joining      PreparingRebalance    waits for the JoinGroup of every known member
    AwaitSync    CompletingRebalance   a new generation waits for its leader's assignment
    Stable       Stable                every member may have its assignment
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code

if TYPE_CHECKING:
    from collections.abc import Mapping


class GroupState(enum.Enum):
    """A state of a group; the value is the design's name and the wire's."""

    DOWN = ("Down", "Dead")
    INITIALIZE = ("Initialize", "")
    EMPTY = ("Stable (no members)", "Empty")
    JOINING = ("Joining", "PreparingRebalance")
    AWAIT_SYNC = ("AwaitSync", "CompletingRebalance")
    STABLE = ("Stable", "Stable")

    @property
    def wire(self) -> str:
        """The name in DescribeGroups and ListGroups."""
        return self.value[1]


class Event(enum.Enum):
    """What can happen to a group. Requests are here only once member and generation are right."""

    JOIN_NEW = "a member joins that the group did not have"
    JOIN_SAME = "a member joins again, as it was"
    JOIN_CHANGED = "a member joins again with other protocols or metadata"
    JOIN_LEADER = "the leader joins again, as it was"
    STATIC_RETURNS = "a static member is back under a new member id, the protocol stays"
    STATIC_CHANGES = "a static member is back under a new member id, the protocol does not stay"
    SYNC = "a follower asks for its assignment"
    SYNC_LEADER = "the leader brings the assignment"
    HEARTBEAT = "a member says that it is alive"
    COMMIT = "a member commits offsets"
    MEMBER_GONE = "a member left or its session has expired"
    JOIN_DUE = "the time to join again is over"
    SYNC_DUE = "the time to ask for the assignment is over"
    DELETE = "somebody wants the group gone"


class Reaction(enum.Enum):
    """What the group does about an event; an error code in its place is the answer."""

    REBALANCE = "start a rebalance, park the request if there is one"
    PARK = "let the request wait; go on if everybody is here now"
    GENERATION = "answer with the current generation"
    DISTRIBUTE = "hand out the assignment to everybody who waits for it"
    ASSIGNMENT = "answer with the member's assignment"
    ACCEPT = "take it"
    NEXT_GENERATION = "go on without those who did not come"
    DROP_SILENT = "remove those who did not ask, and start a rebalance"
    REMOVE = "the group is no more"
    IGNORE = "nothing"


_R = Reaction
_S = GroupState

_JOINING_ANSWERS: Final = {
    _S.DOWN: Code.COORDINATOR_NOT_AVAILABLE,
    _S.INITIALIZE: Code.COORDINATOR_LOAD_IN_PROGRESS,
    _S.EMPTY: Code.UNKNOWN_MEMBER_ID,
    _S.JOINING: _R.PARK,
}
_SYNC_ANSWERS: Final = {
    _S.DOWN: Code.COORDINATOR_NOT_AVAILABLE,
    _S.INITIALIZE: Code.COORDINATOR_LOAD_IN_PROGRESS,
    _S.EMPTY: Code.UNKNOWN_MEMBER_ID,
    _S.JOINING: Code.REBALANCE_IN_PROGRESS,
    _S.STABLE: _R.ASSIGNMENT,
}
_SILENT: Final = dict.fromkeys(GroupState, _R.IGNORE)

TABLE: Final[Mapping[Event, Mapping[GroupState, Reaction | Code]]] = {
    Event.JOIN_NEW: {
        **_JOINING_ANSWERS,
        _S.EMPTY: _R.REBALANCE,
        _S.AWAIT_SYNC: _R.REBALANCE,
        _S.STABLE: _R.REBALANCE,
    },
    # It may be that the answer to its first JoinGroup was lost.
    Event.JOIN_SAME: {**_JOINING_ANSWERS, _S.AWAIT_SYNC: _R.GENERATION, _S.STABLE: _R.GENERATION},
    Event.JOIN_CHANGED: {**_JOINING_ANSWERS, _S.AWAIT_SYNC: _R.REBALANCE, _S.STABLE: _R.REBALANCE},
    # The leader may know something that its metadata does not show, such as new partitions.
    Event.JOIN_LEADER: {**_JOINING_ANSWERS, _S.AWAIT_SYNC: _R.GENERATION, _S.STABLE: _R.REBALANCE},
    # While the leader computes, it would assign to the old member id.
    Event.STATIC_RETURNS: {
        **_JOINING_ANSWERS,
        _S.AWAIT_SYNC: _R.REBALANCE,
        _S.STABLE: _R.GENERATION,
    },
    Event.STATIC_CHANGES: {
        **_JOINING_ANSWERS,
        _S.AWAIT_SYNC: _R.REBALANCE,
        _S.STABLE: _R.REBALANCE,
    },
    Event.SYNC: {**_SYNC_ANSWERS, _S.AWAIT_SYNC: _R.PARK},
    Event.SYNC_LEADER: {**_SYNC_ANSWERS, _S.AWAIT_SYNC: _R.DISTRIBUTE},
    Event.HEARTBEAT: {
        _S.DOWN: Code.COORDINATOR_NOT_AVAILABLE,
        _S.INITIALIZE: Code.COORDINATOR_LOAD_IN_PROGRESS,
        _S.EMPTY: Code.UNKNOWN_MEMBER_ID,
        _S.JOINING: Code.REBALANCE_IN_PROGRESS,
        # Members heartbeat as soon as they have joined, before the leader has synchronized.
        _S.AWAIT_SYNC: _R.ACCEPT,
        _S.STABLE: _R.ACCEPT,
    },
    Event.COMMIT: {
        _S.DOWN: Code.COORDINATOR_NOT_AVAILABLE,
        _S.INITIALIZE: Code.COORDINATOR_LOAD_IN_PROGRESS,
        _S.EMPTY: _R.ACCEPT,
        # The old generation still owns its partitions: this is when it commits for the last time.
        _S.JOINING: _R.ACCEPT,
        _S.AWAIT_SYNC: Code.REBALANCE_IN_PROGRESS,
        _S.STABLE: _R.ACCEPT,
    },
    Event.MEMBER_GONE: {
        **_SILENT,
        _S.JOINING: _R.PARK,
        _S.AWAIT_SYNC: _R.REBALANCE,
        _S.STABLE: _R.REBALANCE,
    },
    Event.JOIN_DUE: {**_SILENT, _S.JOINING: _R.NEXT_GENERATION},
    Event.SYNC_DUE: {**_SILENT, _S.AWAIT_SYNC: _R.DROP_SILENT, _S.STABLE: _R.DROP_SILENT},
    Event.DELETE: {
        _S.DOWN: Code.GROUP_ID_NOT_FOUND,
        _S.INITIALIZE: Code.COORDINATOR_LOAD_IN_PROGRESS,
        _S.EMPTY: _R.REMOVE,
        _S.JOINING: Code.NON_EMPTY_GROUP,
        _S.AWAIT_SYNC: Code.NON_EMPTY_GROUP,
        _S.STABLE: Code.NON_EMPTY_GROUP,
    },
}

TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    _S.EMPTY: frozenset({_S.JOINING, _S.INITIALIZE, _S.DOWN}),
    _S.JOINING: frozenset({_S.AWAIT_SYNC, _S.EMPTY, _S.INITIALIZE}),
    _S.AWAIT_SYNC: frozenset({_S.STABLE, _S.JOINING, _S.INITIALIZE}),
    _S.STABLE: frozenset({_S.JOINING, _S.INITIALIZE}),
    _S.INITIALIZE: frozenset({_S.EMPTY, _S.STABLE}),
    _S.DOWN: frozenset(),
}
"""Where a group may go from each state."""


def reaction(event: Event, state: GroupState) -> Reaction | Code:
    """What the table says."""
    return TABLE[event][state]


def refusal(event: Event, state: GroupState) -> Code:
    """Return the error code that the table has for an event; NONE if it has a reaction."""
    what = reaction(event, state)
    return what if isinstance(what, Code) else Code.NONE
