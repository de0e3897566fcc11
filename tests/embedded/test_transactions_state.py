"""The transaction coordinator's table, cell by cell."""

from __future__ import annotations

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.embedded.transactions.state import TABLE, Event
from kafka_async.embedded.transactions.state import TransactionState as State

E, ON, PC, PA, CC, CA, D, F = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
    State.DEAD,
    State.PREPARE_EPOCH_FENCE,
)
STATES = (E, ON, PC, PA, CC, CA, F, D)
done = Code.NONE
busy = Code.CONCURRENT_TRANSACTIONS
bad = Code.INVALID_TXN_STATE
out = Code.PRODUCER_FENCED
gone = Code.INVALID_PRODUCER_ID_MAPPING

EXPECTED: dict[Event, tuple[State | Code, ...]] = {
    #                    E     ON    PC    PA    CC    CA    F     D
    Event.INIT:         (E,    F,    busy, busy, E,    E,    busy, gone),
    Event.ADD:          (ON,   ON,   busy, busy, ON,   ON,   busy, gone),
    Event.COMMIT_V1:    (bad,  PC,   busy, bad,  done, bad,  bad,  gone),
    Event.ABORT_V1:     (bad,  PA,   bad,  busy, bad,  done, bad,  gone),
    Event.COMMIT:       (bad,  PC,   out,  out,  bad,  bad,  bad,  gone),
    Event.ABORT:        (PA,   PA,   out,  out,  PA,   PA,   bad,  gone),
    Event.COMMIT_AGAIN: (out,  out,  busy, bad,  done, bad,  out,  gone),
    Event.ABORT_AGAIN:  (out,  out,  bad,  busy, bad,  done, out,  gone),
    Event.FENCE:        (bad,  F,    bad,  bad,  bad,  bad,  bad,  gone),
    Event.FENCED:       (bad,  bad,  bad,  bad,  bad,  bad,  PA,   gone),
    Event.MARKED:       (bad,  bad,  CC,   CA,   bad,  bad,  bad,  gone),
    Event.EXPIRE:       (D,    bad,  bad,  bad,  D,    D,    bad,  gone),
}  # fmt: skip


@pytest.mark.parametrize(
    ("event", "state", "expected"),
    [
        (event, state, cell)
        for event, row in EXPECTED.items()
        for state, cell in zip(STATES, row, strict=True)
    ],
)
def test_every_cell(event: Event, state: State, expected: State | Code) -> None:
    assert TABLE[event][state] is expected


def test_the_table_is_whole() -> None:
    assert set(EXPECTED) == set(TABLE) == set(Event)
    assert set(STATES) == set(State)


def test_states_have_the_names_of_the_wire() -> None:
    assert {state.value for state in State} == {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
