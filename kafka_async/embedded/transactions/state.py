"""The transaction coordinator as a table: what an event does to a transactional id in each state.

Two generations of clients end transactions in different ways (KIP-890). With transactions v1
(EndTxn up to version 4) the epoch stays, so an EndTxn in a completed state is a repetition. With v2
(from version 5) every end bumps the epoch: a request with the epoch before is a repetition
(COMMIT_AGAIN, ABORT_AGAIN), one with the current epoch is the next end.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code

if TYPE_CHECKING:
    from collections.abc import Mapping


class TransactionState(enum.Enum):
    """A state of a transactional id; the value is the name on the wire."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class Event(enum.Enum):
    """What can happen to a transactional id. Producer id and epoch have been checked already."""

    INIT = "a producer asks for its id and epoch"
    ADD = "a partition or a group's offsets are added"
    COMMIT_V1 = "EndTxn(commit) with transactions v1"
    ABORT_V1 = "EndTxn(abort) with transactions v1"
    COMMIT = "EndTxn(commit) with the current epoch"
    ABORT = "EndTxn(abort) with the current epoch"
    COMMIT_AGAIN = "EndTxn(commit) with the epoch before the bump"
    ABORT_AGAIN = "EndTxn(abort) with the epoch before the bump"
    FENCE = "the transaction has timed out, or a new producer takes over"
    FENCED = "the epoch is raised, the transaction can be aborted"
    MARKED = "every partition has its marker"
    EXPIRE = "nobody has used the id for very long"


_S = TransactionState
_RESTING: Final = (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
_ENDING: Final = (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
_BUSY: Final = dict.fromkeys((*_ENDING, _S.PREPARE_EPOCH_FENCE), Code.CONCURRENT_TRANSACTIONS)
_DEAD: Final = {_S.DEAD: Code.INVALID_PRODUCER_ID_MAPPING}
_INVALID: Final = dict.fromkeys(TransactionState, Code.INVALID_TXN_STATE) | _DEAD
_STRANGE: Final = dict.fromkeys(TransactionState, Code.PRODUCER_FENCED) | _DEAD
"""An epoch that this state cannot have produced."""

TABLE: Final[Mapping[Event, Mapping[TransactionState, TransactionState | Code]]] = {
    Event.INIT: {
        **_BUSY,
        **_DEAD,
        **dict.fromkeys(_RESTING, _S.EMPTY),
        # The old producer's transaction is aborted first; the new one asks again meanwhile.
        _S.ONGOING: _S.PREPARE_EPOCH_FENCE,
    },
    Event.ADD: {
        **_BUSY,
        **_DEAD,
        **dict.fromkeys((*_RESTING, _S.ONGOING), _S.ONGOING),
    },
    Event.COMMIT_V1: {
        **_INVALID,
        _S.ONGOING: _S.PREPARE_COMMIT,
        _S.PREPARE_COMMIT: Code.CONCURRENT_TRANSACTIONS,
        _S.COMPLETE_COMMIT: Code.NONE,
    },
    Event.ABORT_V1: {
        **_INVALID,
        _S.ONGOING: _S.PREPARE_ABORT,
        _S.PREPARE_ABORT: Code.CONCURRENT_TRANSACTIONS,
        _S.COMPLETE_ABORT: Code.NONE,
    },
    Event.COMMIT: {
        **_INVALID,
        **dict.fromkeys(_ENDING, Code.PRODUCER_FENCED),
        _S.ONGOING: _S.PREPARE_COMMIT,
    },
    Event.ABORT: {
        **_INVALID,
        **dict.fromkeys(_ENDING, Code.PRODUCER_FENCED),
        _S.ONGOING: _S.PREPARE_ABORT,
        # A client may abort without knowing what it had begun: the bump fences what is on its way.
        **dict.fromkeys(_RESTING, _S.PREPARE_ABORT),
    },
    Event.COMMIT_AGAIN: {
        **_STRANGE,
        _S.PREPARE_COMMIT: Code.CONCURRENT_TRANSACTIONS,
        _S.PREPARE_ABORT: Code.INVALID_TXN_STATE,
        _S.COMPLETE_COMMIT: Code.NONE,
        _S.COMPLETE_ABORT: Code.INVALID_TXN_STATE,
    },
    Event.ABORT_AGAIN: {
        **_STRANGE,
        _S.PREPARE_COMMIT: Code.INVALID_TXN_STATE,
        _S.PREPARE_ABORT: Code.CONCURRENT_TRANSACTIONS,
        _S.COMPLETE_COMMIT: Code.INVALID_TXN_STATE,
        _S.COMPLETE_ABORT: Code.NONE,
    },
    Event.FENCE: {**_INVALID, _S.ONGOING: _S.PREPARE_EPOCH_FENCE},
    Event.FENCED: {**_INVALID, _S.PREPARE_EPOCH_FENCE: _S.PREPARE_ABORT},
    Event.MARKED: {
        **_INVALID,
        _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
        _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
    },
    Event.EXPIRE: {**_INVALID, **dict.fromkeys(_RESTING, _S.DEAD)},
}
"""The next state, or the code to answer with; NONE says that it is done already."""


def outcome(event: Event, state: TransactionState) -> TransactionState | Code:
    """What the table says."""
    return TABLE[event][state]
