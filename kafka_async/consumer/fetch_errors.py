"""What to do about the errors that brokers answer a fetch with: a table. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidMetadataError,
    KafkaError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    ProtocolError,
    RetriableError,
    UnknownLeaderEpochError,
    UnknownServerError,
    find_by_class,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FetchReaction", "fetch_reaction"]


class FetchReaction(enum.Enum):
    """What to do about one partition's error in an answer to Fetch."""

    REFRESH = "renew the metadata, then ask again"
    AGAIN = "ask again"
    RESET = "the offset is not there: the reset policy decides"
    RAISE = "raise it, and go on when the application has sought elsewhere"
    RAISE_ONCE = "raise it, and ask again"


FETCH: Final[Mapping[type[KafkaError], FetchReaction]] = {
    InvalidMetadataError: FetchReaction.REFRESH,
    UnknownLeaderEpochError: FetchReaction.AGAIN,
    OffsetNotAvailableError: FetchReaction.AGAIN,
    UnknownServerError: FetchReaction.AGAIN,
    RetriableError: FetchReaction.AGAIN,
    OffsetOutOfRangeError: FetchReaction.RESET,
    CorruptRecordError: FetchReaction.RAISE,
    InvalidConfigurationError: FetchReaction.RAISE_ONCE,
    ProtocolError: FetchReaction.RAISE_ONCE,
    KafkaError: FetchReaction.RAISE,
}


def fetch_reaction(error: KafkaError) -> FetchReaction:
    """The row of `FETCH` for an error: that of its class, or of the nearest class above it."""
    return find_by_class(FETCH, error)
