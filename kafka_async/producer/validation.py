"""Checks the arguments of a record; each error names its argument. Nothing here waits."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from kafka_async.errors import KafkaError, RecordTooLargeError, SerializationError
from kafka_async.foundation.arguments import MAX_INT32, whole_number
from kafka_async.types import check_topic

__all__ = [
    "PROBABLE_SECONDS",
    "check_partition",
    "check_record",
    "check_timestamp",
    "check_values",
    "with_location",
]

_BYTES: Final = (bytes, bytearray, memoryview)
_MAX_TIMESTAMP: Final = (1 << 63) - 2
_RECORD_ERRORS: Final = (SerializationError, RecordTooLargeError)
PROBABLE_SECONDS: Final = range(1_000_000_000, 10_000_000_000)
"""Timestamps that are probably in seconds: as milliseconds they are in early 1970."""


def check_record(topic: object, key: object, value: object, headers: Any) -> None:
    """Raise TypeError for an unusable argument; the message names the expected type."""
    check_topic(topic)
    for name, part in (("key", key), ("value", value)):
        if part is not None and not isinstance(part, _BYTES):
            raise TypeError(
                f"{name} must be bytes or None, not {type(part).__name__}: encode it, or give the "
                f"producer a {name}_serializer"
            )
    if not headers:
        return
    # A dict would iterate over the names, and a str over its characters.
    kind = cast("type[object]", type(headers))
    if issubclass(kind, Mapping) or not hasattr(kind, "__iter__"):
        raise TypeError(f"headers must be a list of (str, bytes or None), not {kind.__name__}")
    for header in headers:
        _check_header(header)


def check_timestamp(timestamp: int) -> int:
    """Return the milliseconds as an int; raise TypeError or ValueError if a batch cannot hold them.

    Batches check timestamps too, but an unpartitioned record is in none yet.
    """
    try:
        number = operator.index(timestamp)
    except TypeError:
        # A float is refused, since time.time() without the factor is the usual mistake.
        raise TypeError(
            f"a timestamp is whole milliseconds since the epoch, as int(time.time() * 1000), not "
            f"{type(timestamp).__name__}: {timestamp!r:.60}"
        ) from None
    if not -1 <= number <= _MAX_TIMESTAMP:
        raise ValueError(f"a timestamp is -1 to {_MAX_TIMESTAMP} ms, not {timestamp}")
    return number


def check_partition(partition: object) -> None:
    """Raise unless `partition` is the number of a partition, or None."""
    if partition is not None:
        whole_number(partition, "partition", low=0, high=MAX_INT32)


def check_values(values: object, name: str) -> None:
    """Raise unless `values` is a sequence that can be sliced and is not a single value."""
    kind = type(values)
    if kind is list or kind is tuple:
        return  # checking for Sequence takes as long as appending ten records
    if issubclass(kind, (str, deque, *_BYTES)) or not issubclass(kind, Sequence):
        raise TypeError(f"{name} must be a list or another sequence, not {kind.__name__}")


def with_location(error: TypeError | ValueError | KafkaError, location: str) -> Exception:
    """Return the error with the location of the bad item, as "values[3]", before its message.

    An error that does not concern a record, such as ClientClosedError, is returned unchanged.
    """
    # Errors of Kafka keep their attributes, so only the message changes.
    if isinstance(error, KafkaError):
        if not isinstance(error, _RECORD_ERRORS) and not isinstance(
            error.__cause__, _RECORD_ERRORS
        ):
            return error
        error.message = f"{location}: {error.message}"
        return error
    return type(error)(f"{location}: {error}")


def _check_header(header: object) -> None:
    match header:
        case (str(), None | bytes() | bytearray() | memoryview()):
            return
        case _:
            raise TypeError(f"each header must be a (str, bytes or None) pair, not {header!r:.60}")
