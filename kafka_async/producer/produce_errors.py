"""What the producer does about each error that a broker answers to Produce.

Only rows that differ from the error's own nature are listed: a retriable error is retried, after a
look at the metadata if its class says so, and anything else fails the batch.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.errors import (
    DuplicateSequenceError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotEnoughReplicasAfterAppendError,
    OutOfOrderSequenceError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RefreshRetriableError,
    RequestTimedOutError,
    RetriableError,
    UnknownProducerIdError,
    UnknownServerError,
    find_by_class,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DOUBTFUL", "PRODUCE_ERROR_ACTIONS", "Reaction", "reaction_to"]


class Reaction(enum.Enum):
    """What to do with a batch that came back."""

    RETRY = "send it again after a back-off"
    REFRESH = "look up the leader, then send it again"
    SPLIT = "send it again as two; a single record fails, and what may be written already"
    WRITTEN = "count it as written, at an offset that nobody knows any more"
    RESEQUENCE = "bump the epoch and start the partition's sequence over; in a transaction, fail"
    FAIL = "tell the caller"


PRODUCE_ERROR_ACTIONS: Final[Mapping[type[Exception], Reaction]] = {
    RecordTooLargeError: Reaction.SPLIT,
    RecordBatchTooLargeError: Reaction.SPLIT,
    DuplicateSequenceError: Reaction.WRITTEN,
    OutOfOrderSequenceError: Reaction.RESEQUENCE,
    UnknownProducerIdError: Reaction.RESEQUENCE,
    # The broker is reachable and leads the partition: its own time-out says nothing about metadata.
    RequestTimedOutError: Reaction.RETRY,
    # No response at all: the broker may be frozen, and another one lead the partition already.
    KafkaTimeoutError: Reaction.REFRESH,
    NotEnoughReplicasAfterAppendError: Reaction.RETRY,
    RefreshRetriableError: Reaction.REFRESH,
    RetriableError: Reaction.RETRY,
}


DOUBTFUL: Final = (
    KafkaConnectionError,
    KafkaTimeoutError,
    NotEnoughReplicasAfterAppendError,
    UnknownServerError,
)
"""After these the batch may have been written."""


def reaction_to(error: Exception) -> Reaction:
    """The row of the most specific class that the table has."""
    return find_by_class(PRODUCE_ERROR_ACTIONS, error, Reaction.FAIL)
