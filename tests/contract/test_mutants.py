"""The mutation run's tables are up to date, and a sample of the mutants is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.contract.mutants import KILLED_BY_UNIT_TEST, ROOT, UNREACHABLE, mutants

SAMPLE = "25"


def test_every_row_matches_a_mutant() -> None:
    names = [mutant.name for mutant in mutants()]
    assert len(set(names)) == len(names)
    assert {*KILLED_BY_UNIT_TEST, *UNREACHABLE} <= set(names)
    assert KILLED_BY_UNIT_TEST.keys().isdisjoint(UNREACHABLE)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sample_of_mutants_is_killed(seeded: int) -> None:
    options = ["--sample", SAMPLE, "--seed", str(seeded)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.mutants", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
