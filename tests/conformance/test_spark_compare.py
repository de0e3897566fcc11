"""Comparison of two connectors' outcomes, without Spark."""

from __future__ import annotations

import pytest

from tools.conformance.spark.compare import Outcome, compare

ROWS = [("a", 1), ("b", 2)]


def test_equal_rows_and_offsets_are_the_same() -> None:
    result = compare(Outcome(ROWS, [1, 2]), Outcome([*ROWS], [1, 2]))
    assert (result.summary, result.difference) == ("2 rows, 2 parts", None)


def test_two_errors_are_the_same() -> None:
    result = compare(Outcome(error="IllegalArgumentException"), Outcome(error="wrong option"))
    assert (result.summary, result.difference) == ("both refuse: wrong option", None)


@pytest.mark.parametrize(
    ("connector", "ours", "difference"),
    [
        (Outcome(ROWS), Outcome(ROWS[:1]), "rows: connector 2, ours 1; only connector: ('b', 2)"),
        (Outcome(ROWS[:1]), Outcome(ROWS), "rows: connector 1, ours 2; only ours: ('b', 2)"),
        (Outcome(ROWS, [1]), Outcome(ROWS, [2]), "only connector: 1; only ours: 2"),
        (Outcome(ROWS, [1, 2]), Outcome(ROWS, [2, 1]), "another order"),
        (Outcome(ROWS), Outcome(error="no"), "ours raises, connector does not: no"),
        (Outcome(error="no"), Outcome(ROWS), "connector raises, ours does not: no"),
    ],
)
def test_describes_the_first_difference(connector: Outcome, ours: Outcome, difference: str) -> None:
    found = compare(connector, ours).difference
    assert found is not None
    assert difference in found
