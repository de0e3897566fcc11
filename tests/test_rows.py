"""The helpers of tests with tables: rows are named in failures, and cover all pairs of values."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.rows import others_slow, pairs, row

AXES = ([1, 2, 3], ["a", "b"], [None, True], ["x", "y", "z"])


def check(*values: object) -> None:
    with row(*values):
        assert "a" not in values


def test_failure_names_its_row() -> None:
    with pytest.raises(AssertionError) as caught:
        check(1, "a")
    assert caught.value.__notes__ == ["in the row: 1, a"]
    check(1, "b")


def test_rows_cover_each_pair_of_values_and_are_few() -> None:
    rows = pairs(*AXES)
    for first, second in combinations(range(len(AXES)), 2):
        found = {(each[first], each[second]) for each in rows}
        assert found == {*product(AXES[first], AXES[second])}
    assert len(rows) <= 12 < len([*product(*AXES)])


def test_rows_that_are_not_chosen_are_slow() -> None:
    first, second = others_slow([(1, "a"), (2, "b")], [(2, "b")])
    assert first.values == (1, "a")
    assert [mark.name for mark in first.marks] == ["slow"]
    assert not second.marks
