"""Actions for the errors of partitions in OffsetCommit and OffsetFetch responses: a table. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    InvalidGroupIdError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RequestTimedOutError,
    RetriableError,
    StaleMemberEpochError,
    TopicAuthorizationError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
    find_by_class,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class CommitErrorAction(enum.Enum):
    """Action for one partition's error in a response to OffsetCommit or OffsetFetch."""

    RETRY = "retry"
    FIND_COORDINATOR = "look up the coordinator, then retry"
    CHECK_TOPIC = "check whether the topic was deleted, then retry the other topics"
    WAIT_FOR_REBALANCE = "wait for the rebalance, then retry the partitions still owned"
    RETRY_OWNED = "retry the partitions still owned, with the present epoch of the member"
    RAISE_COMMIT_FAILED = "raise CommitFailedError: the member lost the partition"
    RAISE = "raise the error"


COMMIT_ERRORS: Final[Mapping[type[KafkaError], CommitErrorAction]] = {
    CoordinatorLoadInProgressError: CommitErrorAction.RETRY,
    CoordinatorNotAvailableError: CommitErrorAction.FIND_COORDINATOR,
    NotCoordinatorError: CommitErrorAction.FIND_COORDINATOR,
    RequestTimedOutError: CommitErrorAction.RETRY,
    KafkaConnectionError: CommitErrorAction.FIND_COORDINATOR,
    KafkaTimeoutError: CommitErrorAction.FIND_COORDINATOR,
    UnknownTopicOrPartitionError: CommitErrorAction.CHECK_TOPIC,
    UnknownTopicIdError: CommitErrorAction.CHECK_TOPIC,
    UnstableOffsetCommitError: CommitErrorAction.RETRY,
    RebalanceInProgressError: CommitErrorAction.WAIT_FOR_REBALANCE,
    # The generation or epoch is over. `OffsetCommitter` waits instead if the member is about to
    # join the next one.
    UnknownMemberIdError: CommitErrorAction.RAISE_COMMIT_FAILED,
    IllegalGenerationError: CommitErrorAction.RAISE_COMMIT_FAILED,
    FencedMemberEpochError: CommitErrorAction.RAISE_COMMIT_FAILED,
    # The member's epoch has changed since the request was built; it may still own the partitions.
    StaleMemberEpochError: CommitErrorAction.RETRY_OWNED,
    FencedInstanceIdError: CommitErrorAction.RAISE,
    OffsetMetadataTooLargeError: CommitErrorAction.RAISE,
    InvalidCommitOffsetSizeError: CommitErrorAction.RAISE,
    GroupAuthorizationError: CommitErrorAction.RAISE,
    TopicAuthorizationError: CommitErrorAction.RAISE,
    InvalidGroupIdError: CommitErrorAction.RAISE,
    RetriableError: CommitErrorAction.RETRY,
    KafkaError: CommitErrorAction.RAISE,
}


def commit_error_action(error: KafkaError) -> CommitErrorAction:
    """Return the row of `COMMIT_ERRORS` for an error."""
    return find_by_class(COMMIT_ERRORS, error)
