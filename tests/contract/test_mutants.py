"""The mutation run's tables are up to date, and every mutant is killed."""

from __future__ import annotations

import pytest

from tests.contract.mutants import KILLED_BY_UNIT_TEST, UNREACHABLE, mutants
from tests.programs import output_of


def test_every_row_matches_a_mutant() -> None:
    assert {*KILLED_BY_UNIT_TEST, *UNREACHABLE} <= mutants().keys()
    assert KILLED_BY_UNIT_TEST.keys().isdisjoint(UNREACHABLE)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_mutant_is_killed() -> None:
    output_of("-m", "tests.contract.mutants")
