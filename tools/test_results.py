"""Reads and sums up the results of the test suite: counts, durations, kernels and backends.

As a script, adds up the last run of each part for .ci/run.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.flaky_tests import has_failed, node_id, reason
from tools.generated_page import ROOT

RESULTS = ROOT / "artifacts" / "test-results"
MAX_SLOWEST = 10
MAX_FAILURES = 20
"""Number of failures that the last lines of a part name."""
PARTS = {"test": "normal", "test-slow": "slow", "test-environments": "environments"}
"""Runs of the suite by the part of .ci/run."""


@dataclass
class Summary:
    """Sum of the stages of a run."""

    name: str
    passes: int = 0
    ran: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    missing: list[str] = field(default_factory=list[str])
    failed_stages: list[str] = field(default_factory=list[str])
    durations: dict[str, float] = field(default_factory=dict[str, float])
    flaky: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])

    @property
    def outcomes(self) -> list[str]:
        """Lines that name the flaky tests and the first failures."""
        more = len(self.failed) - MAX_FAILURES
        rest = [f"and {more} more failures"] if more > 0 else []
        return [*self.flaky, *self.failed[:MAX_FAILURES], *rest]

    @property
    def ran_on(self) -> str:
        """Description of the groups and their kernels, loops and backends."""
        words = [
            f"{group} on {', '.join(variants)}" if variants else group
            for group, variants in self.ran.items()
        ]
        return "; ".join(words)

    def add(
        self,
        stage: str,
        group: str,
        variant: str,
        report: Path,
        *,
        failed: bool,
        flaky: Mapping[str, str] | None = None,
    ) -> None:
        """Add pytest's JUnit report of a stage, which is missing if pytest did not end.

        Failing without a failed test is one failure: pytest crashed, or was stopped at its time
        limit. Tests in `flaky`, node ids with the lines that name them, passed when they were
        repeated.
        """
        passed_later = flaky or {}
        self.flaky += passed_later.values()
        try:
            root = ET.parse(report).getroot()
        except (OSError, ET.ParseError):
            root = ET.Element("testsuites")
        passes, failures = 0, list[str]()
        for case in root.iter("testcase"):
            if has_failed(case) and node_id(case) not in passed_later:
                failures.append(f"FAILED: {stage}: {node_id(case)}: {reason(case)}")
            elif case.find("skipped") is None:
                passes += 1
            test = f"{stage}: {case.get('classname')}.{case.get('name')}"
            self.durations[test] = self.durations.get(test, 0) + float(case.get("time", 0))
        if failed and not failures:
            failures.append(f"FAILED: {stage} ended early, after {passes} tests that passed")
        self.passes += passes
        self.failed += failures
        properties = [(row.get("name"), row.get("value", "")) for row in root.iter("property")]
        variants = [variant, *(value for name, value in properties if name == "kafka_backend")]
        missing = [value for name, value in properties if name == "not_run"]
        if passes or failures:
            self.ran[group] = unique([*self.ran.get(group, ()), *filter(None, variants)])
        self.missing = unique([*self.missing, *missing])
        if failed:
            self.failed_stages.append(stage)

    def write(self) -> None:
        """Write the summary to a file for .ci/run."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(asdict(self)))


def unique(texts: Iterable[str]) -> list[str]:
    """Return the texts without repetitions, in their order."""
    return list(dict.fromkeys(texts))


def print_slowest(durations: dict[str, float]) -> None:
    """Print the slowest tests."""
    print(f"\nthe {MAX_SLOWEST} slowest tests:")
    rows = sorted(durations.items(), key=lambda row: -row[1])[:MAX_SLOWEST]
    for test, seconds in rows:
        print(f"  {seconds:8.2f} s  {test}")


def main(failed_parts: Iterable[str]) -> int:
    """Add up the last runs and `failed_parts`, and print the sum; return the exit status."""
    summaries: dict[str, Summary] = {}
    for part, name in PARTS.items():
        try:
            summaries[part] = Summary(**json.loads((RESULTS / f"{name}.json").read_text()))
        except OSError:
            continue
    reported = {part for part, summary in summaries.items() if summary.failed}
    passes = sum(summary.passes for summary in summaries.values())
    failures = sum(len(summary.failed) for summary in summaries.values())
    failures += len(set(failed_parts) - reported)
    durations = {test: s for each in summaries.values() for test, s in each.durations.items()}
    print_slowest(durations)
    print("", *(line for summary in summaries.values() for line in summary.outcomes), sep="\n")
    print(f"{passes} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
