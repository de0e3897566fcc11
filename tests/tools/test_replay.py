"""The printed seed reproduces a test that fails by chance."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import ROOT, run_python

RANDOM_TESTS = """
import random
from hypothesis import given, strategies as st

def test_random():
    assert random.random() < 0

@given(st.integers(0, 10**9))
def test_hypothesis(number):
    raise ValueError(f"drew {number}")
"""


def run_random_tests(place: Path, **variables: str) -> tuple[list[str], list[str]]:
    """Run the random tests; return their numbers and the printed commands that repeat them."""
    test = place / "test_random.py"
    test.write_text(RANDOM_TESTS)
    command = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += [f"--rootdir={place}", "-c", str(ROOT / "pyproject.toml"), str(test)]
    environment = {"PYTHONPATH": str(ROOT), "KAFKA_ASYNC_TEST_SEED": "", **variables}
    done = run_python(*command, cwd=place, **environment)
    assert done.returncode == 1, done.stdout
    shown = re.findall(r"^E +(?:assert|ValueError: drew) ([\d.]+)", done.stdout, re.MULTILINE)
    return shown, re.findall(r"^KAFKA_ASYNC_TEST_SEED=.*", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_same_seed_makes_same_choices(tmp_path: Path) -> None:
    first, commands = run_random_tests(tmp_path)
    assert len(first) >= 2
    assert [command.rpartition(" ")[2] for command in commands] == [
        "'test_random.py::test_random'",
        "'test_random.py::test_hypothesis'",
    ]
    seed = commands[0].partition(" ")[0].partition("=")[2]
    assert run_random_tests(tmp_path, KAFKA_ASYNC_TEST_SEED=seed)[0] == first
    assert run_random_tests(tmp_path, KAFKA_ASYNC_TEST_SEED=str(int(seed) + 1))[0] != first
