"""Filters that Spark pushes into a batch read, as partitions and offset bounds. Pure.

Filters on topic, partition and offset select records exactly. A lower timestamp bound selects the
offsets from the first record at or after it; Spark filters these again, because later records may
have earlier timestamps. For the same reason, an upper timestamp bound is left to Spark.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafka_async.kernel.shared import MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.types import TopicPartition

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_TYPES: Final = {"topic": str, "partition": int, "offset": int}
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": lambda column, value: column == value,
    "EqualNullSafe": lambda column, value: column == value,
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
    "StringStartsWith": lambda column, value: column.startswith(value),
    "StringEndsWith": lambda column, value: column.endswith(value),
    "StringContains": lambda column, value: value in column,
}
"""Comparisons by the names of pyspark's filter classes, which pyspark 4.0 lacks."""
_LOWER_BOUNDS: Final = frozenset({"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"})


@dataclass
class Selection:
    """Collects filters; all of them must hold.

    Attributes:
        first: Lowest offset.
        end: Offset after the highest one.
        timestamp: Lower bound in milliseconds since the epoch, or None.
    """

    first: int = 0
    end: int = MAX_INT64
    timestamp: int | None = None
    _tests: list[Callable[[TopicPartition], bool]] = field(
        default_factory=list["Callable[[TopicPartition], bool]"]
    )

    def reads(self, tp: TopicPartition) -> bool:
        """Return whether the partition may have selected records."""
        return all(test(tp) for test in self._tests)

    def add(self, condition: object) -> bool:
        """Add a filter of pyspark; return True if Spark need not apply it again."""
        kind = type(condition).__name__
        if kind == "Not":
            return self._add_negated(getattr(condition, "child", None))
        column, value = _operands(condition)
        if kind == "IsNotNull":
            return column in _NEVER_NULL
        if column == "timestamp":
            self._add_timestamp(kind, value)
            return False
        test = _test(kind, column, value)
        if test is None:
            return False
        if column == "offset":
            return self._add_offset(kind, value)
        self._tests.append(_of_column(column, test))
        return True

    def _add_negated(self, child: object) -> bool:
        kind = type(child).__name__
        column, value = _operands(child)
        test = _test(kind, column, value)
        if test is None or column == "offset":
            return False
        of_column = _of_column(column, test)
        self._tests.append(lambda tp: not of_column(tp))
        return True

    def _add_offset(self, kind: str, value: Any) -> bool:
        if kind == "In":
            values = [each for each in value if each is not None]
            self._limit(min(values, default=0), max(values, default=-1) + 1)
            return False
        first = {"GreaterThan": value + 1}.get(kind, value)
        end = {"LessThan": value}.get(kind, value + 1)
        self._limit(
            first if not kind.startswith("LessThan") else None,
            end if not kind.startswith("GreaterThan") else None,
        )
        return True

    def _limit(self, first: int | None, end: int | None) -> None:
        self.first = max(self.first, self.first if first is None else first)
        self.end = min(self.end, self.end if end is None else end)

    def _add_timestamp(self, kind: str, value: object) -> None:
        if kind not in _LOWER_BOUNDS or not isinstance(value, datetime.datetime):
            return
        if value.tzinfo is not None and value >= EPOCH:
            milliseconds = (value - EPOCH) // MILLISECOND
            self.timestamp = max(self.timestamp or 0, milliseconds)


def _operands(condition: object) -> tuple[str, Any]:
    """Return the column and the value of a filter; the column is empty for a nested field."""
    path = getattr(condition, "attribute", ())
    return (path[0] if len(path) == 1 else ""), getattr(condition, "value", None)


def _test(kind: str, column: str, value: Any) -> Callable[[Any], bool] | None:
    """Return a test for values of the column, or None for an unsupported filter."""
    kind_of_value = _TYPES.get(column)
    if kind_of_value is None:
        return None
    if kind == "In":
        values = [each for each in value if each is not None]
        if not all(_is(each, kind_of_value) for each in values):
            return None
        return lambda each: each in values
    compare = _COMPARISONS.get(kind)
    if compare is None or not _is(value, kind_of_value):
        return None
    return lambda each: compare(each, value)


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _of_column(column: str, test: Callable[[Any], bool]) -> Callable[[TopicPartition], bool]:
    return lambda tp: test(tp.topic if column == "topic" else tp.partition)
