"""Instruction counts of the hot paths, and their comparison with the budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.programs import output_of
from tests.tools import planted_paths
from tools.instructions import budget, valgrind
from tools.instructions.budget import Row, compare
from tools.instructions.paths import PATHS

if TYPE_CHECKING:
    from tests.conftest import CannotRun

ROWS = {"append": Row(1000, 0.02)}
CI_PYTHON = "3.11"


@pytest.mark.parametrize(
    ("counted", "problem"),
    [
        (1000, ""),
        (1019, ""),
        (981, ""),
        (1021, "over the budget"),
        (1100, "+10.0%: over the budget"),
        (979, "lower the budget"),
        (900, "-10.0%: below the budget; lower the budget"),
    ],
)
def test_compares_count_within_tolerance_of_row(counted: float, problem: str) -> None:
    (comparison,) = compare({"append": counted}, ROWS)
    assert problem in comparison.problem
    assert bool(problem) == bool(comparison.problem)


def test_reports_path_without_budget_and_budget_without_path() -> None:
    new, old = compare({"poll": 1.0}, ROWS)
    assert (new.path, new.problem) == ("poll", "has no budget: write one")
    assert (old.path, old.problem) == ("append", "no such path: remove the row from the budget")
    assert [each.path for each in compare({"poll": 1.0}, ROWS, whole=False)] == ["poll"]


def test_updated_budget_keeps_tolerances_and_other_rows(tmp_path: Path) -> None:
    rows = {"append": Row(1000, 0.05), "poll": Row(2000, 0.01)}
    updated = budget.updated({"append": 900.4, "seal": 7}, rows, whole=False)
    assert updated == {"append": Row(900, 0.05), "poll": Row(2000, 0.01), "seal": Row(7)}
    assert list(budget.updated({"seal": 7}, rows, whole=True)) == ["seal"]
    file = tmp_path / "budget.toml"
    budget.save({"3.11": updated, "3.12": {"a, b": Row(1)}}, file)
    assert budget.load(file) == {"3.11": updated, "3.12": {"a, b": Row(1)}}


def test_each_path_has_budget_for_python_of_ci() -> None:
    assert list(budget.load()[CI_PYTHON]) == [path.name for path in PATHS]


def test_error_without_valgrind_names_packages_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(valgrind.ToolError, match="apt-get install valgrind gcc"):
        valgrind.require_valgrind()


# -- under callgrind ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def valgrind_installed(cannot_run: CannotRun) -> None:
    """Install valgrind if possible; else skip the test, or fail in CI."""
    try:
        valgrind.require_valgrind()
    except valgrind.ToolError as error:
        cannot_run("instructions", error)
    if (python := budget.python_version()) not in budget.load():
        cannot_run("instructions", f"no budget for {python}: make instructions --write makes one")


@pytest.fixture(scope="module")
def counts(
    valgrind_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, valgrind.Count]:
    """Count all paths once."""
    return valgrind.count(PATHS, tmp_path_factory.mktemp("counts"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hot_paths_keep_their_budget(counts: dict[str, valgrind.Count]) -> None:
    rows = budget.load()[budget.python_version()]
    comparisons = compare({name: count.total for name, count in counts.items()}, rows)
    assert not [each for each in comparisons if each.problem], budget.table(comparisons)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_command_prints_each_path_that_it_counts(valgrind_installed: None, tmp_path: Path) -> None:
    output = output_of("-m", "tools.instructions", "--folder", tmp_path, "--only", "append")
    assert "append" in output


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_detects_one_more_dictionary_access_per_record(
    counts: dict[str, valgrind.Count], tmp_path: Path
) -> None:
    planted = planted_paths.PATHS
    names = [path.name for path in planted]
    tolerances = {name: budget.load()[budget.python_version()][name].tolerance for name in names}
    rows = {name: Row(counts[name].total, tolerances[name]) for name in names}
    again = valgrind.count([path for path in PATHS if path.name in names], tmp_path / "again")
    assert not [
        each for each in compare({n: c.total for n, c in again.items()}, rows) if each.problem
    ]
    slower = valgrind.count(planted, tmp_path, planted_paths.__name__)
    comparisons = compare({name: count.total for name, count in slower.items()}, rows)
    assert [comparison.path for comparison in comparisons] == names
    for comparison in comparisons:
        assert "over the budget" in comparison.problem, comparison


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_counts_of_functions_add_up_to_count_of_path(counts: dict[str, valgrind.Count]) -> None:
    count = counts["append"]
    assert sum(count.functions.values()) == pytest.approx(count.total, rel=0.001)
    assert any("OpenBatch_put" in function for function in count.functions)
