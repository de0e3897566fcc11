"""Tables of a group member: states, posted events, and the errors of every request."""

from __future__ import annotations

import pytest

from kafka_async import errors
from kafka_async.consumer.group.commit_errors import (
    COMMIT_ERRORS,
    CommitErrorAction,
    commit_error_action,
)
from kafka_async.errors import IllegalStateError, KafkaConnectionError, KafkaError, for_code
from kafka_async.group.member_states import (
    DENY,
    FAIL,
    FIND_COORDINATOR,
    GENERATION_LOST,
    HEARTBEAT_ERRORS,
    HEARTBEAT_STATES,
    JOIN_ERRORS,
    MEMBER_ID_LOST,
    POSTED_EVENTS,
    RAISE_AND_RETRY,
    REJECT,
    REJOIN,
    RETRY,
    SYNC_ERRORS,
    TRANSITIONS,
    Invalidation,
    MembershipErrorTable,
    MembershipEvent,
    MemberState,
    PendingEvents,
    membership_error_action,
    next_state,
)
from tests.rows import row

CODES = [code for code in range(-1, 137) if code and for_code(code).code == code]


def test_unlisted_transition_is_a_bug() -> None:
    with pytest.raises(IllegalStateError, match="'unjoined' has no transition for 'synced'"):
        next_state(MemberState.UNJOINED, MembershipEvent.SYNCED)


def test_every_state_is_reachable_and_has_exit() -> None:
    reached = {MemberState.UNJOINED}
    while more := {after for (s, _), after in TRANSITIONS.items() if s in reached} - reached:
        reached |= more
    assert reached == set(MemberState)
    assert {state for state, _ in TRANSITIONS} == set(MemberState) - {MemberState.CLOSED}


def test_only_closing_ends_the_fatal_state() -> None:
    exits = {event: after for (state, event), after in TRANSITIONS.items() if state.name == "FATAL"}
    assert exits == {MembershipEvent.CLOSE_REQUESTED: MemberState.CLOSED}


# -- events of other tasks ------------------------------------------------------------------------


def pending(*events: MembershipEvent) -> PendingEvents:
    posted = PendingEvents()
    for event in events:
        posted.post(event)
    return posted


@pytest.mark.parametrize("state", POSTED_EVENTS, ids=lambda each: each.name)
def test_posted_events_have_transitions(state: MemberState) -> None:
    assert all((state, event) in TRANSITIONS for event in POSTED_EVENTS[state])


@pytest.mark.parametrize("state", MemberState, ids=lambda each: each.name)
def test_member_that_may_wait_can_be_told_to_leave(state: MemberState) -> None:
    ends = {MembershipEvent.LEAVE_REQUESTED, MembershipEvent.CLOSE_REQUESTED}
    runs_to_its_end = {MemberState.ASSIGNING, MemberState.LEAVING, MemberState.CLOSED}
    assert ends.isdisjoint(POSTED_EVENTS.get(state, ())) is (state in runs_to_its_end)


def test_takes_most_important_event_first_and_each_once() -> None:
    posted = pending(
        MembershipEvent.REBALANCE_NEEDED,
        MembershipEvent.LEAVE_REQUESTED,
        MembershipEvent.MEMBERSHIP_LOST,
    )
    assert [posted.take(MemberState.STABLE) for _ in range(4)] == [
        MembershipEvent.MEMBERSHIP_LOST,
        MembershipEvent.LEAVE_REQUESTED,
        MembershipEvent.REBALANCE_NEEDED,
        None,
    ]


def test_event_stays_pending_until_a_state_that_it_ends() -> None:
    posted = pending(MembershipEvent.REBALANCE_NEEDED)
    assert posted.take(MemberState.SYNCING) is None
    assert posted.take(MemberState.STABLE) is MembershipEvent.REBALANCE_NEEDED


@pytest.mark.parametrize(
    ("events", "state", "taken"),
    [
        ("JOIN_REQUESTED LEAVE_REQUESTED", MemberState.UNJOINED, None),
        ("LEAVE_REQUESTED JOIN_REQUESTED", MemberState.STABLE, None),
        ("LEAVE_REQUESTED JOIN_REQUESTED", MemberState.UNJOINED, "JOIN_REQUESTED"),
        ("CLOSE_REQUESTED JOIN_REQUESTED", MemberState.UNJOINED, "CLOSE_REQUESTED"),
        ("REJECTED MEMBERSHIP_LOST", MemberState.STABLE, "REJECTED"),
    ],
)
def test_later_event_replaces_or_yields(events: str, state: MemberState, taken: str | None) -> None:
    posted = pending(*(MembershipEvent[name] for name in events.split()))
    found = posted.take(state)
    assert (found and found.name) == taken


def test_only_requests_outlive_the_membership() -> None:
    posted = pending(*MembershipEvent)
    posted.end_membership()
    assert [event.name for event in MembershipEvent if event in posted] == [
        "LEAVE_REQUESTED",
        "CLOSE_REQUESTED",
    ]


def test_no_heartbeats_while_join_or_sync_is_in_flight() -> None:
    assert MemberState.JOINING not in HEARTBEAT_STATES
    assert MemberState.SYNCING not in HEARTBEAT_STATES


@pytest.mark.parametrize(
    "table", [JOIN_ERRORS, SYNC_ERRORS, HEARTBEAT_ERRORS], ids=["join", "sync", "heartbeat"]
)
def test_error_that_ends_the_membership_says_what_is_invalid(table: MembershipErrorTable) -> None:
    for code in CODES:
        row = membership_error_action(table, errors.error_for(code))
        lost = row.event is MembershipEvent.MEMBERSHIP_LOST
        assert (row.invalidates is not Invalidation.NONE) == lost, for_code(code)


@pytest.mark.parametrize(
    ("state", "event"),
    sorted(
        {
            (state, row.event)
            for state, table in [
                (MemberState.JOINING, JOIN_ERRORS),
                (MemberState.SYNCING, SYNC_ERRORS),
                (MemberState.STABLE, HEARTBEAT_ERRORS),
            ]
            for row in table.values()
            if row.event is not None
        },
        key=str,
    ),
    ids=lambda each: each.name,
)
def test_event_of_an_error_has_a_transition(state: MemberState, event: MembershipEvent) -> None:
    assert (state, event) in TRANSITIONS


def test_membership_error_actions() -> None:
    for table, error, action in [
        (JOIN_ERRORS, errors.MemberIdRequiredError(), RETRY),
        (JOIN_ERRORS, errors.NotCoordinatorError(), FIND_COORDINATOR),
        (JOIN_ERRORS, errors.CoordinatorLoadInProgressError(), RETRY),
        (JOIN_ERRORS, KafkaConnectionError("lost"), FIND_COORDINATOR),
        (JOIN_ERRORS, errors.UnknownMemberIdError(), MEMBER_ID_LOST),
        (JOIN_ERRORS, errors.FencedInstanceIdError(), REJECT),
        (JOIN_ERRORS, errors.InvalidSessionTimeoutError(), REJECT),
        (JOIN_ERRORS, errors.GroupMaxSizeReachedError(), FAIL),
        (JOIN_ERRORS, errors.GroupAuthorizationError(), DENY),
        (JOIN_ERRORS, errors.SaslAuthenticationError("wrong"), DENY),
        (JOIN_ERRORS, errors.InconsistentGroupProtocolError(), FAIL),
        (SYNC_ERRORS, errors.RebalanceInProgressError(), REJOIN),
        (SYNC_ERRORS, errors.NotCoordinatorError(), REJOIN._replace(find_coordinator=True)),
        (SYNC_ERRORS, errors.IllegalGenerationError(), GENERATION_LOST),
        (HEARTBEAT_ERRORS, errors.RebalanceInProgressError(), REJOIN),
        (HEARTBEAT_ERRORS, errors.IllegalGenerationError(), GENERATION_LOST),
        (HEARTBEAT_ERRORS, errors.UnknownMemberIdError(), MEMBER_ID_LOST),
        (HEARTBEAT_ERRORS, errors.NotCoordinatorError(), FIND_COORDINATOR),
        (HEARTBEAT_ERRORS, errors.KafkaTimeoutError("late"), RETRY),
        (HEARTBEAT_ERRORS, errors.GroupAuthorizationError(), RAISE_AND_RETRY),
        (HEARTBEAT_ERRORS, errors.SslAuthenticationError("expired"), RAISE_AND_RETRY),
        (SYNC_ERRORS, errors.GroupAuthorizationError(), DENY),
    ]:
        with row(table, error, action):
            assert membership_error_action(table, error) == action


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
