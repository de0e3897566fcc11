"""The mutation run's tables are up to date, and a sample of the mutants is killed."""

from __future__ import annotations

import pytest

from tests.contract.mutants import KILLED_BY_UNIT_TEST, UNREACHABLE, mutants
from tests.programs import output_of

SAMPLE = "25"


def test_every_row_matches_a_mutant() -> None:
    names = [mutant.name for mutant in mutants()]
    assert len(set(names)) == len(names)
    assert {*KILLED_BY_UNIT_TEST, *UNREACHABLE} <= set(names)
    assert KILLED_BY_UNIT_TEST.keys().isdisjoint(UNREACHABLE)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sample_of_mutants_is_killed(seeded: int) -> None:
    output_of("-m", "tests.contract.mutants", "--sample", SAMPLE, "--seed", str(seeded))
