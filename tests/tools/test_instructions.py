"""The guard of the hot paths: what it counts is what is done, and what costs more is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafka_async.testing.environment import in_ci
from tests.tools import planted_paths
from tools.instructions import budget, valgrind
from tools.instructions.budget import Row, judge
from tools.instructions.paths import PATHS

ROWS = {"append": Row(1000, 0.02)}
CI_PYTHON = "3.11"


@pytest.mark.parametrize(
    ("counted", "problem"),
    [
        (1000, ""),
        (1019, ""),
        (981, ""),
        (1021, "over its budget"),
        (1100, "+10.0%: over its budget"),
        (979, "lower the budget"),
        (900, "-10.0%: cheaper than its budget; lower the budget"),
    ],
)
def test_a_count_stands_or_falls_by_its_rows_tolerance(counted: float, problem: str) -> None:
    (verdict,) = judge({"append": counted}, ROWS)
    assert problem in verdict.problem
    assert bool(problem) == bool(verdict.problem)


def test_a_path_without_a_budget_and_a_budget_without_a_path_are_problems() -> None:
    new, old = judge({"poll": 1.0}, ROWS)
    assert (new.path, new.problem) == ("poll", "has no budget: write one")
    assert (old.path, old.problem) == ("append", "no such path: take the row out of the budget")
    assert [each.path for each in judge({"poll": 1.0}, ROWS, whole=False)] == ["poll"]


def test_a_renewed_budget_keeps_its_tolerances_and_what_was_not_counted(tmp_path: Path) -> None:
    rows = {"append": Row(1000, 0.05), "poll": Row(2000, 0.01)}
    renewed = budget.renewed({"append": 900.4, "seal": 7}, rows, whole=False)
    assert renewed == {"append": Row(900, 0.05), "poll": Row(2000, 0.01), "seal": Row(7)}
    assert list(budget.renewed({"seal": 7}, rows, whole=True)) == ["seal"]
    file = tmp_path / "budget.toml"
    budget.save({"3.11": renewed, "3.12": {"a, b": Row(1)}}, file)
    assert budget.load(file) == {"3.11": renewed, "3.12": {"a, b": Row(1)}}


def test_each_path_has_one_row_for_the_python_of_ci() -> None:
    assert list(budget.load()[CI_PYTHON]) == [path.name for path in PATHS]


def test_without_valgrind_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(valgrind.ToolError, match="apt-get install valgrind gcc"):
        valgrind.require_valgrind()


# -- under callgrind ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def valgrind_is_there() -> None:
    """Root on a Debian gets it installed; elsewhere a skip says what to install; CI fails."""
    report = pytest.fail if in_ci() else pytest.skip
    try:
        valgrind.require_valgrind()
    except valgrind.ToolError as error:
        report(str(error))
    if budget.python() not in budget.load():
        report(f"no budget for Python {budget.python()}: make instructions --write makes one")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("valgrind_is_there")
def test_every_hot_path_keeps_its_budget(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.instructions", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=valgrind.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in PATHS:
        assert path.name in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("valgrind_is_there")
def test_one_look_into_a_dictionary_more_a_record_is_found(tmp_path: Path) -> None:
    planted = planted_paths.PATHS
    names = [path.name for path in planted]
    as_it_is = valgrind.count([path for path in PATHS if path.name in names], tmp_path)
    tolerances = {name: budget.load()[budget.python()][name].tolerance for name in names}
    rows = {name: Row(count.total, tolerances[name]) for name, count in as_it_is.items()}
    again = valgrind.count([path for path in PATHS if path.name in names], tmp_path / "again")
    assert not [v for v in judge({n: c.total for n, c in again.items()}, rows) if v.problem]
    slower = valgrind.count(planted, tmp_path, planted_paths.__name__)
    verdicts = judge({name: count.total for name, count in slower.items()}, rows)
    assert [verdict.path for verdict in verdicts] == names
    for verdict in verdicts:
        assert "over its budget" in verdict.problem, verdict


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("valgrind_is_there")
def test_what_the_functions_take_is_what_the_path_takes(tmp_path: Path) -> None:
    paths = [path for path in PATHS if path.name == "append"]
    (count,) = valgrind.count(paths, tmp_path).values()
    assert sum(count.functions.values()) == pytest.approx(count.total, rel=0.001)
    assert any("OpenBatch_put" in function for function in count.functions)
