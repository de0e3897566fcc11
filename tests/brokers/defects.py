"""Defects of responses: rows that are missing, doubled, in another order, added, or about others.

`defects_of` derives them from the fields of a response. A `Defect` changes one response.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafka_async.protocol import spec
from kafka_async.protocol.spec import Array, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHER_ID: Final = UUID(int=77)
KEYS: Final[dict[Any, Callable[[Any], Any]]] = {
    spec.STRING: lambda value: "other",
    spec.UUID: lambda value: OTHER_ID,
    spec.INT32: lambda value: value + 77,
}
"""Values of another row by the type of the field."""
NOT_KEYS: Final = ("error_message", "metadata", "leader", "rack", "host", "port", "epoch")
"""Beginnings and ends of names of fields that do not identify a row."""


class Defect(NamedTuple):
    """A way to change a response: the names of nested fields, the last one is changed."""

    path: tuple[str, ...]
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(self.path)}"

    def apply(self, response: Any, *, everywhere: bool = False) -> bool:
        """Change the first place in the response that has the field; return False without one.

        With `everywhere` all places are changed.
        """
        found = [each for each in owners(response, self.path) if self._fits(each)]
        name = self.path[-1]
        for owner in found if everywhere else found[:1]:
            setattr(owner, name, CHANGES[self.kind](getattr(owner, name)))
        return bool(found)

    def has_place(self, response: Any) -> bool:
        """Return True if a place in the response can have the defect."""
        return any(self._fits(each) for each in owners(response, self.path))

    def _fits(self, owner: Any) -> bool:
        value = getattr(owner, self.path[-1])
        if self.kind == "null":
            return value is not None
        return bool(value) and (self.kind != "reverse" or len(value) > 1)


def owners(struct: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield the structures that have the last field of a path."""
    if len(path) == 1:
        yield struct
        return
    value: Any = getattr(struct, path[0])
    rows: list[Any] = [*value] if isinstance(value, list | tuple) else [value]
    for row in rows:
        if row is not None:
            yield from owners(row, path[1:])


def other(row: Any) -> Any:
    """Return a copy of a row about another topic, partition, group or the like."""
    found = copy(row)
    for field in row.SPEC.fields:
        is_key = not any(field.name.startswith(n) or field.name.endswith(n) for n in NOT_KEYS)
        if field.type in KEYS and is_key:
            setattr(found, field.name, KEYS[field.type](getattr(row, field.name)))
    return found


CHANGES: Final[dict[str, Callable[[Any], Any]]] = {
    "drop the first of": lambda rows: list(rows)[1:],
    "drop all": lambda rows: [],
    "double": lambda rows: [row for row in rows for _ in range(2)],
    "reverse": lambda rows: list(rows)[::-1],
    "add to": lambda rows: [other(rows[0]), *rows],
    "rename the first of": lambda rows: [other(rows[0]), *list(rows)[1:]],
    "null": lambda value: None,
}


def defects_of(struct: Any, version: int, path: tuple[str, ...] = ()) -> Iterator[Defect]:
    """Yield the defects of a response in a version, those of nested structures included."""
    for field in struct.SPEC.fields:
        if not field.versions.contains(version):
            continue
        here = (*path, field.name)
        if field.nullable is not None and field.nullable.contains(version):
            yield Defect(here, "null")
        kind = field.type.element if isinstance(field.type, Array) else field.type
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            continue
        if isinstance(field.type, Array):
            yield from (Defect(here, change) for change in CHANGES if change != "null")
        yield from defects_of(kind, version, here)
