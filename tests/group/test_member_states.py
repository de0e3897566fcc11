"""Tables of a group member: every state and event, every error of every request."""

from __future__ import annotations

import itertools

import pytest

from kafka_async import errors
from kafka_async.errors import IllegalStateError, KafkaConnectionError, KafkaError, for_code
from kafka_async.group.member_states import (
    COMMIT_ERRORS,
    HEARTBEAT_ERRORS,
    HEARTBEAT_STATES,
    JOIN_ERRORS,
    SYNC_ERRORS,
    TRANSITIONS,
    CommitErrorAction,
    Invalidation,
    MembershipErrorTable,
    MembershipEvent,
    MemberState,
    commit_error_action,
    membership_error_action,
    next_state,
)

CODES = [code for code in range(-1, 137) if code and for_code(code).code == code]


@pytest.mark.parametrize(
    ("state", "event"),
    list(itertools.product(MemberState, MembershipEvent)),
    ids=lambda each: each.name,
)
def test_transitions_follow_table(state: MemberState, event: MembershipEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalStateError, match=state.value):
            next_state(state, event)


def test_every_state_is_reachable_and_has_exit() -> None:
    reached = {MemberState.UNJOINED}
    while more := {after for (s, _), after in TRANSITIONS.items() if s in reached} - reached:
        reached |= more
    assert reached == set(MemberState)
    assert {state for state, _ in TRANSITIONS} == set(MemberState) - {MemberState.CLOSED}


@pytest.mark.parametrize(
    "state",
    [
        s
        for s in MemberState
        if s not in (MemberState.UNJOINED, MemberState.LEAVING, MemberState.CLOSED)
    ],
)
def test_member_can_leave_from_every_state(state: MemberState) -> None:
    assert next_state(state, MembershipEvent.LEAVE_REQUESTED) is MemberState.LEAVING


def test_full_life_cycle() -> None:
    state = MemberState.UNJOINED
    for event in (
        *(
            MembershipEvent.JOIN_REQUESTED,
            MembershipEvent.PREPARED,
            MembershipEvent.JOINED,
            MembershipEvent.SYNCED,
            MembershipEvent.ASSIGNED,
        ),
        *(
            MembershipEvent.REBALANCE_NEEDED,
            MembershipEvent.PREPARED,
            MembershipEvent.MEMBERSHIP_LOST,
            MembershipEvent.PARTITIONS_DROPPED,
        ),
        *(
            MembershipEvent.PREPARED,
            MembershipEvent.JOINED,
            MembershipEvent.REBALANCE_NEEDED,
            MembershipEvent.LEAVE_REQUESTED,
            MembershipEvent.LEFT,
            MembershipEvent.CLOSE_REQUESTED,
        ),
    ):
        state = next_state(state, event)
    assert state is MemberState.CLOSED


def test_no_heartbeats_while_join_or_sync_is_in_flight() -> None:
    assert MemberState.JOINING not in HEARTBEAT_STATES
    assert MemberState.SYNCING not in HEARTBEAT_STATES


@pytest.mark.parametrize(
    "table", [JOIN_ERRORS, SYNC_ERRORS, HEARTBEAT_ERRORS], ids=["join", "sync", "heartbeat"]
)
@pytest.mark.parametrize("code", CODES, ids=lambda code: for_code(code).__name__)
def test_every_error_code_has_an_action(table: MembershipErrorTable, code: int) -> None:
    row = membership_error_action(table, errors.error_for(code))
    assert row.event in (
        None,
        MembershipEvent.REBALANCE_NEEDED,
        MembershipEvent.MEMBERSHIP_LOST,
        MembershipEvent.FAILED,
    )
    assert (row.invalidates is not Invalidation.NONE) == (
        row.event is MembershipEvent.MEMBERSHIP_LOST
    )


@pytest.mark.parametrize("code", CODES, ids=lambda code: for_code(code).__name__)
def test_every_error_code_has_a_commit_action(code: int) -> None:
    assert isinstance(commit_error_action(errors.error_for(code)), CommitErrorAction)


@pytest.mark.parametrize(
    ("table", "error", "event", "find_coordinator", "invalidates"),
    [
        (JOIN_ERRORS, errors.MemberIdRequiredError(), None, False, Invalidation.NONE),
        (JOIN_ERRORS, errors.NotCoordinatorError(), None, True, Invalidation.NONE),
        (JOIN_ERRORS, errors.CoordinatorLoadInProgressError(), None, False, Invalidation.NONE),
        (JOIN_ERRORS, KafkaConnectionError("lost"), None, True, Invalidation.NONE),
        (
            JOIN_ERRORS,
            errors.UnknownMemberIdError(),
            MembershipEvent.MEMBERSHIP_LOST,
            False,
            Invalidation.MEMBER_ID,
        ),
        (
            JOIN_ERRORS,
            errors.FencedInstanceIdError(),
            MembershipEvent.FAILED,
            False,
            Invalidation.NONE,
        ),
        (
            JOIN_ERRORS,
            errors.GroupMaxSizeReachedError(),
            MembershipEvent.FAILED,
            False,
            Invalidation.NONE,
        ),
        (
            JOIN_ERRORS,
            errors.InconsistentGroupProtocolError(),
            MembershipEvent.FAILED,
            False,
            Invalidation.NONE,
        ),
        (
            SYNC_ERRORS,
            errors.RebalanceInProgressError(),
            MembershipEvent.REBALANCE_NEEDED,
            False,
            Invalidation.NONE,
        ),
        (
            SYNC_ERRORS,
            errors.NotCoordinatorError(),
            MembershipEvent.REBALANCE_NEEDED,
            True,
            Invalidation.NONE,
        ),
        (
            SYNC_ERRORS,
            errors.IllegalGenerationError(),
            MembershipEvent.MEMBERSHIP_LOST,
            False,
            Invalidation.GENERATION,
        ),
        (
            HEARTBEAT_ERRORS,
            errors.RebalanceInProgressError(),
            MembershipEvent.REBALANCE_NEEDED,
            False,
            Invalidation.NONE,
        ),
        (
            HEARTBEAT_ERRORS,
            errors.IllegalGenerationError(),
            MembershipEvent.MEMBERSHIP_LOST,
            False,
            Invalidation.GENERATION,
        ),
        (
            HEARTBEAT_ERRORS,
            errors.UnknownMemberIdError(),
            MembershipEvent.MEMBERSHIP_LOST,
            False,
            Invalidation.MEMBER_ID,
        ),
        (HEARTBEAT_ERRORS, errors.NotCoordinatorError(), None, True, Invalidation.NONE),
        (HEARTBEAT_ERRORS, errors.KafkaTimeoutError("late"), None, False, Invalidation.NONE),
    ],
)
def test_membership_error_actions(
    table: MembershipErrorTable,
    error: KafkaError,
    event: MembershipEvent | None,
    find_coordinator: bool,
    invalidates: Invalidation,
) -> None:
    assert membership_error_action(table, error) == (event, find_coordinator, invalidates)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.RebalanceInProgressError(), CommitErrorAction.WAIT_FOR_REBALANCE),
        (errors.UnknownMemberIdError(), CommitErrorAction.RAISE_COMMIT_FAILED),
        (errors.IllegalGenerationError(), CommitErrorAction.RAISE_COMMIT_FAILED),
        (errors.NotCoordinatorError(), CommitErrorAction.FIND_COORDINATOR),
        (errors.UnknownTopicOrPartitionError(), CommitErrorAction.CHECK_TOPIC),
        (errors.UnstableOffsetCommitError(), CommitErrorAction.RETRY),
        (errors.OffsetMetadataTooLargeError(), CommitErrorAction.RAISE),
        (errors.TopicAuthorizationError(), CommitErrorAction.RAISE),
        (errors.FencedInstanceIdError(), CommitErrorAction.RAISE),
    ],
)
def test_commit_error_actions(error: KafkaError, expected: CommitErrorAction) -> None:
    assert commit_error_action(error) is expected
    assert type(error) in COMMIT_ERRORS
