"""Which tests `make test` leaves to the slow suite."""

from __future__ import annotations

import pytest

from tests.conftest import is_left_to_slow


@pytest.mark.parametrize(
    ("main", "backends", "left"),
    [
        ("embedded", ["embedded"], False),
        ("embedded", ["apache"], True),
        ("apache", ["embedded"], True),
        ("embedded", ["embedded", "apache"], False),
        ("embedded", ["apache-3.9.1"], False),
        ("embedded", ["external"], False),
    ],
)
def test_slow_suite_runs_a_test_on_the_backend_that_is_not_its_main_one(
    main: str, backends: list[str], left: bool
) -> None:
    assert is_left_to_slow(main, backends) == left
