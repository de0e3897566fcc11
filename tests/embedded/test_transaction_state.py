"""The state table of the transaction coordinator."""

from __future__ import annotations

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.transactions.transaction_state import TABLE, TransactionEvent
from kafka_async.embedded.transactions.transaction_state import TransactionState as State

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
done = ErrorCode.NONE
busy = ErrorCode.CONCURRENT_TRANSACTIONS
bad = ErrorCode.INVALID_TXN_STATE
out = ErrorCode.PRODUCER_FENCED
gone = ErrorCode.INVALID_PRODUCER_ID_MAPPING

EXPECTED: dict[TransactionEvent, tuple[State | ErrorCode, ...]] = {
    #                                  E     ON    PC    PA    CC    CA    F     D
    TransactionEvent.INIT:            (E,    F,    busy, busy, E,    E,    busy, gone),
    TransactionEvent.ADD:             (ON,   ON,   busy, busy, ON,   ON,   busy, gone),
    TransactionEvent.COMMIT_V1:       (bad,  PC,   busy, bad,  done, bad,  bad,  gone),
    TransactionEvent.ABORT_V1:        (bad,  PA,   bad,  busy, bad,  done, bad,  gone),
    TransactionEvent.COMMIT:          (bad,  PC,   out,  out,  bad,  bad,  bad,  gone),
    TransactionEvent.ABORT:           (PA,   PA,   out,  out,  PA,   PA,   bad,  gone),
    TransactionEvent.RETRY_COMMIT:    (out,  out,  busy, bad,  done, bad,  out,  gone),
    TransactionEvent.RETRY_ABORT:     (out,  out,  bad,  busy, bad,  done, out,  gone),
    TransactionEvent.FENCE:           (bad,  F,    bad,  bad,  bad,  bad,  bad,  gone),
    TransactionEvent.FENCED:          (bad,  bad,  bad,  bad,  bad,  bad,  PA,   gone),
    TransactionEvent.MARKERS_WRITTEN: (bad,  bad,  CC,   CA,   bad,  bad,  bad,  gone),
    TransactionEvent.EXPIRE:          (D,    bad,  bad,  bad,  D,    D,    bad,  gone),
}  # fmt: skip


@pytest.mark.parametrize(
    ("event", "state", "expected"),
    [
        (event, state, cell)
        for event, row in EXPECTED.items()
        for state, cell in zip(STATES, row, strict=True)
    ],
)
def test_table_has_expected_entry(
    event: TransactionEvent, state: State, expected: State | ErrorCode
) -> None:
    assert TABLE[event][state] is expected


def test_table_is_complete() -> None:
    assert set(EXPECTED) == set(TABLE) == set(TransactionEvent)
    assert set(STATES) == set(State)


def test_states_have_protocol_names() -> None:
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
