"""State table of the transaction coordinator: the next state or the error code for each event.

Clients end transactions in two ways (KIP-890). With transactions v1 (EndTxn up to version 4) the
epoch stays the same, so EndTxn in a completed state is a retry. With transactions v2 (from version
5) each EndTxn bumps the epoch: a request with the previous epoch is a retry (RETRY_COMMIT,
RETRY_ABORT), one with the current epoch ends the next transaction.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class TransactionState(enum.Enum):
    """States of a transactional id, with their names in responses."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class TransactionEvent(enum.Enum):
    """Events of a transactional id, after validation of producer id and epoch."""

    INIT = "InitProducerId"
    ADD = "partitions or a group's offsets are added"
    COMMIT_V1 = "EndTxn(commit) with transactions v1"
    ABORT_V1 = "EndTxn(abort) with transactions v1"
    COMMIT = "EndTxn(commit) with the current epoch"
    ABORT = "EndTxn(abort) with the current epoch"
    RETRY_COMMIT = "EndTxn(commit) with the previous epoch"
    RETRY_ABORT = "EndTxn(abort) with the previous epoch"
    FENCE = "the transaction has timed out, or a new producer takes over"
    MARKERS_WRITTEN = "all markers are written"
    EXPIRE = "the transactional id expires"


_S = TransactionState
_COMPLETED: Final = (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
_PREPARED: Final = (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
_CONCURRENT: Final = dict.fromkeys(
    (*_PREPARED, _S.PREPARE_EPOCH_FENCE), ErrorCode.CONCURRENT_TRANSACTIONS
)
_DEAD: Final = {_S.DEAD: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
_INVALID: Final = dict.fromkeys(TransactionState, ErrorCode.INVALID_TXN_STATE) | _DEAD
_FENCED: Final = dict.fromkeys(TransactionState, ErrorCode.PRODUCER_FENCED) | _DEAD
"""The producer's epoch is too old in this state."""

TABLE: Final[Mapping[TransactionEvent, Mapping[TransactionState, TransactionState | ErrorCode]]] = {
    TransactionEvent.INIT: {
        **_CONCURRENT,
        **_DEAD,
        **dict.fromkeys(_COMPLETED, _S.EMPTY),
        # Abort the transaction first; the new producer retries.
        _S.ONGOING: _S.PREPARE_EPOCH_FENCE,
    },
    TransactionEvent.ADD: {
        **_CONCURRENT,
        **_DEAD,
        **dict.fromkeys((*_COMPLETED, _S.ONGOING), _S.ONGOING),
    },
    TransactionEvent.COMMIT_V1: {
        **_INVALID,
        _S.ONGOING: _S.PREPARE_COMMIT,
        _S.PREPARE_COMMIT: ErrorCode.CONCURRENT_TRANSACTIONS,
        _S.COMPLETE_COMMIT: ErrorCode.NONE,
    },
    TransactionEvent.ABORT_V1: {
        **_INVALID,
        _S.ONGOING: _S.PREPARE_ABORT,
        _S.PREPARE_ABORT: ErrorCode.CONCURRENT_TRANSACTIONS,
        _S.COMPLETE_ABORT: ErrorCode.NONE,
    },
    TransactionEvent.COMMIT: {
        **_INVALID,
        **dict.fromkeys(_PREPARED, ErrorCode.PRODUCER_FENCED),
        _S.ONGOING: _S.PREPARE_COMMIT,
    },
    TransactionEvent.ABORT: {
        **_INVALID,
        **dict.fromkeys(_PREPARED, ErrorCode.PRODUCER_FENCED),
        _S.ONGOING: _S.PREPARE_ABORT,
        # A client may abort without a transaction: the bump fences its delayed requests.
        **dict.fromkeys(_COMPLETED, _S.PREPARE_ABORT),
    },
    TransactionEvent.RETRY_COMMIT: {
        **_FENCED,
        _S.PREPARE_COMMIT: ErrorCode.CONCURRENT_TRANSACTIONS,
        _S.PREPARE_ABORT: ErrorCode.INVALID_TXN_STATE,
        _S.COMPLETE_COMMIT: ErrorCode.NONE,
        _S.COMPLETE_ABORT: ErrorCode.INVALID_TXN_STATE,
    },
    TransactionEvent.RETRY_ABORT: {
        **_FENCED,
        _S.PREPARE_COMMIT: ErrorCode.INVALID_TXN_STATE,
        _S.PREPARE_ABORT: ErrorCode.CONCURRENT_TRANSACTIONS,
        _S.COMPLETE_COMMIT: ErrorCode.INVALID_TXN_STATE,
        _S.COMPLETE_ABORT: ErrorCode.NONE,
    },
    # Bump the epoch and abort the transaction.
    TransactionEvent.FENCE: {
        **_INVALID,
        **dict.fromkeys((_S.ONGOING, _S.PREPARE_EPOCH_FENCE), _S.PREPARE_ABORT),
    },
    TransactionEvent.MARKERS_WRITTEN: {
        **_INVALID,
        _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
        _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
    },
    TransactionEvent.EXPIRE: {**_INVALID, **dict.fromkeys(_COMPLETED, _S.DEAD)},
}
"""The next state, or the error code of the response; NONE if the event has already been handled."""


def transition_for(
    event: TransactionEvent, state: TransactionState
) -> TransactionState | ErrorCode:
    """Return the next state or error code for an event."""
    return TABLE[event][state]
