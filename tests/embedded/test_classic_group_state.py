"""The state table of the classic group protocol."""

from __future__ import annotations

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.classic_group_state import (
    TABLE,
    TRANSITIONS,
    ClassicGroupState,
    GroupAction,
    GroupEvent,
)

STATES = (
    ClassicGroupState.DEAD,
    ClassicGroupState.LOADING,
    ClassicGroupState.EMPTY,
    ClassicGroupState.PREPARING_REBALANCE,
    ClassicGroupState.COMPLETING_REBALANCE,
    ClassicGroupState.STABLE,
)
EXPECTED = """
                       DEAD        LOADING EMPTY     PREPARING   COMPLETING  STABLE
JOIN_NEW               unavailable loading rebalance wait        rebalance   rebalance
REJOIN                 unavailable loading unknown   wait        generation  generation
REJOIN_CHANGED         unavailable loading unknown   wait        rebalance   rebalance
REJOIN_LEADER          unavailable loading unknown   wait        generation  rebalance
REPLACE_STATIC         unavailable loading unknown   wait        rebalance   generation
REPLACE_STATIC_CHANGED unavailable loading unknown   wait        rebalance   rebalance
SYNC                   unavailable loading unknown   rebalancing wait        assignment
SYNC_FROM_LEADER       unavailable loading unknown   rebalancing propagate   assignment
HEARTBEAT              unavailable loading unknown   rebalancing accept      accept
COMMIT                 unavailable loading accept    accept      rebalancing accept
MEMBER_REMOVED         ignore      ignore  ignore    wait        rebalance   rebalance
JOIN_TIMEOUT           ignore      ignore  ignore    complete    ignore      ignore
SYNC_TIMEOUT           ignore      ignore  ignore    ignore      unsynced    unsynced
DELETE                 missing     loading remove    not-empty   not-empty   not-empty
"""

ENTRIES: dict[str, GroupAction | ErrorCode] = {
    "rebalance": GroupAction.REBALANCE,
    "wait": GroupAction.WAIT,
    "generation": GroupAction.RETURN_GENERATION,
    "assignment": GroupAction.RETURN_ASSIGNMENT,
    "propagate": GroupAction.PROPAGATE_ASSIGNMENT,
    "complete": GroupAction.COMPLETE_JOIN,
    "unsynced": GroupAction.REMOVE_UNSYNCED_MEMBERS,
    "accept": GroupAction.ACCEPT,
    "remove": GroupAction.REMOVE,
    "ignore": GroupAction.IGNORE,
    "unavailable": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "loading": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "unknown": ErrorCode.UNKNOWN_MEMBER_ID,
    "rebalancing": ErrorCode.REBALANCE_IN_PROGRESS,
    "missing": ErrorCode.GROUP_ID_NOT_FOUND,
    "not-empty": ErrorCode.NON_EMPTY_GROUP,
}


def cells() -> list[tuple[GroupEvent, ClassicGroupState, GroupAction | ErrorCode]]:
    _, *rows = [line.split() for line in EXPECTED.strip("\n").splitlines()]
    return [
        (GroupEvent[name], state, ENTRIES[word])
        for name, *words in rows
        for state, word in zip(STATES, words, strict=True)
    ]


@pytest.mark.parametrize(("event", "state", "expected"), cells())
def test_table_has_expected_entry(
    event: GroupEvent, state: ClassicGroupState, expected: GroupAction | ErrorCode
) -> None:
    assert TABLE[event][state] is expected


def test_table_is_complete() -> None:
    assert {(event, state) for event, state, _ in cells()} == {
        (event, state) for event in GroupEvent for state in ClassicGroupState
    }
    assert set(TABLE) == set(GroupEvent)


def test_states_have_protocol_names() -> None:
    assert {state.value for state in ClassicGroupState} == {
        "Dead",
        "Loading",
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
    }


def test_only_empty_group_becomes_dead() -> None:
    before_dead = [
        state for state, following in TRANSITIONS.items() if ClassicGroupState.DEAD in following
    ]
    assert before_dead == [ClassicGroupState.EMPTY]
    assert TRANSITIONS[ClassicGroupState.DEAD] == frozenset()
