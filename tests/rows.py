"""Rows of a table that one test checks, and choices of rows where all would be too many."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import combinations, product
from typing import Any

import pytest


@contextmanager
def row(*values: object) -> Generator[None]:
    """Name a row of a table in the failure of its check, whatever that raises.

    Small checks cost less in a loop of one test than in a test each.
    """
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row: {', '.join(f'{value!s:.200}' for value in values)}")
        raise


def others_slow(rows: Sequence[tuple[Any, ...]], chosen: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return all rows as parameters of a test, which is slow unless its row is one of `chosen`."""
    return [pytest.param(*each, marks=() if each in chosen else pytest.mark.slow) for each in rows]


def pairs(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return rows with each pair of values of any two axes in at least one of them."""
    missing = {
        (first, one, second, other)
        for first, second in combinations(range(len(axes)), 2)
        for one in range(len(axes[first]))
        for other in range(len(axes[second]))
    }
    candidates = list(product(*(range(len(axis)) for axis in axes)))
    rows: list[tuple[Any, ...]] = []
    while missing:
        best = max(candidates, key=lambda each: len(missing & pairs_in(each)))
        missing -= pairs_in(best)
        rows.append(tuple(axis[index] for axis, index in zip(axes, best, strict=True)))
    return rows


def pairs_in(chosen: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    """Return each pair of an axis and its value in a row, with another of the row."""
    return {
        (first, chosen[first], second, chosen[second])
        for first, second in combinations(range(len(chosen)), 2)
    }
