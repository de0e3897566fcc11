"""Whether what a caller gives can be a record: said at the call, naming the argument. Pure."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final, cast

from kafka_async.types import check_topic

__all__ = ["check_record", "check_timestamp"]

_BYTES: Final = (bytes, bytearray, memoryview)
_MAX_TIMESTAMP: Final = (1 << 63) - 2


def check_record(topic: object, key: object, value: object, headers: Any) -> None:
    """Raise TypeError for an argument that is of no use, with what it is and what it should be."""
    check_topic(topic)
    for name, part in (("key", key), ("value", value)):
        if part is not None and not isinstance(part, _BYTES):
            raise TypeError(
                f"{name} must be bytes or None, not {type(part).__name__}: encode it, or give the "
                f"producer a {name}_serializer"
            )
    if not headers:
        return
    kind = cast("type[object]", type(headers))
    if issubclass(kind, Mapping) or not hasattr(kind, "__iter__"):
        raise TypeError(f"headers must be (str, bytes) pairs, not {kind.__name__}")
    for header in headers:
        _check_header(header)


def check_timestamp(timestamp: int) -> int:
    """The milliseconds as a plain int; raises TypeError or ValueError if a batch cannot hold them.

    A record that waits for its topic is in no batch yet that would say so.
    """
    try:
        number = operator.index(timestamp)
    except TypeError:
        raise TypeError(
            f"a timestamp is whole milliseconds since the epoch, not {timestamp!r}"
        ) from None
    if not -1 <= number <= _MAX_TIMESTAMP:
        raise ValueError(f"a timestamp is -1 to {_MAX_TIMESTAMP} ms, not {timestamp}")
    return number


def _check_header(header: object) -> None:
    match header:
        case (str(), None | bytes() | bytearray() | memoryview()):
            return
        case _:
            raise TypeError(f"headers must be (str, bytes) pairs, and {header!r:.60} is none")
