"""Builds responses with error codes: for a request, a part of it, or a response already built."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final

from kafka_async.embedded.response_shape import (
    RESPONSE_SHAPES,
    ArrayPair,
    error_path_of,
    field,
    key_of,
    topic_key,
)
from kafka_async.protocol.api import lookup
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.registry import Api
from kafka_async.protocol.spec import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.spec import Struct

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
    context: RequestContext, request: Any
) -> Iterator[tuple[str | None, int | None]]:
    """Yield every topic and partition in a request; (None, None) if the API has none."""
    path = error_path_of(context.api_key, request)
    if path is None:
        yield None, None
        return
    for element in getattr(request, path.outer.request_array):
        topic = _topic_of(context, path.outer, element)
        if path.inner is None:
            yield topic, None
            continue
        for leaf in getattr(element, path.inner.request_array):
            yield topic, field(leaf, path.inner.keys[0][0])


def _selects_all(topic: str | None, partition: int | None) -> bool:
    return True


class ErrorResponseBuilder:
    """Builds responses with an error code for the topics and partitions that `selects` accepts.

    `selects(topic, partition)` is called with None for the topic if an element of the request names
    none, and for the partition if the API has no partitions.
    """

    def __init__(
        self,
        context: RequestContext,
        code: int,
        selects: Callable[[str | None, int | None], bool] = _selects_all,
    ) -> None:
        self._context = context
        self._code = int(code)
        self._selects = selects

    def build(self, request: Any) -> Any | None:
        """Return the error response to a request; None if the API has no field for an error."""
        return ErrorResponseBuilder(self._context, self._code).split(request)[0]

    def split(self, request: Any) -> tuple[Any | None, Any | None]:
        """Return the error response to the selected part, and a request for the rest.

        The response is None if the API has no field for an error, the rest None if it is empty.
        """
        api = lookup(self._context.api_key)
        assert isinstance(api, Api)
        response = api.response()
        path = error_path_of(self._context.api_key, request)
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

    def _has_broker_list(self) -> bool:
        """Return True for Metadata, whose response has the brokers even if all topics fail.

        In version 0 an empty list requests all topics, so no topics cannot be requested.
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
        """Return a response with the error code set, though the request was handled."""
        if response is None:
            return None
        changed = False
        for path in RESPONSE_SHAPES.get(self._context.api_key, ()):
            for element in getattr(response, path.outer.response_array):
                topic = _topic_of(self._context, path.outer, element, in_response=True)
                if path.inner is None:
                    leaves = [(element, None)]
                else:
                    index = path.inner.keys[0][1]
                    inner = getattr(element, path.inner.response_array)
                    leaves = [(leaf, field(leaf, index)) for leaf in inner]
                for leaf, partition in leaves:
                    if self._selects(topic, partition):
                        changed = self._set_error(leaf) or changed
        if not changed:
            self._set_error(response)
        return response

    def _split_element(
        self, element: Any, arrays: ArrayPair, inner: ArrayPair | None, parent: type[Struct]
    ) -> tuple[Any | None, Any | None]:
        topic = _topic_of(self._context, arrays, element)
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
            if self._selects(topic, field(leaf, inner.keys[0][0])):
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
            setattr(response, response_field, field(element, request_field))
    return response


def _with(struct: Any, name: str, value: list[Any]) -> Any:
    changed = copy(struct)
    setattr(changed, name, value)
    return changed


def _merge(response: Any, error_response: Any, arrays: ArrayPair, inner: ArrayPair | None) -> None:
    names = [response_field for _, response_field in arrays.keys]
    merged = list(getattr(response, arrays.response_array))
    by_key = {key_of(element, names): element for element in merged}
    for element in getattr(error_response, arrays.response_array):
        existing = by_key.get(key_of(element, names))
        if existing is not None and inner is not None:
            _merge(existing, element, inner, None)
        else:
            merged.append(element)
    setattr(response, arrays.response_array, merged)


def _topic_of(
    context: RequestContext, arrays: ArrayPair, element: Any, *, in_response: bool = False
) -> str | None:
    key = topic_key(context.api_key, arrays, element, in_response=in_response)
    if key is None:
        return None
    name, topic_id = key
    if name:
        return name
    topic = context.cluster.topics.by_id(topic_id)
    return None if topic is None else topic.name
