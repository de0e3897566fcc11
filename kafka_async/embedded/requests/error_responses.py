"""Builds responses with error codes: for a request, for a part of it, or from a built response."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.api import lookup
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.registry import Api
from kafka_async.protocol.spec import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.state.topics import TopicTable
    from kafka_async.protocol.spec import Struct


class ArrayPair(NamedTuple):
    """Pairs an array of a request with the array of the response for its elements.

    `keys` are (field of the request's element, field of the response's element) pairs; "" is the
    element itself, if it is not a structure.
    """

    request_array: str
    response_array: str
    keys: tuple[tuple[str, str], ...]


class ErrorPath(NamedTuple):
    """Locates error codes: the array of topics or similar elements, and the partitions in them."""

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
    30: (ErrorPath(ArrayPair("creations", "results", ())),),
    31: (ErrorPath(ArrayPair("filters", "filter_results", ())),),
    32: (ErrorPath(ArrayPair("resources", "results", _RESOURCE)),),
    37: (ErrorPath(ArrayPair("topics", "results", (("name", "name"),))),),
    42: (ErrorPath(ArrayPair("groups_names", "results", (("", "group_id"),))),),
    44: (ErrorPath(ArrayPair("resources", "responses", _RESOURCE)),),
    47: (_BY_PARTITION,),
    51: (
        ErrorPath(ArrayPair("deletions", "results", (("name", "user"),))),
        ErrorPath(ArrayPair("upsertions", "results", (("name", "user"),))),
    ),
    61: (
        ErrorPath(
            ArrayPair("topics", "topics", (("name", "name"),)),
            ArrayPair("partition_indexes", "partitions", (("", "partition_index"),)),
        ),
    ),
    69: (ErrorPath(ArrayPair("group_ids", "groups", (("", "group_id"),))),),
    75: (ErrorPath(ArrayPair("topics", "topics", (("name", "name"),))),),
    77: (ErrorPath(ArrayPair("group_ids", "groups", (("", "group_id"),))),),
    90: (ErrorPath(ArrayPair("groups", "groups", (("group_id", "group_id"),))),),
}
"""Arrays of the response that correspond to arrays of the request, by API key.

The first path whose request array is not empty applies.
"""

_REQUESTS_WITH_ONE_ERROR: Final[dict[int, ErrorPath]] = dict.fromkeys((78, 79), _BY_PARTITION)
"""Topics and partitions in ShareFetch and ShareAcknowledge requests.

An injected error applies to the whole response. After an error of one partition, the client would
continue its share session, but the session never got the request.
"""

_TOPIC_FIELDS: Final = frozenset({"name", "topic"})
_TOPIC_APIS: Final = frozenset({0, 1, 2, 3, 8, 19, 20, 21, 23, 24, 28, 37, 47, 61, 75, 78, 79})

_ERROR_FIELDS: Final = ("error_code", "partition_error_code")
_ERROR_DEFAULTS: Final = {
    "base_offset": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "committed_offset": -1,
    "leader_id": -1,
    "node_id": -1,
    "port": -1,
    "producer_id": -1,
    "records": b"",
}
"""Values of fields in an error response that differ from the schema's defaults."""


def topic_partitions_in(
    api_key: int, request: Any, topics: TopicTable
) -> Iterator[tuple[str | None, int | None]]:
    """Yield every topic and partition in a request, or (None, None) for an API without topics."""
    path = _error_path_of(api_key, request) or _REQUESTS_WITH_ONE_ERROR.get(api_key)
    if path is None:
        yield None, None
        return
    for element in getattr(request, path.outer.request_array):
        topic = _topic_of(topics, api_key, path.outer, element)
        if path.inner is None:
            yield topic, None
            continue
        for leaf in getattr(element, path.inner.request_array):
            yield topic, _field(leaf, path.inner.keys[0][0])


def error_response(context: RequestContext, code: int, request: Any) -> Any | None:
    """Return the error response to a whole request, or None if the API has no error field."""
    return ErrorResponseBuilder(context, code).split(request)[0]


def error_response_to_whole(context: RequestContext, code: int, request: Any) -> Any | None:
    """Return `error_response` with one error code, if the response has a field for it."""
    return ErrorResponseBuilder(context, code).whole(request)


class ErrorResponseBuilder:
    """Builds responses with an error code for the topics and partitions that `selects` accepts.

    `selects(topic, partition)` is called with None for an element without a topic, and for an API
    without partitions. `topics` finds topics by id.
    """

    def __init__(
        self,
        context: RequestContext,
        code: int,
        topics: TopicTable | None = None,
        selects: Callable[[str | None, int | None], bool] = lambda topic, partition: True,
    ) -> None:
        self._context = context
        self._code = int(code)
        self._topics = topics
        self._selects = selects

    def split(self, request: Any) -> tuple[Any | None, Any | None]:
        """Return the error response to the selected part, and a request for the rest.

        The response is None if the API has no field for an error; the rest is None if it is empty.
        """
        api = lookup(self._context.api_key)
        assert isinstance(api, Api)
        response = api.response()
        path = None if self._concerns_client() else _error_path_of(self._context.api_key, request)
        if path is None:
            return (response, None) if self._set_error(response) else (None, None)
        failed: list[Any] = []
        remaining: list[Any] = []
        for element in getattr(request, path.outer.request_array):
            error, rest = self._split_element(element, path.outer, path.inner, api.response)
            if error is not None:
                failed.append(error)
            if rest is not None:
                remaining.append(rest)
        setattr(response, path.outer.response_array, failed)
        needs_rest = remaining or self._has_broker_list()
        rest = _with(request, path.outer.request_array, remaining) if needs_rest else None
        return (response if failed else None), rest

    def whole(self, request: Any) -> Any | None:
        """Return the response with a single error code, or with the code in every element."""
        api = lookup(self._context.api_key)
        assert isinstance(api, Api)
        response = api.response()
        paths = RESPONSE_SHAPES.get(self._context.api_key, ())
        if self._set_error(response):
            return response
        for path in paths:
            errors = list(getattr(response, path.outer.response_array))
            for element in getattr(request, path.outer.request_array):
                error, _ = self._split_element(element, path.outer, path.inner, api.response)
                errors.append(error)
            setattr(response, path.outer.response_array, errors)
        return response if paths else None

    def _concerns_client(self) -> bool:
        """Return True for the error that Metadata has for the whole response only (KIP-1102)."""
        return self._code == ErrorCode.REBOOTSTRAP_REQUIRED

    def _has_broker_list(self) -> bool:
        """Return True for Metadata: its response has the brokers even if all topics fail.

        Not in version 0, where an empty list requests all topics.
        """
        return self._context.api_key == MetadataRequest.API_KEY and self._context.version > 0

    def merge(self, response: Any, error_response: Any) -> Any:
        """Return a response with the elements of an error response added."""
        for path in RESPONSE_SHAPES[self._context.api_key]:
            if getattr(error_response, path.outer.response_array):
                _merge(response, error_response, path.outer, path.inner)
                return response
        return response

    def overwrite(self, response: Any) -> Any:
        """Set the error code in the response to a handled request."""
        if response is None:
            return None
        changed = False
        shapes = RESPONSE_SHAPES.get(self._context.api_key, ())
        for path in () if self._concerns_client() else shapes:
            for element in getattr(response, path.outer.response_array):
                topic = _topic_of(
                    self._topics, self._context.api_key, path.outer, element, in_response=True
                )
                if path.inner is None:
                    leaves = [(element, None)]
                else:
                    index = path.inner.keys[0][1]
                    inner = getattr(element, path.inner.response_array)
                    leaves = [(leaf, _field(leaf, index)) for leaf in inner]
                for leaf, partition in leaves:
                    if self._selects(topic, partition):
                        changed = self._set_error(leaf) or changed
        if not changed:
            self._set_error(response)
        return response

    def _split_element(
        self, element: Any, arrays: ArrayPair, inner: ArrayPair | None, parent: type[Struct]
    ) -> tuple[Any | None, Any | None]:
        topic = _topic_of(self._topics, self._context.api_key, arrays, element)
        response_class = _element_class(parent, arrays.response_array)
        response = _element_response(element, arrays, response_class)
        if inner is None:
            if not self._selects(topic, None):
                return None, element
            self._set_error(response)
            return response, None
        leaf_class = _element_class(response_class, inner.response_array)
        failed: list[Any] = []
        remaining: list[Any] = []
        for leaf in getattr(element, inner.request_array):
            if self._selects(topic, _field(leaf, inner.keys[0][0])):
                failed.append(_element_response(leaf, inner, leaf_class))
                self._set_error(failed[-1])
            else:
                remaining.append(leaf)
        setattr(response, inner.response_array, failed)
        rest = _with(element, inner.request_array, remaining) if remaining else None
        return response if failed else None, rest

    def _set_error(self, response: Any) -> bool:
        """Set the error code; return False if this version has no field for one."""
        for spec in response.SPEC.fields:
            if spec.name in _ERROR_FIELDS and spec.versions.contains(self._context.version):
                setattr(response, spec.name, self._code)
                for name, value in _ERROR_DEFAULTS.items():
                    if hasattr(response, name):
                        setattr(response, name, value)
                return True
        return False


def _element_class(parent: type[Struct], name: str) -> type[Struct]:
    spec = next(spec for spec in parent.SPEC.fields if spec.name == name)
    assert isinstance(spec.type, Array)
    assert isinstance(spec.type.element, type)
    return spec.type.element


def _element_response(element: Any, arrays: ArrayPair, response_class: type[Struct]) -> Struct:
    """Return an empty response to one element of a request, with its keys."""
    response = response_class()
    for request_field, response_field in arrays.keys:
        in_request = not request_field or hasattr(element, request_field)
        if hasattr(response, response_field) and in_request:
            setattr(response, response_field, _field(element, request_field))
    return response


def _with(struct: Any, name: str, value: list[Any]) -> Any:
    changed = copy(struct)
    setattr(changed, name, value)
    return changed


def _merge(response: Any, error_response: Any, arrays: ArrayPair, inner: ArrayPair | None) -> None:
    def key_of(element: Any) -> tuple[Any, ...]:
        return tuple(_field(element, response_field) for _, response_field in arrays.keys)

    merged = list(getattr(response, arrays.response_array))
    by_key = {key_of(element): element for element in merged}
    for element in getattr(error_response, arrays.response_array):
        existing = by_key.get(key_of(element))
        if existing is not None and inner is not None:
            _merge(existing, element, inner, None)
        else:
            merged.append(element)
    setattr(response, arrays.response_array, merged)


def _topic_of(
    topics: TopicTable | None,
    api_key: int,
    arrays: ArrayPair,
    element: Any,
    *,
    in_response: bool = False,
) -> str | None:
    """Return the topic of an element, by name or id."""
    if api_key not in _TOPIC_APIS:
        return None
    for request_field, response_field in arrays.keys:
        value = _field(element, response_field if in_response else request_field)
        if response_field in _TOPIC_FIELDS and value:
            return value
        if response_field == "topic_id" and topics is not None:
            topic = topics.by_id(value)
            return None if topic is None else topic.name
    return None


def _error_path_of(api_key: int, request: Any) -> ErrorPath | None:
    """Return the error path of a request, or None if its response has a single error code."""
    for path in RESPONSE_SHAPES.get(api_key, ()):
        if getattr(request, path.outer.request_array):
            return path
    return None


def _field(element: Any, name: str) -> Any:
    """Return a field of an element, or the element itself for an empty name."""
    return getattr(element, name, None) if name else element
