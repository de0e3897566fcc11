"""Maps the errors of a produce response to actions of the producer.

An error is looked up by its class, then by the nearest base class: NotLeaderOrFollowerError, for
example, has the action of RefreshRetriableError. An error without a row fails the batch.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.errors import (
    DuplicateSequenceError,
    IncompleteResponseError,
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

__all__ = ["MAYBE_WRITTEN_ERRORS", "PRODUCE_ERROR_ACTIONS", "ProduceErrorAction", "action_for"]


class ProduceErrorAction(enum.Enum):
    """Actions for a batch that a broker did not acknowledge."""

    RETRY = "retry after a back-off"
    REFRESH_AND_RETRY = "refresh the metadata, then retry"
    SPLIT = "split it into two; fail a single record, or a batch that may have been written"
    ACKNOWLEDGE = "acknowledge it, with an unknown offset"
    RESTART_SEQUENCE = "bump the epoch and restart the partition's sequence; in a transaction, fail"
    FAIL = "fail the batch"


PRODUCE_ERROR_ACTIONS: Final[Mapping[type[Exception], ProduceErrorAction]] = {
    # A broker's limit may be lower than the configured one (KIP-126).
    RecordTooLargeError: ProduceErrorAction.SPLIT,
    RecordBatchTooLargeError: ProduceErrorAction.SPLIT,
    # The batch is in the log, but the broker no longer has its offset.
    DuplicateSequenceError: ProduceErrorAction.ACKNOWLEDGE,
    OutOfOrderSequenceError: ProduceErrorAction.RESTART_SEQUENCE,
    UnknownProducerIdError: ProduceErrorAction.RESTART_SEQUENCE,
    # The broker has responded, and leads the partition: the metadata is not stale.
    RequestTimedOutError: ProduceErrorAction.RETRY,
    # Without a response the broker may be frozen, and another one may lead the partition.
    KafkaTimeoutError: ProduceErrorAction.REFRESH_AND_RETRY,
    # Written, but on too few replicas; the sequence number keeps a retry from writing it twice.
    NotEnoughReplicasAfterAppendError: ProduceErrorAction.RETRY,
    RefreshRetriableError: ProduceErrorAction.REFRESH_AND_RETRY,
    RetriableError: ProduceErrorAction.RETRY,
}


# Without a response, or after an error inside the broker, the log may or may not have the batch.
MAYBE_WRITTEN_ERRORS: Final = (
    IncompleteResponseError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotEnoughReplicasAfterAppendError,
    UnknownServerError,
)
"""Errors after which the batch may have been written."""


def action_for(error: Exception) -> ProduceErrorAction:
    """Return the action for the most specific class of an error in the table."""
    return find_by_class(PRODUCE_ERROR_ACTIONS, error, ProduceErrorAction.FAIL)
