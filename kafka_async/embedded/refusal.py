"""Answers that are error codes: a whole request refused, a part of it, or an answer overwritten."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final

from kafka_async.embedded.shape import SHAPES, Level, field, key_of, path_of, topic_key
from kafka_async.protocol.api import lookup
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.registry import Api
from kafka_async.protocol.spec import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.message import Struct

_ERROR_FIELDS: Final = ("error_code", "partition_error_code")
_BLANK: Final = {
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
"""What a refused answer holds where the schema's default would look like an answer."""


def mentions(context: RequestContext, request: Any) -> Iterator[tuple[str | None, int | None]]:
    """Every topic and partition that a request is about; one (None, None) if it is about none."""
    path = path_of(context.api_key, request)
    if path is None:
        yield None, None
        return
    for element in getattr(request, path.outer.asked):
        topic = _topic_of(context, path.outer, element)
        if path.inner is None:
            yield topic, None
            continue
        for leaf in getattr(element, path.inner.asked):
            yield topic, field(leaf, path.inner.keys[0][0])


def _everything(topic: str | None, partition: int | None) -> bool:
    return True


class Refusal:
    """One error code as the answer to the parts of a request that `concerns` selects.

    `concerns(topic, partition)` is given None for what a part has not.
    """

    def __init__(
        self,
        context: RequestContext,
        code: int,
        concerns: Callable[[str | None, int | None], bool] = _everything,
    ) -> None:
        self._context = context
        self._code = int(code)
        self._concerns = concerns

    def whole(self, request: Any) -> Any | None:
        """The answer that refuses everything; None if the API has no room for an error."""
        return Refusal(self._context, self._code).split(request)[0]

    def split(self, request: Any) -> tuple[Any | None, Any | None]:
        """The answer to what is refused, and the request for what is left of it.

        The answer is None if there is no room for an error, the rest None if nothing is left.
        """
        api = lookup(self._context.api_key)
        assert isinstance(api, Api)
        response = api.response()
        path = path_of(self._context.api_key, request)
        if path is None:
            return (response, None) if self._mark(response) else (None, None)
        refused: list[Any] = []
        left: list[Any] = []
        for element in getattr(request, path.outer.asked):
            answer, remaining = self._split_element(element, path.outer, path.inner, api.response)
            if answer is not None:
                refused.append(answer)
            if remaining is not None:
                left.append(remaining)
        setattr(response, path.outer.answered, refused)
        rest = _with(request, path.outer.asked, left) if left or self._names_brokers() else None
        return (response if refused else None), rest

    def _names_brokers(self) -> bool:
        """Return whether a response holds the brokers of the cluster, whatever the topics' errors.

        Version 0 of Metadata cannot ask for no topics.
        """
        return self._context.api_key == MetadataRequest.API_KEY and self._context.version > 0

    def merge(self, response: Any, refused: Any) -> Any:
        """A response, and with it what was refused."""
        for path in SHAPES[self._context.api_key]:
            if getattr(refused, path.outer.answered):
                _merge(response, refused, path.outer, path.inner)
                return response
        return response

    def overwrite(self, response: Any) -> Any:
        """The response with the error in it: it is done, and the client hears that it failed."""
        if response is None:
            return None
        marked = False
        for path in SHAPES.get(self._context.api_key, ()):
            for element in getattr(response, path.outer.answered):
                topic = _topic_of(self._context, path.outer, element, answer=True)
                if path.inner is None:
                    leaves = [(element, None)]
                else:
                    index = path.inner.keys[0][1]
                    answers = getattr(element, path.inner.answered)
                    leaves = [(leaf, field(leaf, index)) for leaf in answers]
                for leaf, partition in leaves:
                    if self._concerns(topic, partition):
                        marked = self._mark(leaf) or marked
        if not marked:
            self._mark(response)
        return response

    def _split_element(
        self, element: Any, level: Level, inner: Level | None, parent: type[Struct]
    ) -> tuple[Any | None, Any | None]:
        topic = _topic_of(self._context, level, element)
        answer_class = _element_class(parent, level.answered)
        answer = _answer(element, level, answer_class)
        if inner is None:
            if not self._concerns(topic, None):
                return None, element
            self._mark(answer)
            return answer, None
        leaf_class = _element_class(answer_class, inner.answered)
        refused: list[Any] = []
        left: list[Any] = []
        for leaf in getattr(element, inner.asked):
            if self._concerns(topic, field(leaf, inner.keys[0][0])):
                refused.append(_answer(leaf, inner, leaf_class))
                self._mark(refused[-1])
            else:
                left.append(leaf)
        setattr(answer, inner.answered, refused)
        return answer if refused else None, _with(element, inner.asked, left) if left else None

    def _mark(self, answer: Any) -> bool:
        """Put the error into an answer; False if it has no field for one in this version."""
        for spec in answer.SPEC.fields:
            if spec.name in _ERROR_FIELDS and spec.versions.contains(self._context.version):
                setattr(answer, spec.name, self._code)
                for name, value in _BLANK.items():
                    if hasattr(answer, name):
                        setattr(answer, name, value)
                return True
        return False


def _element_class(parent: type[Struct], name: str) -> type[Struct]:
    spec = next(spec for spec in parent.SPEC.fields if spec.name == name)
    assert isinstance(spec.type, Array)
    assert isinstance(spec.type.element, type)
    return spec.type.element


def _answer(element: Any, level: Level, answer_class: type[Struct]) -> Struct:
    """A blank answer to one element, with its keys."""
    answer = answer_class()
    for asked, answered in level.keys:
        if hasattr(answer, answered) and (not asked or hasattr(element, asked)):
            setattr(answer, answered, field(element, asked))
    return answer


def _with(struct: Any, name: str, value: list[Any]) -> Any:
    changed = copy(struct)
    setattr(changed, name, value)
    return changed


def _merge(response: Any, refused: Any, level: Level, inner: Level | None) -> None:
    names = [answered for _, answered in level.keys]
    merged = list(getattr(response, level.answered))
    by_key = {key_of(element, names): element for element in merged}
    for element in getattr(refused, level.answered):
        existing = by_key.get(key_of(element, names))
        if existing is not None and inner is not None:
            _merge(existing, element, inner, None)
        else:
            merged.append(element)
    setattr(response, level.answered, merged)


def _topic_of(
    context: RequestContext, level: Level, element: Any, *, answer: bool = False
) -> str | None:
    key = topic_key(context.api_key, level, element, answer=answer)
    if key is None:
        return None
    name, topic_id = key
    if name:
        return name
    topic = context.cluster.topics.by_id(topic_id)
    return None if topic is None else topic.name
