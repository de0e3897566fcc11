"""Finds the failed integration tests of a stage, which are repeated alone if CI=true.

Other tests are never repeated, and nothing is repeated outside CI. A test that passes when it is
repeated is flaky: the run passes, its last lines name the test, and its first output is kept.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.generated_page import ROOT

REPEATED = "tests/integration/"
"""Directory of the tests that are repeated."""
REPEATS = 2
MAX_FAILED = 5
"""Number of failed tests of a stage above which none is repeated: that is no matter of chance."""
REPEAT_MINUTES = 10
"""Time limit of all repeats of a run."""
FLAKY = ROOT / "artifacts" / "flaky"
"""Folder of the first outputs of flaky tests."""
TESTS_FAILED = 1
"""Exit status of pytest if all tests ran and some failed."""


@dataclass(frozen=True)
class FailedTest:
    """A failed test of a JUnit report: its node id, and what it printed and raised."""

    id: str
    output: str


def node_id(case: ET.Element) -> str:
    """Return pytest's id of a test case in a JUnit report."""
    module, classes = case.get("classname", "").split("."), list[str]()
    while module and not (ROOT / Path(*module)).with_suffix(".py").is_file():
        classes.insert(0, module.pop())
    path = "/".join(module) + ".py" if module else ""
    return "::".join([path, *classes, case.get("name", "")])


def has_failed(case: ET.Element) -> bool:
    """Return True if a test case of a JUnit report has failed, or its setup or teardown has."""
    return case.find("failure") is not None or case.find("error") is not None


def reason(case: ET.Element) -> str:
    """Return the first line of why a test case has failed."""
    for outcome in ("failure", "error"):
        found = case.find(outcome)
        if found is not None:
            return found.get("message", "").partition("\n")[0]
    return ""


def failed_tests(report: Path) -> list[FailedTest]:
    """Return the failed tests of a JUnit report; none if it is missing."""
    try:
        root = ET.parse(report).getroot()
    except (OSError, ET.ParseError):
        return []
    outputs: dict[str, list[str]] = {}
    for case in filter(has_failed, root.iter("testcase")):
        outputs.setdefault(node_id(case), []).extend(filter(None, case.itertext()))
    return [FailedTest(test, "\n".join(texts)) for test, texts in outputs.items()]


def select_repeats(status: int, failed: Iterable[FailedTest]) -> list[FailedTest]:
    """Return the tests whose repeats decide whether a stage has passed; none if it has failed.

    Args:
        status: Exit status of the stage.
        failed: Its failed tests.
    """
    tests = list(failed)
    if status != TESTS_FAILED or len(tests) > MAX_FAILED:
        return []
    return tests if all(test.id.startswith(REPEATED) for test in tests) else []


def describe(test: FailedTest, repeat: int) -> str:
    """Return the line that names a flaky test."""
    return f"FLAKY: {test.id} (passed at repeat {repeat} of {REPEATS})"


def keep_output(test: FailedTest, folder: Path) -> None:
    """Write the first output of a flaky test to a file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "_", test.id.removeprefix(REPEATED))[:150]
    (folder / f"{name}.txt").write_text(f"{test.id}\n\n{test.output}\n", "utf-8")
