"""The states of a transactional producer, as a table, under the names of Java's TransactionManager.

Java's COMMITTING_TRANSACTION is two states here: only before EndTxn is sent can the transaction
still be aborted. Nothing here waits.

Errors are events too, by their KIP-1050 category. After an abortable error or one of configuration
the transaction can only be aborted; after an application-recoverable one the producer can no longer
be used. Until EndTxn(commit) is sent a transaction can be aborted; without a response to it the
outcome is unknown (`OUTCOME_UNKNOWN`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.errors import Category, KafkaError, TransactionStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "EVENT_FOR_CATEGORY",
    "STATE_ERRORS",
    "TRANSITIONS",
    "TransactionEvent",
    "TransactionState",
    "TransactionStateMachine",
]


class TransactionState(enum.Enum):
    """States of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING_TRANSACTION = "committing"
    """The records of the transaction are being delivered; EndTxn is not sent yet."""
    COMMIT_SENT = "commit sent"
    OUTCOME_UNKNOWN = "outcome unknown"
    PREPARED = "prepared"
    """All records are acknowledged and the transaction is open, for another process to end."""
    ABORTABLE_ERROR = "abortable error"
    ABORTING_TRANSACTION = "aborting"
    FATAL_ERROR = "fatal error"


class TransactionEvent(enum.Enum):
    """Events of a transactional producer."""

    INIT = "init_transactions"
    INITIALIZED = "the producer id was received"
    INIT_FAILED = "no producer id"
    BEGIN = "begin"
    COMMIT = "commit"
    COMMIT_INTERRUPTED = "commit was cancelled"
    COMMIT_SENT = "EndTxn(commit) is sent"
    PREPARED = "the records are delivered, and prepare() was called"
    NO_RESPONSE = "EndTxn(commit) got no response"
    ABORT = "abort"
    ENDED = "the transaction is over"
    ABORTABLE = "an abortable error"
    FATAL = "an application-recoverable error"


S, E = TransactionState, TransactionEvent

TRANSITIONS: Final[Mapping[tuple[TransactionState, TransactionEvent], TransactionState]] = {
    (S.UNINITIALIZED, E.INIT): S.INITIALIZING,
    (S.READY, E.INIT): S.INITIALIZING,
    # The new epoch ends an open transaction, so the unknown outcome can no longer change.
    (S.OUTCOME_UNKNOWN, E.INIT): S.INITIALIZING,
    (S.INITIALIZING, E.INITIALIZED): S.READY,
    (S.INITIALIZING, E.INIT_FAILED): S.UNINITIALIZED,
    (S.READY, E.BEGIN): S.IN_TRANSACTION,
    (S.IN_TRANSACTION, E.COMMIT): S.COMMITTING_TRANSACTION,
    (S.IN_TRANSACTION, E.ABORT): S.ABORTING_TRANSACTION,
    (S.IN_TRANSACTION, E.ABORTABLE): S.ABORTABLE_ERROR,
    # Nothing was sent to the coordinator, so the transaction is still open.
    (S.COMMITTING_TRANSACTION, E.COMMIT_INTERRUPTED): S.IN_TRANSACTION,
    (S.COMMITTING_TRANSACTION, E.COMMIT_SENT): S.COMMIT_SENT,
    # Nothing was written, so no EndTxn is sent.
    (S.COMMITTING_TRANSACTION, E.ENDED): S.READY,
    (S.COMMITTING_TRANSACTION, E.ABORTABLE): S.ABORTABLE_ERROR,
    (S.COMMITTING_TRANSACTION, E.PREPARED): S.PREPARED,
    (S.PREPARED, E.COMMIT): S.COMMITTING_TRANSACTION,
    (S.PREPARED, E.ABORT): S.ABORTING_TRANSACTION,
    (S.COMMIT_SENT, E.ENDED): S.READY,
    (S.COMMIT_SENT, E.NO_RESPONSE): S.OUTCOME_UNKNOWN,
    # The coordinator has refused to commit.
    (S.COMMIT_SENT, E.ABORTABLE): S.ABORTABLE_ERROR,
    # The same request again: the coordinator returns the outcome if it has committed already.
    (S.OUTCOME_UNKNOWN, E.COMMIT): S.COMMIT_SENT,
    (S.ABORTABLE_ERROR, E.ABORT): S.ABORTING_TRANSACTION,
    (S.ABORTABLE_ERROR, E.ABORTABLE): S.ABORTABLE_ERROR,
    # Failed records are part of the aborted transaction.
    (S.ABORTING_TRANSACTION, E.ABORTABLE): S.ABORTING_TRANSACTION,
    (S.ABORTING_TRANSACTION, E.ENDED): S.READY,
    # No state is left without a way to fail, for example when another producer takes over.
    **{(state, E.FATAL): S.FATAL_ERROR for state in TransactionState},
}

STATE_ERRORS: Final[Mapping[TransactionState, str]] = {
    S.UNINITIALIZED: "the producer has no producer id yet: await init_transactions() first",
    S.INITIALIZING: "init_transactions() is in progress",
    S.READY: "no transaction is open",
    S.IN_TRANSACTION: "a transaction is open, and a producer has one at a time: commit or abort it "
    "first",
    S.COMMITTING_TRANSACTION: "the transaction is being committed",
    S.COMMIT_SENT: "the transaction is being committed",
    S.OUTCOME_UNKNOWN: "the commit was sent and its outcome is unknown: await commit() again, or "
    "init_transactions()",
    S.PREPARED: "the transaction is prepared: commit or abort it, here or in another process, or "
    "stop the producer",
    S.ABORTABLE_ERROR: "the transaction has failed and can only be aborted",
    S.ABORTING_TRANSACTION: "the transaction is being aborted",
    S.FATAL_ERROR: "the producer has failed: close it and start from what was committed",
}

EVENT_FOR_CATEGORY: Final[Mapping[Category, TransactionEvent]] = {
    Category.ABORTABLE: TransactionEvent.ABORTABLE,
    # The producer stays usable, but the records of this transaction were not all written.
    Category.INVALID_CONFIGURATION: TransactionEvent.ABORTABLE,
    Category.APPLICATION_RECOVERABLE: TransactionEvent.FATAL,
}


class TransactionStateMachine:
    """State of one producer. `on_change` is called after each change."""

    def __init__(self, on_change: Callable[[TransactionState], None]) -> None:
        # The first cause of the present error state.
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        self._on_change = on_change

    def allows(self, event: TransactionEvent) -> bool:
        """Return True if the table has a transition for an event."""
        return (self.state, event) in TRANSITIONS

    def apply(self, event: TransactionEvent, error: KafkaError | None = None) -> None:
        """Apply an event; `error` is kept as the reason of ABORTABLE_ERROR or FATAL_ERROR.

        Raises `state_error` if the table has no transition.
        """
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise self.state_error(event.value)
        if after in (TransactionState.ABORTABLE_ERROR, TransactionState.FATAL_ERROR):
            # A later error of the same transaction is usually a consequence of the first.
            if self.state is not after:
                self.error = error
        elif after is not TransactionState.ABORTING_TRANSACTION:
            self.error = None
        self.state = after
        self._on_change(after)

    def state_error(self, call: str) -> KafkaError:
        """Return the error for a call that is not allowed in this state."""
        if self.state is TransactionState.FATAL_ERROR and self.error is not None:
            return self.error
        error = TransactionStateError(f"{call}: {STATE_ERRORS[self.state]}")
        error.__cause__ = self.error
        return error
