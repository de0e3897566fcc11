"""How an API's response mirrors its request: which array answers which, and by which keys. A table.

It lets one piece of code refuse any request, or a part of it, in the place where that API says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Level(NamedTuple):
    """An array of the request and the array that answers it, element by element.

    `keys` are pairs of a field of the request's element and the field of the response's that
    repeats it; "" is the element itself, where that is no structure.
    """

    asked: str
    answered: str
    keys: tuple[tuple[str, str], ...]


class Path(NamedTuple):
    """The arrays on the way to an error code: topics or the like, and partitions in them."""

    outer: Level
    inner: Level | None = None


_NAME: Final = (("name", "name"), ("topic_id", "topic_id"))
_TOPIC: Final = (("topic", "topic"), ("topic_id", "topic_id"))
_RESOURCE: Final = (("resource_type", "resource_type"), ("resource_name", "resource_name"))
_TOPICS: Final = Level("topics", "topics", _NAME)


def _indexed(asked: str, answered: str, index: str, answered_index: str = "") -> Level:
    return Level(asked, answered, ((index, answered_index or index),))


_BY_PARTITION: Final = Path(_TOPICS, _indexed("partitions", "partitions", "partition_index"))

SHAPES: Final[dict[int, tuple[Path, ...]]] = {
    0: (
        Path(
            Level("topic_data", "responses", _NAME),
            _indexed("partition_data", "partition_responses", "index"),
        ),
    ),
    1: (
        Path(
            Level("topics", "responses", _TOPIC),
            _indexed("partitions", "partitions", "partition", "partition_index"),
        ),
    ),
    2: (_BY_PARTITION,),
    3: (Path(_TOPICS),),
    8: (_BY_PARTITION,),
    9: (Path(Level("groups", "groups", (("group_id", "group_id"),))),),
    10: (Path(Level("coordinator_keys", "coordinators", (("", "key"),))),),
    15: (Path(Level("groups", "groups", (("", "group_id"),))),),
    19: (Path(_TOPICS),),
    20: (
        Path(Level("topics", "responses", _NAME)),
        Path(Level("topic_names", "responses", (("", "name"),))),
    ),
    21: (_BY_PARTITION,),
    23: (
        Path(
            Level("topics", "topics", (("topic", "topic"),)),
            _indexed("partitions", "partitions", "partition"),
        ),
    ),
    24: (
        Path(
            Level("v3_and_below_topics", "results_by_topic_v3_and_below", (("name", "name"),)),
            Level("partitions", "results_by_partition", (("", "partition_index"),)),
        ),
    ),
    28: (_BY_PARTITION,),
    32: (Path(Level("resources", "results", _RESOURCE)),),
    37: (Path(Level("topics", "results", (("name", "name"),))),),
    42: (Path(Level("groups_names", "results", (("", "group_id"),))),),
    44: (Path(Level("resources", "responses", _RESOURCE)),),
    47: (_BY_PARTITION,),
    61: (
        Path(
            Level("topics", "topics", (("name", "name"),)),
            Level("partition_indexes", "partitions", (("", "partition_index"),)),
        ),
    ),
    75: (Path(Level("topics", "topics", (("name", "name"),))),),
}
"""By API key; the first path whose request array is not empty is the one that counts."""

_TOPIC_FIELDS: Final = frozenset({"name", "topic"})
_TOPIC_APIS: Final = frozenset({0, 1, 2, 3, 8, 19, 20, 21, 23, 24, 28, 37, 47, 61, 75})


def path_of(api_key: int, request: Any) -> Path | None:
    """How this request is mirrored; None if its answer has one error for all."""
    for path in SHAPES.get(api_key, ()):
        if getattr(request, path.outer.asked):
            return path
    return None


def field(element: Any, name: str) -> Any:
    """A field of an element; the element itself if the name is empty."""
    return getattr(element, name, None) if name else element


def key_of(element: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """What identifies an element among its siblings."""
    return tuple(field(element, name) for name in names)


def topic_key(
    api_key: int, level: Level, element: Any, *, answer: bool = False
) -> tuple[str, Any] | None:
    """The name and id of the topic that an element is about, None if it is about something else."""
    if api_key not in _TOPIC_APIS:
        return None
    name: str | None = None
    topic_id: Any = None
    for asked, answered in level.keys:
        value = field(element, answered if answer else asked)
        if answered in _TOPIC_FIELDS:
            name = value
        elif answered == "topic_id":
            topic_id = value
    return name or "", topic_id
