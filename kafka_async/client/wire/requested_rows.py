"""Pairs the rows of a response with what was requested. Pure.

A broker responds with a row per topic, partition, group or the like. A row that was requested and
is missing is a defect of the response: it is worth a retry, and never an empty result. A row that
was not requested is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kafka_async.errors import IncompleteResponseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

K = TypeVar("K")
V = TypeVar("V")


def missing_row(requested: object) -> IncompleteResponseError:
    """Return the error of an item that a response has no row for."""
    return IncompleteResponseError(f"the broker's response lacks {requested}")


def requested_rows(
    requested: Iterable[K], rows: Mapping[K, V]
) -> dict[K, V | IncompleteResponseError]:
    """Return the row of each requested item, or the error for its absence."""
    return {item: rows[item] if item in rows else missing_row(item) for item in requested}


def requested_row(requested: K, rows: Iterable[V], key: Callable[[V], K]) -> V:
    """Return the row with the requested key.

    Raises IncompleteResponseError if there is none.
    """
    for row in rows:
        if key(row) == requested:
            return row
    raise missing_row(requested)
