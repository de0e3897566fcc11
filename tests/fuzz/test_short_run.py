"""Tests of the fuzzer: it finds a planted bug, counts executions, and a short run is clean."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import runner
from fuzz.target import NAMES
from kafka_async.testing.environment import in_ci

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECONDS = 60


@pytest.fixture(autouse=True)
def require_atheris() -> None:
    """Skip without atheris, or fail with CI=true."""
    if importlib.util.find_spec("atheris") is None:
        report = pytest.fail if in_ci() else pytest.skip
        report("no atheris: pip install -r tools/requirements-dev.txt")


def test_finds_and_replays_a_planted_bug(tmp_path: Path) -> None:
    made = runner.fuzz("tests.fuzz.planted", seconds=0, runs=500_000, seed=3, folder=tmp_path)
    (finding,) = made.findings
    assert "the planted promise is broken" in finding.what
    assert Path(finding.file).read_bytes()[:3] == b"Kaf"
    assert 0 < made.executions < 500_000
    again = subprocess.run(
        finding.replay(made.target).split(), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert "the planted promise is broken" in again.stdout


def test_fuzzer_that_does_not_start_raises(tmp_path: Path) -> None:
    with pytest.raises(runner.FuzzerFailed, match="No module named"):
        runner.fuzz("tests.fuzz.absent", seconds=1, runs=0, seed=1, folder=tmp_path)


def test_runs_add_up(tmp_path: Path) -> None:
    for number in (1, 2):
        made = runner.fuzz("compression", seconds=0, runs=1_000, seed=number, folder=tmp_path)
        entry = runner.save_run(made, tmp_path)
    assert made.findings == []
    assert entry["executions"] >= 2_000
    assert [run["seed"] for run in entry["runs"]] == [1, 2]
    assert runner.load_state(tmp_path)["compression"] == entry


@pytest.mark.timeout(5 * SECONDS)
def test_short_run_finds_nothing(seeded: int) -> None:
    command = [sys.executable, "-m", "fuzz", "short", "--seconds", str(SECONDS)]
    done = subprocess.run(
        [*command, "--seed", str(seeded)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)  # noqa: T201 shown if the test fails
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()[-len(NAMES) :]
    assert [line.split()[0] for line in lines] == list(NAMES)
    for line in lines:
        found = re.search(r"([\d,]+) executions .* coverage ([\d,]+) edges .* findings 0$", line)
        assert found, line
        executions, edges = (int(number.replace(",", "")) for number in found.groups())
        assert executions > 1_000
        assert edges > 50
