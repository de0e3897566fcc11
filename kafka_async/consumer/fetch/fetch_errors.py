"""Actions for the errors of partitions in fetch responses: a table. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafka_async.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidMetadataError,
    KafkaError,
    OffsetOutOfRangeError,
    ProtocolError,
    RetriableError,
    UnknownServerError,
    find_by_class,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FetchErrorAction", "fetch_error_action"]


class FetchErrorAction(enum.Enum):
    """Action for one partition's error in a fetch response."""

    REFRESH_METADATA = "refresh the metadata, then retry"
    RETRY = "retry"
    RESET_OFFSET = "reset the position as auto_offset_reset says"
    RAISE = "raise the error; continue after a seek"
    RAISE_AND_RETRY = "raise the error, then retry"


FETCH_ERRORS: Final[Mapping[type[KafkaError], FetchErrorAction]] = {
    InvalidMetadataError: FetchErrorAction.REFRESH_METADATA,
    # A broker error of unknown cause may be gone at the next fetch.
    UnknownServerError: FetchErrorAction.RETRY,
    RetriableError: FetchErrorAction.RETRY,
    OffsetOutOfRangeError: FetchErrorAction.RESET_OFFSET,
    # The same bytes would come again.
    CorruptRecordError: FetchErrorAction.RAISE,
    InvalidConfigurationError: FetchErrorAction.RAISE_AND_RETRY,
    ProtocolError: FetchErrorAction.RAISE_AND_RETRY,
    KafkaError: FetchErrorAction.RAISE,
}


def fetch_error_action(error: KafkaError) -> FetchErrorAction:
    """Return the row of `FETCH_ERRORS` for the error's class, or for its nearest base class."""
    return find_by_class(FETCH_ERRORS, error)
