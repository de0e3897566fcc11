"""Reads and sums up the results of the test suite: counts, durations, kernels and backends.

As a script, adds up the last `make test` and `make test-slow` for .ci/run.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "artifacts" / "test-results"
MAX_SLOWEST = 10


@dataclass
class StageResult:
    """Results of a stage: counts, seconds by test, backends, and missing requirements."""

    name: str
    failed: bool
    passes: int = 0
    failures: int = 0
    durations: dict[str, float] = field(default_factory=dict[str, float])
    backends: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])


def read_results(name: str, report: Path, *, failed: bool) -> StageResult:
    """Read pytest's JUnit report; a failed stage without a report counts as one failure."""
    result = StageResult(name, failed)
    try:
        root = ET.parse(report).getroot()
    except (OSError, ET.ParseError):
        return StageResult(name, failed, failures=1 if failed else 0)
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            result.failures += 1
        elif case.find("skipped") is None:
            result.passes += 1
        test = f"{name}: {case.get('classname')}.{case.get('name')}"
        result.durations[test] = result.durations.get(test, 0) + float(case.get("time", 0))
    for row in root.iter("property"):
        into = {"kafka_backend": result.backends, "not_run": result.missing}.get(
            row.get("name", "")
        )
        if into is not None:
            into.append(row.get("value", ""))
    if failed and not result.failures:
        result.failures = 1
    return result


@dataclass
class Summary:
    """Sum of the stages of a run."""

    name: str
    passes: int = 0
    failures: int = 0
    ran: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    missing: list[str] = field(default_factory=list[str])
    failed_stages: list[str] = field(default_factory=list[str])
    durations: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def ran_on(self) -> str:
        """Description of the groups and their kernels, loops and backends."""
        words = [
            f"{group} on {', '.join(variants)}" if variants else group
            for group, variants in self.ran.items()
        ]
        return "; ".join(words)

    def add(self, group: str, variant: str, result: StageResult) -> None:
        """Add a stage of a group; `variant` is its kernel and loop, if any."""
        self.passes += result.passes
        self.failures += result.failures
        self.durations.update(result.durations)
        if result.passes or result.failures:
            variants = self.ran.setdefault(group, [])
            variants += [one for one in (variant, *result.backends) if one and one not in variants]
        self.missing += [one for one in result.missing if one not in self.missing]
        if result.failed:
            self.failed_stages.append(result.name)

    def write(self) -> None:
        """Write the summary to a file for .ci/run."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(asdict(self)))


def print_slowest(durations: dict[str, float]) -> None:
    """Print the slowest tests."""
    print(f"\nthe {MAX_SLOWEST} slowest tests:")
    rows = sorted(durations.items(), key=lambda row: -row[1])[:MAX_SLOWEST]
    for test, seconds in rows:
        print(f"  {seconds:8.2f} s  {test}")


def main(failed_parts: Iterable[str]) -> int:
    """Add up the summaries of the last runs, and print the sum; return the exit status.

    Args:
        failed_parts: failed parts of the CI run; one without failed tests counts as one failure.
    """
    passes = failures = 0
    durations: dict[str, float] = {}
    reported: set[str] = set()
    for name in ("normal", "slow"):
        try:
            facts = json.loads((RESULTS / f"{name}.json").read_text())
        except OSError:
            continue
        summary = Summary(**facts)
        passes += summary.passes
        failures += summary.failures
        durations.update(summary.durations)
        if summary.failures:
            reported.add({"normal": "test", "slow": "test-slow"}[name])
    failures += len(set(failed_parts) - reported)
    print_slowest(durations)
    print(f"\n{passes} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
