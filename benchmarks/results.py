"""Collects the results of a run, and writes them as JSON, as a page of tables and as a chart."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import chart, machine, page
from benchmarks.cases import ALL_CASES
from benchmarks.clients import PEERS
from benchmarks.rows import Row, rows_of
from benchmarks.targets import (
    DEFAULT_TARGETS,
    EXPECTED,
    EXPECTED_WITH_DEFAULTS,
    PYTHON_TARGETS,
    TARGETS,
    comparisons,
)
from benchmarks.verdicts import Achievement, Outcome, achievements, outcomes, special_outcomes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from benchmarks.runs import RunLog


@dataclass(frozen=True)
class Results:
    """Results of a benchmark; `absent` and `failed` are reasons by name of peer or run."""

    context: Mapping[str, str]
    tuned: bool
    rows: Sequence[Row]
    outcomes: Sequence[Outcome]
    achievements: Sequence[Achievement]
    specials: Mapping[str, Any]
    absent: Mapping[str, str]
    failed: Mapping[str, str]


def collect(
    run_log: RunLog,
    absent: Mapping[str, str],
    *,
    tuned: bool,
    pythons: bool = False,
    selected: Collection[str] | None = None,
) -> Results:
    """Collect the results of the selected cases, with the reasons of clients that could not run."""
    rows = rows_of(run_log.runs)
    failed = {
        f"{PEERS[run.peer].title} {run.way} in {ALL_CASES[run.case].title}": run.error
        for run in run_log.runs
        if run.error is not None
    }
    failed |= {name: one["error"] for name, one in run_log.specials.items() if "error" in one}
    specials = {name: one for name, one in run_log.specials.items() if "error" not in one}
    expected: list[Achievement] = []
    if pythons:
        reached = outcomes(PYTHON_TARGETS, rows, selected)
    elif tuned:
        reached = outcomes(TARGETS, rows, selected) + special_outcomes(run_log.specials, selected)
        expected = achievements(EXPECTED, rows, specials)
    else:
        measured = {row.case for row in rows}
        reached = outcomes(DEFAULT_TARGETS, rows, selected)
        reached += outcomes(comparisons(tuned=False), rows, measured)
        expected = achievements(EXPECTED_WITH_DEFAULTS, rows)
    if selected is not None:
        expected = []
    return Results(run_log.context, tuned, rows, reached, expected, specials, absent, failed)


def write(results: Results, name: str, directory: Path) -> None:
    """Write NAME.json, NAME.md and, if there is data to draw, NAME.png."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(results), indent=1) + "\n"
    (directory / f"{name}.json").write_text(text, "utf-8")
    (directory / f"{name}.md").write_text(page.markdown(results), "utf-8")
    if results.rows:
        chart.draw(results.rows, machine.sentence(results.context), directory / f"{name}.png")
