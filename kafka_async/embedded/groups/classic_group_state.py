"""State table of the classic group protocol: the action or the error code for each event and state.

state                  meaning
--------------------   -----------------------------------------------------
Dead                   deleted
Loading                the coordinator is loading the group
Empty                  no members; may have committed offsets
PreparingRebalance     waits until all members have joined
CompletingRebalance    waits for the leader's assignment
Stable                 members can get their assignment
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClassicGroupState(enum.Enum):
    """States of a group, with their names in responses."""

    DEAD = "Dead"
    LOADING = "Loading"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class GroupEvent(enum.Enum):
    """Events of a group, after validation of a request's member and generation."""

    JOIN_NEW = "a new member joins"
    REJOIN = "a member joins again, unchanged"
    REJOIN_CHANGED = "a member joins again with other protocols or metadata"
    REJOIN_LEADER = "the leader joins again, unchanged"
    REPLACE_STATIC = "a static member joins with a new member id; the protocol stays the same"
    REPLACE_STATIC_CHANGED = "a static member joins with a new member id; the protocol changes"
    SYNC = "a follower requests its assignment"
    SYNC_FROM_LEADER = "the leader sends the assignment"
    HEARTBEAT = "a member sends a heartbeat"
    COMMIT = "a member commits offsets"
    MEMBER_REMOVED = "a member has left, or its session has expired"
    JOIN_TIMEOUT = "the rebalance timeout has passed while members join"
    SYNC_TIMEOUT = "the rebalance timeout has passed while members synchronize"
    DELETE = "the group is to be deleted"


class GroupAction(enum.Enum):
    """Actions; an error code instead of an action is the response."""

    REBALANCE = "start a rebalance; a request waits"
    WAIT = "let the request wait; end the joining phase if all members have joined"
    RETURN_GENERATION = "respond with the current generation"
    PROPAGATE_ASSIGNMENT = "respond to all pending SyncGroup requests"
    RETURN_ASSIGNMENT = "respond with the member's assignment"
    ACCEPT = "accept"
    COMPLETE_JOIN = "end the joining phase without the missing members"
    REMOVE_UNSYNCED_MEMBERS = "remove members without SyncGroup and start a rebalance"
    REMOVE = "delete the group"
    IGNORE = "ignore"


_A = GroupAction
_S = ClassicGroupState

_JOIN_ACTIONS: Final = {
    _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    _S.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _S.PREPARING_REBALANCE: _A.WAIT,
}
_SYNC_ACTIONS: Final = {
    _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    _S.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _S.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    _S.STABLE: _A.RETURN_ASSIGNMENT,
}
_IGNORED: Final = dict.fromkeys(ClassicGroupState, _A.IGNORE)

TABLE: Final[Mapping[GroupEvent, Mapping[ClassicGroupState, GroupAction | ErrorCode]]] = {
    GroupEvent.JOIN_NEW: {
        **_JOIN_ACTIONS,
        _S.EMPTY: _A.REBALANCE,
        _S.COMPLETING_REBALANCE: _A.REBALANCE,
        _S.STABLE: _A.REBALANCE,
    },
    # The response to an earlier JoinGroup may have been lost.
    GroupEvent.REJOIN: {
        **_JOIN_ACTIONS,
        _S.COMPLETING_REBALANCE: _A.RETURN_GENERATION,
        _S.STABLE: _A.RETURN_GENERATION,
    },
    GroupEvent.REJOIN_CHANGED: {
        **_JOIN_ACTIONS,
        _S.COMPLETING_REBALANCE: _A.REBALANCE,
        _S.STABLE: _A.REBALANCE,
    },
    # The leader may join again for a reason that its metadata does not show: new partitions.
    GroupEvent.REJOIN_LEADER: {
        **_JOIN_ACTIONS,
        _S.COMPLETING_REBALANCE: _A.RETURN_GENERATION,
        _S.STABLE: _A.REBALANCE,
    },
    # The leader's pending assignment is for the old member id.
    GroupEvent.REPLACE_STATIC: {
        **_JOIN_ACTIONS,
        _S.COMPLETING_REBALANCE: _A.REBALANCE,
        _S.STABLE: _A.RETURN_GENERATION,
    },
    GroupEvent.REPLACE_STATIC_CHANGED: {
        **_JOIN_ACTIONS,
        _S.COMPLETING_REBALANCE: _A.REBALANCE,
        _S.STABLE: _A.REBALANCE,
    },
    GroupEvent.SYNC: {**_SYNC_ACTIONS, _S.COMPLETING_REBALANCE: _A.WAIT},
    GroupEvent.SYNC_FROM_LEADER: {
        **_SYNC_ACTIONS,
        _S.COMPLETING_REBALANCE: _A.PROPAGATE_ASSIGNMENT,
    },
    GroupEvent.HEARTBEAT: {
        _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        _S.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        _S.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        # Members send heartbeats once they have joined, before the leader's SyncGroup.
        _S.COMPLETING_REBALANCE: _A.ACCEPT,
        _S.STABLE: _A.ACCEPT,
    },
    GroupEvent.COMMIT: {
        _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        _S.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        _S.EMPTY: _A.ACCEPT,
        # Members of the old generation commit before they join the next one.
        _S.PREPARING_REBALANCE: _A.ACCEPT,
        _S.COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        _S.STABLE: _A.ACCEPT,
    },
    GroupEvent.MEMBER_REMOVED: {
        **_IGNORED,
        _S.PREPARING_REBALANCE: _A.WAIT,
        _S.COMPLETING_REBALANCE: _A.REBALANCE,
        _S.STABLE: _A.REBALANCE,
    },
    GroupEvent.JOIN_TIMEOUT: {**_IGNORED, _S.PREPARING_REBALANCE: _A.COMPLETE_JOIN},
    GroupEvent.SYNC_TIMEOUT: {
        **_IGNORED,
        _S.COMPLETING_REBALANCE: _A.REMOVE_UNSYNCED_MEMBERS,
        _S.STABLE: _A.REMOVE_UNSYNCED_MEMBERS,
    },
    GroupEvent.DELETE: {
        _S.DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
        _S.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        _S.EMPTY: _A.REMOVE,
        _S.PREPARING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
        _S.COMPLETING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
        _S.STABLE: ErrorCode.NON_EMPTY_GROUP,
    },
}

TRANSITIONS: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE, _S.LOADING, _S.DEAD}),
    _S.PREPARING_REBALANCE: frozenset({_S.COMPLETING_REBALANCE, _S.EMPTY, _S.LOADING}),
    _S.COMPLETING_REBALANCE: frozenset({_S.STABLE, _S.PREPARING_REBALANCE, _S.LOADING}),
    _S.STABLE: frozenset({_S.PREPARING_REBALANCE, _S.LOADING}),
    _S.LOADING: frozenset({_S.EMPTY, _S.STABLE}),
    _S.DEAD: frozenset(),
}
"""The possible next states of each state."""


def action_for(event: GroupEvent, state: ClassicGroupState) -> GroupAction | ErrorCode:
    """Return the action or error code for an event."""
    return TABLE[event][state]


def error_code_for(event: GroupEvent, state: ClassicGroupState) -> ErrorCode:
    """Return the error code for an event, or NONE if the table has an action."""
    action = action_for(event, state)
    return action if isinstance(action, ErrorCode) else ErrorCode.NONE
