"""The stages of `make test`, its last line and its exit status."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from tools import run_tests, test_results
from tools.run_tests import Stage, StageResult, Summary, conclude, read_results

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite>
<properties>
<property name="kafka_backend" value="embedded"/>
<property name="kafka_backend" value="apache 4.4.0"/>
<property name="not_run" value="spark (install Java 17)"/>
</properties>
<testcase classname="a" name="one" time="0.5"/>
<testcase classname="a" name="two" time="1.5"><failure message="no"/></testcase>
<testcase classname="a" name="two" time="0.5"><error message="nor this"/></testcase>
<testcase classname="a" name="three" time="0"><skipped message="not here"/></testcase>
</testsuite></testsuites>
"""

WAITING_INTERPRETER = """#!{python} -SE
import os, sys
print("{mine} in stage")
open("{mine}", "w").close()
while not os.path.exists("{other}"):
    os.sched_yield()
for argument in sys.argv:
    if argument.startswith("--junitxml="):
        with open(argument.partition("=")[2], "w") as report:
            report.write('<testsuite><testcase classname="a" name="b" time="0"/></testsuite>')
"""
"""An interpreter that waits for another one to start, and reports one passed test."""


@pytest.fixture(autouse=True)
def not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def summary(*missing: str, failed: bool = False) -> Summary:
    made = Summary("normal")
    made.add("unit", "python/asyncio", StageResult("unit-python", failed=False, passes=2))
    made.add("unit", "c/uvloop", StageResult("unit-c", failed=False, passes=2))
    backends = ["embedded", "apache 4.4.0"]
    made.add("integration", "", StageResult("integration", failed, passes=1, backends=backends))
    made.missing += missing
    return made


def test_reads_report_of_pytest(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    result = read_results("unit", report, failed=True)
    assert (result.passes, result.failures) == (1, 2)
    assert result.backends == ["embedded", "apache 4.4.0"]
    assert result.missing == ["spark (install Java 17)"]
    assert result.durations["unit: a.two"] == 2.0


def test_failed_stage_without_report_counts_as_failure(tmp_path: Path) -> None:
    result = read_results("unit", tmp_path / "none.xml", failed=True)
    assert (result.failed, result.failures) == (True, 1)


def test_last_line_names_groups_and_variants(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude(summary()) == 0
    assert capsys.readouterr().out == (
        "passed: unit on python/asyncio, c/uvloop; integration on embedded, apache 4.4.0\n"
    )


@pytest.mark.parametrize(("ci", "outcome", "status"), [("", "passed", 0), ("true", "failed", 1)])
def test_names_missing_requirement_and_fails_in_ci(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    outcome: str,
    status: int,
) -> None:
    monkeypatch.setenv("CI", ci)
    assert conclude(summary("apache (install Maven)")) == status
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{outcome}; not run: apache (install Maven)"


def test_names_failed_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude(summary(failed=True)) == 1
    assert capsys.readouterr().out.startswith("failed: integration; ran: unit on python/asyncio")


def test_stage_fails_at_time_limit(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path)
    endless = tmp_path / "test_endless.py"
    endless.write_text("import threading\nthreading.Event().wait()\n")
    stages = [Stage("one", "unit", "not slow", arguments=["--noconftest", str(endless)])]
    results = run_tests.run(stages, "normal", "1", minutes=0)
    assert [result.failed for result in results] == [True]
    assert "one: stopped at the time limit of CI=true" in capfd.readouterr().out


@pytest.mark.parametrize(("ci", "minutes"), [("", None), ("true", 8 * run_tests.CI_TIME_FACTOR)])
def test_limits_time_only_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, minutes: float | None
) -> None:
    monkeypatch.setenv("CI", ci)
    assert run_tests.limit(run_tests.Step(8, ())) == minutes


def test_time_limits_of_slow_tests_are_below_40_minutes() -> None:
    steps = run_tests.STEPS["slow"]
    assert run_tests.PYTHON_MINUTES + sum(step.minutes for step in steps) < 40


def test_time_limits_of_ci_run_are_below_85_minutes() -> None:
    steps = [*run_tests.STEPS["normal"], *run_tests.STEPS["slow"]]
    minutes = run_tests.PYTHON_MINUTES + sum(step.minutes for step in steps)
    assert minutes * run_tests.CI_TIME_FACTOR < 85


def test_runs_stages_in_parallel_and_shows_them_in_order(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path)
    (tmp_path / "normal").mkdir()
    stages: list[Stage] = []
    for mine, other in (("one", "two"), ("two", "one")):
        python = tmp_path / f"python-{mine}"
        python.write_text(
            WAITING_INTERPRETER.format(
                python=sys.executable, mine=tmp_path / mine, other=tmp_path / other
            )
        )
        python.chmod(0o755)
        stages.append(Stage(mine, "unit", "not slow", python=str(python)))
    results = run_tests.run(stages, "normal", "1", minutes=None)
    assert [(result.failed, result.passes) for result in results] == [(False, 1), (False, 1)]
    out = capfd.readouterr().out
    first, second = out.index("--- one ---"), out.index("--- two ---")
    assert f"{tmp_path / 'one'} in stage" in out[first:second]
    assert f"{tmp_path / 'two'} in stage" in out[second:]


def test_every_combination_of_marks_belongs_to_a_stage() -> None:
    marks = ("integration", "spark", "slow", "foreign", "one_kernel")
    steps = [*run_tests.STEPS["normal"], *run_tests.STEPS["slow"]]
    stages = [stage.select for step in steps for stage in step.stages]
    for chosen in itertools.product((False, True), repeat=len(marks)):
        facts: dict[str, object] = dict(zip(marks, chosen, strict=True))
        assert any(eval(select, {}, facts) for select in stages), facts


def test_halves_of_slow_tests_are_complements() -> None:
    slow, computing = run_tests.STEPS["slow"][-1].stages
    assert slow.select == computing.select
    assert slow.arguments == [f"--ignore={directory}" for directory in computing.arguments]
    root = Path(run_tests.__file__).parent.parent
    assert [each for each in computing.arguments if not (root / each).is_dir()] == []


def test_ci_adds_up_runs_and_counts_failed_part_without_tests(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(test_results, "RESULTS", tmp_path)
    for name, failures in (("normal", 0), ("slow", 1)):
        part = test_results.Summary(name, passes=10, failures=failures)
        part.durations[f"{name}: a.one"] = 2.5
        part.write()
    assert test_results.main(["lint", "test-slow"]) == 1
    out = capsys.readouterr().out
    assert out.endswith("\n20 passed, 2 failed\n")  # one test, and lint
    assert "2.50 s  slow: a.one" in out
