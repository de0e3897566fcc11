"""Filters with the names of pyspark's classes, which pyspark 4.0 does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Condition:
    """Represents a condition on a column.

    Attributes:
        attribute: The column, and fields in it.
        value: What the column is compared with.
    """

    attribute: tuple[str, ...]
    value: Any = None


@dataclass
class Not:
    """Represents the negation of a condition."""

    child: object


def condition(kind: str, column: str, value: Any = None) -> Condition:
    """Return a condition whose class has a name, such as "EqualTo"."""
    return type(kind, (Condition,), {})((column,), value)
