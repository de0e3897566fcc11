"""Failed integration tests are repeated if CI=true, and only these."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import run_tests, test_results
from tools.flaky_tests import MAX_FAILED, FailedTest, failed_tests, keep_output, select_repeats
from tools.run_tests import RepeatTime, Stage, conclude, repeat_failed
from tools.test_results import Summary

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite>
<testcase classname="tests.integration.test_producer" name="test_one[embedded-a.b]">
<failure message="no">assert 1 == 2</failure><system-out>printed</system-out></testcase>
<testcase classname="tests.integration.test_producer" name="test_one[embedded-a.b]">
<error message="teardown">left a task</error></testcase>
<testcase classname="tests.integration.test_producer.TestClass" name="test_two">
<failure message="no">second</failure></testcase>
<testcase classname="tests.integration.test_producer" name="test_three"/>
</testsuite></testsuites>
"""
ONE = "tests/integration/test_producer.py::test_one[embedded-a.b]"
TWO = "tests/integration/test_producer.py::TestClass::test_two"

REPEATED_TEST = """#!{python} -SE
import sys
with open("{folder}/arguments", "a") as file:
    print(*sys.argv[1:], file=file)
passed_at = {{"{one}": 2, "{two}": {two_passes_at}}}[sys.argv[3]]
with open("{folder}/arguments") as file:
    sys.exit(sum(sys.argv[3] in line for line in file) < passed_at)
"""
"""An interpreter whose tests pass at their second and at another repeat."""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    return path


def failed(*ids: str) -> list[FailedTest]:
    return [FailedTest(test, "output") for test in ids]


def test_reads_the_failed_tests_of_a_report(report: Path) -> None:
    one, two = failed_tests(report)
    assert (one.id, two.id) == (ONE, TWO)
    assert all(text in one.output for text in ("assert 1 == 2", "printed", "left a task"))
    assert failed_tests(report.with_name("none.xml")) == []


@pytest.mark.parametrize(
    ("status", "ids", "repeated"),
    [
        (1, [ONE, TWO], 2),
        (1, [], 0),  # pytest has failed, and no test
        (1, [ONE, "tests/producer/test_linger.py::test_a"], 0),
        (1, ["tests/docs/test_examples.py::test_a"], 0),
        (1, [f"tests/integration/test_a.py::test_{n}" for n in range(MAX_FAILED + 1)], 0),
        (2, [ONE], 0),  # interrupted, or a file was not imported
        (-1, [ONE], 0),  # at the time limit
        (3, [ONE], 0),
    ],
)
def test_repeats_integration_tests_of_stages_that_ended(
    status: int, ids: list[str], repeated: int
) -> None:
    assert len(select_repeats(status, failed(*ids))) == repeated


@pytest.mark.parametrize(
    ("ci", "two_passes_at", "flaky", "runs"),
    [("true", 1, {ONE, TWO}, 3), ("true", 3, set[str](), 4), ("", 1, set[str](), 0)],
)
def test_test_that_passes_at_a_repeat_is_flaky_and_one_that_does_not_fails_the_stage(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    report: Path,
    ci: str,
    two_passes_at: int,
    flaky: set[str],
    runs: int,
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(run_tests, "FLAKY", tmp_path / "flaky")
    python, log = tmp_path / "python", tmp_path / "arguments"
    python.write_text(
        REPEATED_TEST.format(
            python=sys.executable, folder=tmp_path, one=ONE, two=TWO, two_passes_at=two_passes_at
        )
    )
    python.chmod(0o755)
    stage = Stage("s", "g", "x", python=str(python), arguments=["tests/integration", "-W", "error"])
    found = repeat_failed(stage, report, 1, "7", RepeatTime())
    assert set(found) == flaky
    commands = log.read_text().splitlines() if log.exists() else []
    assert len(commands) == runs
    assert all(line.endswith("-W error --kafka-backend embedded") for line in commands)
    if flaky:
        assert found[ONE] == f"FLAKY: {ONE} (passed at repeat 2 of 2)"
        kept = (tmp_path / "flaky" / "test_producer.py_test_one_embedded-a.b_.txt").read_text()
        assert ONE in kept
        assert "assert 1 == 2" in kept


def test_repeats_end_at_their_time_limit(capfd: pytest.CaptureFixture[str]) -> None:
    endless = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    assert not RepeatTime(minutes=0).run(endless, {})
    assert "stopped at the time limit of repeats" in capfd.readouterr().out


def test_names_flaky_tests_before_the_last_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, report: Path
) -> None:
    monkeypatch.setattr(test_results, "RESULTS", report.parent)
    lines = {ONE: "FLAKY: one", TWO: "FLAKY: two"}
    summary = Summary("normal")
    summary.add("integration", "integration", "", report, failed=False, flaky=lines)
    assert (summary.passes, summary.failed, summary.failed_stages) == (4, [], [])
    assert conclude(summary) == 0
    assert capsys.readouterr().out == "FLAKY: one\nFLAKY: two\npassed: integration\n"
    summary.write()
    assert test_results.main([]) == 0
    assert capsys.readouterr().out.endswith("\nFLAKY: one\nFLAKY: two\n4 passed, 0 failed\n")


def test_long_names_of_tests_are_cut_in_file_names(tmp_path: Path) -> None:
    keep_output(FailedTest(f"tests/integration/test_a.py::test_b[{'x/' * 300}]", "o"), tmp_path)
    (kept,) = tmp_path.iterdir()
    assert len(kept.name) < 160
