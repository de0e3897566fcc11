"""The tables of a group member: every state and event, every error of every request."""

from __future__ import annotations

import itertools

import pytest

from kafka_async import errors
from kafka_async.errors import IllegalStateError, KafkaConnectionError, KafkaError, for_code
from kafka_async.group.state import (
    BEATING,
    COMMIT,
    HEARTBEAT,
    JOIN,
    SYNC,
    TRANSITIONS,
    CommitReaction,
    Event,
    Reactions,
    State,
    Void,
    commit_reaction,
    follow,
    reaction,
)

CODES = [code for code in range(-1, 137) if code and for_code(code).code == code]


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(State, Event)), ids=lambda each: each.name
)
def test_a_pair_leads_where_the_table_says_or_nowhere(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert follow(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalStateError, match=state.value):
            follow(state, event)


def test_every_state_can_be_reached_and_left() -> None:
    reached = {State.OUT}
    while more := {after for (s, _), after in TRANSITIONS.items() if s in reached} - reached:
        reached |= more
    assert reached == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.CLOSED}


@pytest.mark.parametrize(
    "state", [s for s in State if s not in (State.OUT, State.LEAVING, State.CLOSED)]
)
def test_whatever_a_member_does_it_can_be_told_to_leave(state: State) -> None:
    assert follow(state, Event.UNWANTED) is State.LEAVING


def test_a_full_life() -> None:
    state = State.OUT
    for event in (
        *(Event.WANTED, Event.PREPARED, Event.JOINED, Event.SYNCED, Event.TAKEN),
        *(Event.DISTURBED, Event.PREPARED, Event.FORGOTTEN, Event.GIVEN_UP),
        *(Event.PREPARED, Event.JOINED, Event.DISTURBED, Event.UNWANTED, Event.LEFT, Event.STOPPED),
    ):
        state = follow(state, event)
    assert state is State.CLOSED


def test_no_heartbeat_is_sent_behind_a_request_that_parks() -> None:
    assert State.JOINING not in BEATING
    assert State.SYNCING not in BEATING


@pytest.mark.parametrize("table", [JOIN, SYNC, HEARTBEAT], ids=["join", "sync", "heartbeat"])
@pytest.mark.parametrize("code", CODES, ids=lambda code: for_code(code).__name__)
def test_every_code_has_a_reaction(table: Reactions, code: int) -> None:
    row = reaction(table, errors.error_for(code))
    assert row.event in (None, Event.DISTURBED, Event.FORGOTTEN, Event.DENIED)
    assert (row.void is not Void.NOTHING) == (row.event is Event.FORGOTTEN)


@pytest.mark.parametrize("code", CODES, ids=lambda code: for_code(code).__name__)
def test_every_code_of_a_commit_has_a_reaction(code: int) -> None:
    assert isinstance(commit_reaction(errors.error_for(code)), CommitReaction)


@pytest.mark.parametrize(
    ("table", "error", "event", "find", "void"),
    [
        (JOIN, errors.MemberIdRequiredError(), None, False, Void.NOTHING),
        (JOIN, errors.NotCoordinatorError(), None, True, Void.NOTHING),
        (JOIN, errors.CoordinatorLoadInProgressError(), None, False, Void.NOTHING),
        (JOIN, KafkaConnectionError("lost"), None, True, Void.NOTHING),
        (JOIN, errors.UnknownMemberIdError(), Event.FORGOTTEN, False, Void.MEMBER),
        (JOIN, errors.FencedInstanceIdError(), Event.DENIED, False, Void.NOTHING),
        (JOIN, errors.GroupMaxSizeReachedError(), Event.DENIED, False, Void.NOTHING),
        (JOIN, errors.InconsistentGroupProtocolError(), Event.DENIED, False, Void.NOTHING),
        (SYNC, errors.RebalanceInProgressError(), Event.DISTURBED, False, Void.NOTHING),
        (SYNC, errors.NotCoordinatorError(), Event.DISTURBED, True, Void.NOTHING),
        (SYNC, errors.IllegalGenerationError(), Event.FORGOTTEN, False, Void.GENERATION),
        (HEARTBEAT, errors.RebalanceInProgressError(), Event.DISTURBED, False, Void.NOTHING),
        (HEARTBEAT, errors.IllegalGenerationError(), Event.FORGOTTEN, False, Void.GENERATION),
        (HEARTBEAT, errors.UnknownMemberIdError(), Event.FORGOTTEN, False, Void.MEMBER),
        (HEARTBEAT, errors.NotCoordinatorError(), None, True, Void.NOTHING),
        (HEARTBEAT, errors.KafkaTimeoutError("late"), None, False, Void.NOTHING),
    ],
)
def test_reactions(
    table: Reactions, error: KafkaError, event: Event | None, find: bool, void: Void
) -> None:
    assert reaction(table, error) == (event, find, void)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.RebalanceInProgressError(), CommitReaction.WAIT),
        (errors.UnknownMemberIdError(), CommitReaction.FAIL),
        (errors.IllegalGenerationError(), CommitReaction.FAIL),
        (errors.NotCoordinatorError(), CommitReaction.FIND),
        (errors.UnknownTopicOrPartitionError(), CommitReaction.CHECK),
        (errors.UnstableOffsetCommitError(), CommitReaction.AGAIN),
        (errors.OffsetMetadataTooLargeError(), CommitReaction.RAISE),
        (errors.TopicAuthorizationError(), CommitReaction.RAISE),
        (errors.FencedInstanceIdError(), CommitReaction.RAISE),
    ],
)
def test_commit_reactions(error: KafkaError, expected: CommitReaction) -> None:
    assert commit_reaction(error) is expected
    assert type(error) in COMMIT
