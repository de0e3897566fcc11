"""Tests of the fuzzer: it finds a planted bug, counts executions, and a short run is clean."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fuzz import runner
from fuzz.target import NAMES
from tests.programs import ROOT, output_of

if TYPE_CHECKING:
    from tests.conftest import CannotRun

pytestmark = pytest.mark.slow

SECONDS = 45


@pytest.fixture(autouse=True)
def require_atheris(cannot_run: CannotRun) -> None:
    """Skip without atheris, or fail with CI=true."""
    if importlib.util.find_spec("atheris") is None:
        cannot_run("atheris", "pip install -r tools/requirements-dev.txt")


def test_finds_and_replays_a_planted_bug(tmp_path: Path) -> None:
    made = runner.fuzz("tests.fuzz.planted", seconds=0, runs=500_000, seed=3, folder=tmp_path)
    (finding,) = made.findings
    assert "the planted promise is broken" in finding.what
    assert Path(finding.file).read_bytes()[:3] == b"Kaf"
    assert 0 < made.executions < 500_000
    again = subprocess.run(
        [*made.replay_command.split(), finding.file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1
    assert "the planted promise is broken" in again.stdout


def test_fuzzer_that_does_not_start_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANTED_FAILURE", "1")
    with pytest.raises(runner.FuzzerFailed, match="does not start"):
        runner.fuzz("tests.fuzz.planted", seconds=1, runs=0, seed=1, folder=tmp_path)


@pytest.mark.timeout(5 * SECONDS)
def test_short_run_finds_nothing(seeded: int) -> None:
    output = output_of("-m", "fuzz", "short", "--seconds", str(SECONDS), "--seed", str(seeded))
    print(output)  # noqa: T201 shown if the test fails
    lines = output.splitlines()[-len(NAMES) :]
    assert [line.split()[0] for line in lines] == list(NAMES)
    for line in lines:
        found = re.search(r"([\d,]+) executions .* coverage ([\d,]+) edges .* findings 0$", line)
        assert found, line
        executions, edges = (int(number.replace(",", "")) for number in found.groups())
        assert executions > 1_000
        assert edges > 50
