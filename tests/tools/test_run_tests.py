"""The stages of `make test`, its last line and its exit status."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest

from tests.programs import ROOT
from tools import run_tests, test_results
from tools.run_tests import Plan, Stage, conclude
from tools.test_results import Summary

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite>
<properties>
<property name="kafka_backend" value="embedded"/>
<property name="kafka_backend" value="apache 4.4.0"/>
<property name="kafka_backend" value="embedded"/>
<property name="not_run" value="spark (install Java 17)"/>
</properties>
<testcase classname="a" name="one" time="0.5"/>
<testcase classname="a" name="two" time="1.5"><failure message="no&#10;E  nor so"/></testcase>
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
        open(argument.partition("=")[2], "w").close()
"""
"""An interpreter that waits for another one to start, and creates the report."""


@pytest.fixture(autouse=True)
def not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def summary(*missing: str, failed: str = "") -> Summary:
    ran = {"unit": ["python/asyncio", "c/uvloop"], "integration": ["embedded", "apache 4.4.0"]}
    return Summary("normal", ran=ran, missing=[*missing], failed_stages=failed.split())


def slow_stages(*names: str) -> list[Stage]:
    by_name = {stage.name: stage for stage in run_tests.SLOW_STAGES}
    return [by_name[name] for name in names]


def test_adds_up_reports_of_pytest(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    added = Summary("normal")
    added.add("unit-c", "unit", "c/uvloop", report, failed=True)
    added.add("unit-python", "unit", "python/asyncio", report, failed=True)
    added.add("slow", "slow tests", "", tmp_path / "none.xml", failed=True)
    added.add("none", "foreign clients", "", tmp_path / "none.xml", failed=False)
    assert added.passes == 2
    assert added.failed == [
        "FAILED: unit-c: ::a::two: no",
        "FAILED: unit-c: ::a::two: nor this",
        "FAILED: unit-python: ::a::two: no",
        "FAILED: unit-python: ::a::two: nor this",
        "FAILED: slow ended early, after 0 tests that passed",
    ]
    assert added.ran_on == "unit on c/uvloop, embedded, apache 4.4.0, python/asyncio; slow tests"
    assert added.missing == ["spark (install Java 17)"]
    assert added.failed_stages == ["unit-c", "unit-python", "slow"]
    assert added.durations["unit-c: a.two"] == 2.0


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


def test_names_the_first_failures(capsys: pytest.CaptureFixture[str]) -> None:
    failing = summary(failed="integration")
    failing.failed = [f"FAILED: {number}" for number in range(test_results.MAX_FAILURES + 2)]
    assert conclude(failing) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:-1] == [f"FAILED: {test_results.MAX_FAILURES - 1}", "and 2 more failures"]


def test_names_failed_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude(summary(failed="integration")) == 1
    assert capsys.readouterr().out.startswith("failed: integration; ran: unit on python/asyncio")


def test_stage_fails_at_time_limit(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path)
    endless = tmp_path / "test_endless.py"
    endless.write_text("import threading\nthreading.Event().wait()\n")
    stages = [Stage("one", "unit", "not slow", arguments=["--noconftest", str(endless)])]
    monkeypatch.setenv("CI", "true")
    assert run_tests.run(Plan(0, 1, stages), "normal", "1") == [-1]
    assert "one: stopped at the time limit of CI=true" in capfd.readouterr().out


@pytest.mark.parametrize(("ci", "minutes"), [("", None), ("true", 8 * run_tests.CI_TIME_FACTOR)])
def test_limits_time_only_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, minutes: float | None
) -> None:
    monkeypatch.setenv("CI", ci)
    assert run_tests.limit(Plan(8, 1, ())) == minutes


def test_time_limits_of_a_ci_run_are_85_minutes() -> None:
    plans = [run_tests.normal(Summary("normal"), {"no"}), run_tests.slow(Summary("slow"), {"no"})]
    assert sum(plan.minutes for plan in plans) * run_tests.CI_TIME_FACTOR <= 85


def test_runs_the_named_stages_of_a_kind() -> None:
    plan = run_tests.slow(Summary("slow"), {"contract", "spark"})
    assert [stage.name for stage in plan.stages] == ["spark", "contract"]


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
    assert run_tests.run(Plan(1, 2, stages), "normal", "1") == [0, 0]
    assert all(run_tests.report_of(stage, "normal").exists() for stage in stages)
    out = capfd.readouterr().out
    first, second = out.index("--- one ---"), out.index("--- two ---")
    assert f"{tmp_path / 'one'} in stage" in out[first:second]
    assert f"{tmp_path / 'two'} in stage" in out[second:]


def test_every_combination_of_marks_belongs_to_a_stage() -> None:
    marks = ("integration", "spark", "slow", "foreign", "security", "one_kernel")
    stages = [stage.select for stage in (*run_tests.NORMAL_STAGES, *run_tests.SLOW_STAGES)]
    for chosen in itertools.product((False, True), repeat=len(marks)):
        facts: dict[str, object] = dict(zip(marks, chosen, strict=True))
        running = [select for select in stages if eval(select, {}, facts)]
        assert running, facts
        assert len(set(running)) == 1 or not facts["slow"], facts


def test_tests_of_marked_stages_are_in_their_directories() -> None:
    """A test elsewhere with one of these marks would not run."""
    places = {
        "spark": run_tests.ON_CLUSTERS,
        "foreign": run_tests.WITH_FOREIGN,
        "any_broker": ["tests/integration"],
    }
    elsewhere = [
        (mark, str(path))
        for path in (ROOT / "tests").rglob("*.py")
        for mark, directories in places.items()
        if f"pytest.mark.{mark}" in path.read_text("utf-8")
        if not any(path.is_relative_to(ROOT / directory) for directory in directories)
    ]
    assert elsewhere == []


def test_stages_of_foreign_clients_run_all_tests_of_their_mark() -> None:
    clients, contract = slow_stages("foreign", "contract")
    assert clients.select == contract.select
    assert [*clients.arguments, *contract.arguments] == run_tests.WITH_FOREIGN


def test_halves_of_spark_tests_are_complements() -> None:
    spark, processes = slow_stages("spark", "spark-processes")
    pages, *files = processes.arguments
    assert spark.select == processes.select
    assert [spark.arguments[0], pages] == run_tests.ON_CLUSTERS
    assert spark.arguments[1:] == [f"--ignore={file}" for file in files]
    assert [each for each in files if not (ROOT / each).is_file()] == []


def test_directories_of_core_and_fast_tests_exist() -> None:
    chosen = {*run_tests.CORE, *run_tests.FAST, *run_tests.NOT_FAST}
    assert [name for name in chosen if not (ROOT / "tests" / name).exists()] == []


def test_parts_of_slow_tests_are_complements() -> None:
    slow, computing, failures = slow_stages("slow", "computing", "failures")
    assert slow.select == computing.select == failures.select
    others = [*failures.arguments, *computing.arguments]
    assert slow.arguments == [f"--ignore={directory}" for directory in others]
    assert [each for each in others if not (ROOT / each).is_dir()] == []


def test_forge_runs_each_stage_of_slow_tests() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    stages = re.findall(r"\{target: test-slow, stage: (\S+)\}", workflow)
    slow = [stage.name for stage in run_tests.SLOW_STAGES]
    assert [stage for stage in stages if not stage.startswith("core-")] == slow
    assert len(stages) > len(slow)


def made_environment(version: str, interpreter: str) -> Path:
    return Path(version)


@pytest.mark.parametrize(
    ("names", "made"), [((), ["3.13"]), (("core-3.12", "slow"), ["3.12"]), (("slow",), [])]
)
def test_core_tests_run_on_the_newest_other_python_or_the_named_ones(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], made: list[str]
) -> None:
    pythons = {"3.12": "python3.12", "3.13": "python3.13"}
    monkeypatch.setattr(run_tests, "find_pythons", lambda: pythons)
    monkeypatch.setattr(run_tests, "make_environment", made_environment)
    stages = run_tests.other_pythons(Summary("slow"), {*names})
    assert [stage.python for stage in stages] == made


def test_ci_adds_up_runs_and_counts_failed_part_without_tests(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(test_results, "RESULTS", tmp_path)
    for name, failed in (("normal", []), ("slow", ["FAILED: slow: a.one"])):
        part = test_results.Summary(name, passes=10, failed=failed)
        part.durations[f"{name}: a.one"] = 2.5
        part.write()
    assert test_results.main(["lint", "test-slow"]) == 1
    out = capsys.readouterr().out
    assert out.endswith("\nFAILED: slow: a.one\n20 passed, 2 failed\n")  # one test, and lint
    assert "2.50 s  slow: a.one" in out
