"""The classic group protocol's table, cell by cell."""

from __future__ import annotations

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.embedded.groups.state import TABLE, TRANSITIONS, Event, GroupState, Reaction

EXPECTED = """
                DOWN        INITIALIZE  EMPTY       JOINING     AWAIT_SYNC  STABLE
JOIN_NEW        unavailable loading     REBALANCE   PARK        REBALANCE   REBALANCE
JOIN_SAME       unavailable loading     unknown     PARK        GENERATION  GENERATION
JOIN_CHANGED    unavailable loading     unknown     PARK        REBALANCE   REBALANCE
JOIN_LEADER     unavailable loading     unknown     PARK        GENERATION  REBALANCE
STATIC_RETURNS  unavailable loading     unknown     PARK        REBALANCE   GENERATION
STATIC_CHANGES  unavailable loading     unknown     PARK        REBALANCE   REBALANCE
SYNC            unavailable loading     unknown     rebalancing PARK        ASSIGNMENT
SYNC_LEADER     unavailable loading     unknown     rebalancing DISTRIBUTE  ASSIGNMENT
HEARTBEAT       unavailable loading     unknown     rebalancing ACCEPT      ACCEPT
COMMIT          unavailable loading     ACCEPT      ACCEPT      rebalancing ACCEPT
MEMBER_GONE     IGNORE      IGNORE      IGNORE      PARK        REBALANCE   REBALANCE
JOIN_DUE        IGNORE      IGNORE      IGNORE      NEXT_GENERATION IGNORE  IGNORE
SYNC_DUE        IGNORE      IGNORE      IGNORE      IGNORE      DROP_SILENT DROP_SILENT
DELETE          missing     loading     REMOVE      not-empty   not-empty   not-empty
"""

CODES = {
    "unavailable": Code.COORDINATOR_NOT_AVAILABLE,
    "loading": Code.COORDINATOR_LOAD_IN_PROGRESS,
    "unknown": Code.UNKNOWN_MEMBER_ID,
    "rebalancing": Code.REBALANCE_IN_PROGRESS,
    "missing": Code.GROUP_ID_NOT_FOUND,
    "not-empty": Code.NON_EMPTY_GROUP,
}


def cells() -> list[tuple[Event, GroupState, Reaction | Code]]:
    header, *rows = [line.split() for line in EXPECTED.strip().splitlines()]
    return [
        (Event[name], GroupState[state], CODES[word] if word in CODES else Reaction[word])
        for name, *words in rows
        for state, word in zip(header, words, strict=True)
    ]


@pytest.mark.parametrize(("event", "state", "expected"), cells())
def test_every_cell(event: Event, state: GroupState, expected: Reaction | Code) -> None:
    assert TABLE[event][state] is expected


def test_the_table_is_whole() -> None:
    assert {(event, state) for event, state, _ in cells()} == {
        (event, state) for event in Event for state in GroupState
    }
    assert set(TABLE) == set(Event)


def test_states_have_the_names_of_the_design_and_of_the_wire() -> None:
    assert {state.name: state.value for state in GroupState} == {
        "DOWN": ("Down", "Dead"),
        "INITIALIZE": ("Initialize", ""),
        "EMPTY": ("Stable (no members)", "Empty"),
        "JOINING": ("Joining", "PreparingRebalance"),
        "AWAIT_SYNC": ("AwaitSync", "CompletingRebalance"),
        "STABLE": ("Stable", "Stable"),
    }


def test_only_a_group_without_members_may_end_and_then_stays_so() -> None:
    ends = [state for state, following in TRANSITIONS.items() if GroupState.DOWN in following]
    assert ends == [GroupState.EMPTY]
    assert TRANSITIONS[GroupState.DOWN] == frozenset()
