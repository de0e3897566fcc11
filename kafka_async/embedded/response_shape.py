"""Arrays of a response that correspond to arrays of its request, by API.

The table lets `ErrorResponseBuilder` fail any request, or a part of it, in the fields that the API
has for errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArrayPair(NamedTuple):
    """Pairs an array of a request with the array of the response for its elements.

    `keys` are pairs of a field of the request's element and the same field in the response's
    element; "" is the element itself, if it is not a structure.
    """

    request_array: str
    response_array: str
    keys: tuple[tuple[str, str], ...]


class ErrorPath(NamedTuple):
    """Locates error codes: the array of topics, or the like, and the partitions in them."""

    outer: ArrayPair
    inner: ArrayPair | None = None


_NAME: Final = (("name", "name"), ("topic_id", "topic_id"))
_TOPIC: Final = (("topic", "topic"), ("topic_id", "topic_id"))
_RESOURCE: Final = (("resource_type", "resource_type"), ("resource_name", "resource_name"))
_TOPICS: Final = ArrayPair("topics", "topics", _NAME)


def _by_index(
    request_array: str, response_array: str, index: str, response_index: str = ""
) -> ArrayPair:
    return ArrayPair(request_array, response_array, ((index, response_index or index),))


_BY_PARTITION: Final = ErrorPath(_TOPICS, _by_index("partitions", "partitions", "partition_index"))

RESPONSE_SHAPES: Final[dict[int, tuple[ErrorPath, ...]]] = {
    0: (
        ErrorPath(
            ArrayPair("topic_data", "responses", _NAME),
            _by_index("partition_data", "partition_responses", "index"),
        ),
    ),
    1: (
        ErrorPath(
            ArrayPair("topics", "responses", _TOPIC),
            _by_index("partitions", "partitions", "partition", "partition_index"),
        ),
    ),
    2: (_BY_PARTITION,),
    3: (ErrorPath(_TOPICS),),
    8: (_BY_PARTITION,),
    9: (ErrorPath(ArrayPair("groups", "groups", (("group_id", "group_id"),))),),
    10: (ErrorPath(ArrayPair("coordinator_keys", "coordinators", (("", "key"),))),),
    15: (ErrorPath(ArrayPair("groups", "groups", (("", "group_id"),))),),
    19: (ErrorPath(_TOPICS),),
    20: (
        ErrorPath(ArrayPair("topics", "responses", _NAME)),
        ErrorPath(ArrayPair("topic_names", "responses", (("", "name"),))),
    ),
    21: (_BY_PARTITION,),
    23: (
        ErrorPath(
            ArrayPair("topics", "topics", (("topic", "topic"),)),
            _by_index("partitions", "partitions", "partition"),
        ),
    ),
    24: (
        ErrorPath(
            ArrayPair("v3_and_below_topics", "results_by_topic_v3_and_below", (("name", "name"),)),
            ArrayPair("partitions", "results_by_partition", (("", "partition_index"),)),
        ),
    ),
    28: (_BY_PARTITION,),
    32: (ErrorPath(ArrayPair("resources", "results", _RESOURCE)),),
    37: (ErrorPath(ArrayPair("topics", "results", (("name", "name"),))),),
    42: (ErrorPath(ArrayPair("groups_names", "results", (("", "group_id"),))),),
    44: (ErrorPath(ArrayPair("resources", "responses", _RESOURCE)),),
    47: (_BY_PARTITION,),
    61: (
        ErrorPath(
            ArrayPair("topics", "topics", (("name", "name"),)),
            ArrayPair("partition_indexes", "partitions", (("", "partition_index"),)),
        ),
    ),
    75: (ErrorPath(ArrayPair("topics", "topics", (("name", "name"),))),),
}
"""Paths by API key; the first one with a request array that is not empty applies."""

_TOPIC_FIELDS: Final = frozenset({"name", "topic"})
_TOPIC_APIS: Final = frozenset({0, 1, 2, 3, 8, 19, 20, 21, 23, 24, 28, 37, 47, 61, 75})


def error_path_of(api_key: int, request: Any) -> ErrorPath | None:
    """Return the error path of a request; None if its response has a single error code."""
    for path in RESPONSE_SHAPES.get(api_key, ()):
        if getattr(request, path.outer.request_array):
            return path
    return None


def field(element: Any, name: str) -> Any:
    """Return a field of an element; the element itself if the name is empty."""
    return getattr(element, name, None) if name else element


def key_of(element: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """Return the key of an element in its array."""
    return tuple(field(element, name) for name in names)


def topic_key(
    api_key: int, arrays: ArrayPair, element: Any, *, in_response: bool = False
) -> tuple[str, Any] | None:
    """Return the name and id of an element's topic; None if the element has no topic."""
    if api_key not in _TOPIC_APIS:
        return None
    name: str | None = None
    topic_id: Any = None
    for request_field, response_field in arrays.keys:
        value = field(element, response_field if in_response else request_field)
        if response_field in _TOPIC_FIELDS:
            name = value
        elif response_field == "topic_id":
            topic_id = value
    return name or "", topic_id
