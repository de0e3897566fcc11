"""The states of a transactional producer, as a table: pure.

Errors come in as events too, by their KIP-1050 category: an abortable one, and one of
configuration, leave the producer with a transaction that can only be aborted; an
application-recoverable one ends the producer's usefulness. What has been said to the coordinator
decides the rest: until EndTxn(commit) is sent a commit can still be given up, afterwards only the
coordinator knows (`OUTCOME_UNKNOWN`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.errors import Category, KafkaError, TransactionStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["EVENT_OF_CATEGORY", "REASONS", "TRANSITIONS", "Event", "State", "TransactionMachine"]


class State(enum.Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    """The records of the transaction are being delivered; EndTxn is not sent yet."""
    COMMIT_SENT = "commit sent"
    OUTCOME_UNKNOWN = "outcome unknown"
    MUST_ABORT = "must abort"
    ABORTING = "aborting"
    FAILED = "failed"


class Event(enum.Enum):
    """What happens to a transactional producer."""

    INIT = "init_transactions"
    INITIALIZED = "the producer id is there"
    INIT_FAILED = "no producer id"
    BEGIN = "begin"
    COMMIT = "commit"
    COMMIT_INTERRUPTED = "commit was cancelled"
    COMMIT_SENT = "EndTxn(commit) is sent"
    NO_ANSWER = "EndTxn(commit) got no answer"
    ABORT = "abort"
    ENDED = "the transaction is over"
    ABORTABLE = "an abortable error"
    FATAL = "an application-recoverable error"


S, E = State, Event

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (S.UNINITIALIZED, E.INIT): S.INITIALIZING,
    (S.READY, E.INIT): S.INITIALIZING,
    # The new epoch ends whatever is open, so the unknown outcome can no longer change.
    (S.OUTCOME_UNKNOWN, E.INIT): S.INITIALIZING,
    (S.INITIALIZING, E.INITIALIZED): S.READY,
    (S.INITIALIZING, E.INIT_FAILED): S.UNINITIALIZED,
    (S.READY, E.BEGIN): S.IN_TRANSACTION,
    (S.IN_TRANSACTION, E.COMMIT): S.COMMITTING,
    (S.IN_TRANSACTION, E.ABORT): S.ABORTING,
    (S.IN_TRANSACTION, E.ABORTABLE): S.MUST_ABORT,
    (S.COMMITTING, E.COMMIT_INTERRUPTED): S.IN_TRANSACTION,
    (S.COMMITTING, E.COMMIT_SENT): S.COMMIT_SENT,
    # Nothing was written: there is nothing to tell the coordinator.
    (S.COMMITTING, E.ENDED): S.READY,
    (S.COMMITTING, E.ABORTABLE): S.MUST_ABORT,
    (S.COMMIT_SENT, E.ENDED): S.READY,
    (S.COMMIT_SENT, E.NO_ANSWER): S.OUTCOME_UNKNOWN,
    # The coordinator answered, and did not commit.
    (S.COMMIT_SENT, E.ABORTABLE): S.MUST_ABORT,
    (S.OUTCOME_UNKNOWN, E.COMMIT): S.COMMIT_SENT,
    (S.MUST_ABORT, E.ABORT): S.ABORTING,
    (S.MUST_ABORT, E.ABORTABLE): S.MUST_ABORT,
    # What comes back while aborting was going to be thrown away.
    (S.ABORTING, E.ABORTABLE): S.ABORTING,
    (S.ABORTING, E.ENDED): S.READY,
    **{(state, E.FATAL): S.FAILED for state in State},
}

REASONS: Final[Mapping[State, str]] = {
    S.UNINITIALIZED: "the producer has no producer id yet: await init_transactions() first",
    S.INITIALIZING: "init_transactions() is under way",
    S.READY: "no transaction is open",
    S.IN_TRANSACTION: "a transaction is open",
    S.COMMITTING: "the transaction is being committed",
    S.COMMIT_SENT: "the transaction is being committed",
    S.OUTCOME_UNKNOWN: "the commit was sent and its outcome is unknown: await commit() again, or "
    "init_transactions()",
    S.MUST_ABORT: "the transaction has failed and can only be aborted",
    S.ABORTING: "the transaction is being aborted",
    S.FAILED: "the producer has failed: close it and start from what was committed",
}

EVENT_OF_CATEGORY: Final[Mapping[Category, Event]] = {
    Category.ABORTABLE: Event.ABORTABLE,
    Category.INVALID_CONFIGURATION: Event.ABORTABLE,
    Category.APPLICATION_RECOVERABLE: Event.FATAL,
}


class TransactionMachine:
    """The state of one producer. `on_change` is called after each change of it."""

    def __init__(self, on_change: Callable[[State], None]) -> None:
        self.state = State.UNINITIALIZED
        self.error: KafkaError | None = None
        self._on_change = on_change

    def allows(self, event: Event) -> bool:
        """Whether the table has a row for this event now."""
        return (self.state, event) in TRANSITIONS

    def apply(self, event: Event, error: KafkaError | None = None) -> None:
        """Follow the table. `error` is kept as the reason of MUST_ABORT and FAILED.

        Raises:
            TransactionStateError: The event has no row; its cause is the error that led here.
        """
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise self.refusal(event.value)
        if after in (State.MUST_ABORT, State.FAILED):
            if self.state is not after:
                self.error = error
        elif after is not State.ABORTING:
            self.error = None
        self.state = after
        self._on_change(after)

    def refusal(self, what: str) -> KafkaError:
        """Why a call cannot be made in this state."""
        if self.state is State.FAILED and self.error is not None:
            return self.error
        refusal = TransactionStateError(f"{what}: {REASONS[self.state]}")
        refusal.__cause__ = self.error
        return refusal
