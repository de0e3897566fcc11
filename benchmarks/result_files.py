"""Writes the results as JSON, as a page of tables and as a chart."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks import chart, machine
from benchmarks.cases import ALL_CASES
from benchmarks.clients import PEERS
from benchmarks.expectations import Achievement, achievements, fire_and_forget
from benchmarks.outcomes import Outcome, outcomes, special_outcomes, summary
from benchmarks.report import Row, rows
from benchmarks.targets import (
    DEFAULT_TARGETS,
    PYTHON_TARGETS,
    REASONS,
    TARGETS,
    Group,
    comparisons,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from benchmarks.report import Spread
    from benchmarks.rounds import RunLog


MIN_OPERATIONS: Final = {"p50": 1, "p99": 100, "p99.9": 1_000}
"""Minimum operations per round for a percentile to depend on more than one or two."""


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
    """Collect the results of a run log.

    Args:
        run_log: the runs.
        absent: the reasons of clients that could not run, by title.
        tuned: the clients were tuned, which determines the targets.
        pythons: the run compares Python versions.
        selected: the selected cases, None for all.
    """
    found = rows(run_log.runs)
    failed = {
        f"{PEERS[run.peer].title} {run.way} in {ALL_CASES[run.case].title}": run.error
        for run in run_log.runs
        if run.error is not None
    }
    failed |= {name: one["error"] for name, one in run_log.specials.items() if "error" in one}
    specials = {name: one for name, one in run_log.specials.items() if "error" not in one}
    measured = {row.case for row in found}
    if pythons:
        reached = outcomes(PYTHON_TARGETS, found, selected)
    elif tuned:
        reached = [
            *outcomes(TARGETS, found, selected),
            *special_outcomes(run_log.specials, selected),
        ]
    else:
        reached = outcomes(DEFAULT_TARGETS, found, selected)
        reached += outcomes(comparisons(tuned=False), found, measured)
    expected: list[Achievement] = []
    if selected is None and not pythons:
        expected = achievements(found, specials) if tuned else fire_and_forget(found)
    return Results(run_log.context, tuned, found, reached, expected, specials, absent, failed)


def write(report: Results, name: str, directory: Path) -> None:
    """Write NAME.json, NAME.md and, unless there is nothing to draw, NAME.png."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(report), indent=1) + "\n"
    (directory / f"{name}.json").write_text(text, "utf-8")
    (directory / f"{name}.md").write_text(markdown(report), "utf-8")
    if report.rows:
        chart.draw(report.rows, machine.sentence(report.context), directory / f"{name}.png")


def markdown(report: Results) -> str:
    """Return the page."""
    options = "tuned as its documentation allows" if report.tuned else "at its defaults"
    rounds = max((row.rounds for row in report.rows), default=0)
    parts = [
        f"Every client {options}, acks=all; {rounds} round{'s' * (rounds != 1)} at most. "
        f"{machine.sentence(report.context)}\n"
    ]
    if report.absent:
        parts.append(_list("Not measured, because missing", report.absent))
    if report.failed:
        parts.append(_list("Failed", report.failed))
    parts += _outcome_tables(report.outcomes, tuned=report.tuned)
    if report.achievements:
        parts.append("### Expected on a quiet machine\n\n" + _expected(report.achievements))
    parts += [
        f"### {ALL_CASES[case].title[0].upper()}{ALL_CASES[case].title[1:]}\n\n" + _case(mine)
        for case, mine in _by_case(report.rows).items()
    ]
    parts += [_special(result) for result in report.specials.values()]
    if report.rows:
        parts.append(f"### The options of each client\n\n{_settings(report.rows)}")
    return "\n".join(parts)


def _list(title: str, reasons: Mapping[str, str]) -> str:
    lines = [f"- {name}: {' '.join(reason.split())}" for name, reason in reasons.items()]
    return "\n".join([f"{title}:", "", *lines, ""])


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], *, words: int) -> str:
    """Return a table whose first `words` columns are text, and the others figures."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [heads, rule, *lines])


def _reasons(mine: Sequence[Outcome]) -> list[str]:
    """Return the stated reasons why our client is behind."""
    behind = {
        one.what: REASONS.get(one.case, "no reason is stated")
        for one in mine
        if one.verdict.startswith("behind")
    }
    return [_list("Behind, because", behind)] if behind else []


def _outcome_tables(outcomes: Sequence[Outcome], *, tuned: bool) -> list[str]:
    """Return a table for each group of targets, with the numbers of those that are met."""
    parts: list[str] = []
    for group in Group:
        mine = [one for one in outcomes if one.group == group.value]
        if mine:
            counts = f"{summary(mine)}\n\n" if group is not Group.INFORMATION else ""
            parts.append(f"### {group.value}\n\n{counts}{_targets(mine)}")
            parts += _reasons(mine) if not tuned else []
    return parts


def _targets(reached: Sequence[Outcome]) -> str:
    heads = ["case", "against", "ours", "theirs", "reached", "by round", "wanted", ""]
    lines = [
        [
            *(one.what, one.against, one.ours, one.theirs, one.reached, one.by_round),
            *(one.wanted, one.verdict),
        ]
        for one in reached
    ]
    return _table(heads, lines, words=2)


def _expected(found: Sequence[Achievement]) -> str:
    words = {True: "reached", False: "not reached", None: "open"}
    heads = ["figure", "expected", "ours", "lowest - highest", ""]
    lines = [[one.what, one.expected, one.ours, one.spread, words[one.reached]] for one in found]
    return _table(heads, lines, words=1)


def _by_case(all_rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in all_rows:
        found.setdefault(row.case, []).append(row)
    return found


def _case(mine: Sequence[Row]) -> str:
    return _latencies(mine) if mine[0].latency else _rates(mine)


def _rates(mine: Sequence[Row]) -> str:
    limited = any(row.of_limit is not None for row in mine)
    heads = [
        *("client", "call", "records/s", "lowest - highest", "ours / this"),
        *["of the limit"] * limited,
        *("CPU us/record", "peak MB", "records x rounds"),
    ]
    lines = [
        [
            *(row.title, row.way, f"{row.rate.median:,.0f}"),
            f"{row.rate.low:,.0f} - {row.rate.high:,.0f}",
            _times(row.ratio),
            *["" if row.of_limit is None else f"{row.of_limit:.0%}"] * limited,
            *(_cpu(row), f"{row.peak_mb:,.0f}", f"{row.records:,} x {row.rounds}"),
        ]
        for row in mine
    ]
    return _table(heads, lines, words=2)


def _latencies(mine: Sequence[Row]) -> str:
    names = list(mine[0].latency)
    heads = [
        *("client", *(f"{name}, us" for name in names), "lowest - highest p50", "this / ours"),
        *("CPU us/operation", "peak MB", "operations x rounds"),
    ]
    lines = [
        [
            *(
                ", ".join(filter(None, (row.title, row.way))),
                *(_latency(row, name) for name in names),
            ),
            _range(row.latency["p50"]),
            _times(row.ratio),
            *(_cpu(row), f"{row.peak_mb:,.0f}", f"{row.records:,} x {row.rounds}"),
        ]
        for row in mine
    ]
    return _table(heads, lines, words=1)


def _latency(row: Row, name: str) -> str:
    """Return a percentile if a round has enough operations for it."""
    return f"{row.latency[name].median:,.0f}" if row.records >= MIN_OPERATIONS[name] else "-"


def _cpu(row: Row) -> str:
    cpu = row.cpu_us.median
    return f"{cpu:,.0f}" if cpu >= 100 else f"{cpu:.2f}"


def _range(spread: Spread) -> str:
    return f"{spread.low:,.0f} - {spread.high:,.0f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _special(result: Mapping[str, Any]) -> str:
    """Return the table of a special case."""
    heads = ["client", "what", "median", "lowest - highest", "ratio"]
    lines = [
        [
            *(row["client"], row.get("what", "")),
            f"{row['median']:,.4g} {row['unit']}",
            f"{row['low']:,.4g} - {row['high']:,.4g}",
            f"{row['ratio']:.2f}",
        ]
        for row in result["rows"]
    ]
    title, meaning = result.get("title", result["case"]), result.get("ratio_is")
    note = f"\nRatio: {meaning}.\n" if meaning else ""
    return f"### {title}\n\n{_table(heads, lines, words=2)}{note}"


def _settings(all_rows: Sequence[Row]) -> str:
    """Return the list of each client's options, with the cases that used them."""
    seen: dict[tuple[str, str], list[str]] = {}
    for row in all_rows:
        options = ", ".join(f"{key}={value}" for key, value in row.settings.items()) or "none"
        seen.setdefault((row.title, options), []).append(row.case)
    lines = [
        f"- {title}: {options} ({', '.join(dict.fromkeys(cases))})\n"
        for (title, options), cases in sorted(seen.items())
    ]
    return "".join(lines)
