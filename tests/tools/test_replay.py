"""A test that fails by chance fails again with the seed that it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DICE = """
import random
from hypothesis import given, strategies as st

def test_dice():
    assert random.random() < 0

@given(st.integers(0, 10**9))
def test_hypothesis(number):
    raise ValueError(f"drew {number}")
"""


def rolls(place: Path, **words: str) -> tuple[list[str], list[str]]:
    """What the dice showed, and the lines that say how to see it again."""
    test = place / "test_dice.py"
    test.write_text(DICE)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += [f"--rootdir={place}", "-c", str(ROOT / "pyproject.toml"), str(test)]
    inherited = {k: v for k, v in os.environ.items() if k != "KAFKA_ASYNC_TEST_SEED"}
    done = subprocess.run(
        command,
        cwd=place,
        env={**inherited, "PYTHONPATH": str(ROOT), **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    shown = re.findall(r"^E +(?:assert|ValueError: drew) ([\d.]+)", done.stdout, re.MULTILINE)
    return shown, re.findall(r"^KAFKA_ASYNC_TEST_SEED=.*", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_the_same_seed_makes_the_same_choices(tmp_path: Path) -> None:
    first, commands = rolls(tmp_path)
    assert len(first) >= 2
    assert [command.rpartition(" ")[2] for command in commands] == [
        "'test_dice.py::test_dice'",
        "'test_dice.py::test_hypothesis'",
    ]
    seed = commands[0].partition(" ")[0].partition("=")[2]
    assert rolls(tmp_path, KAFKA_ASYNC_TEST_SEED=seed)[0] == first
    assert rolls(tmp_path, KAFKA_ASYNC_TEST_SEED=str(int(seed) + 1))[0] != first
