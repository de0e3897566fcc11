"""The page of results, as Markdown."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from benchmarks import machine
from benchmarks.cases import ALL_CASES
from benchmarks.targets import REASONS, Group
from benchmarks.verdicts import digits, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.results import Results
    from benchmarks.rows import Row, Spread

MIN_OPERATIONS: Final = {"p50": 1, "p99": 100, "p99.9": 1_000}
"""Minimum operations per round for a percentile to depend on more than one or two."""


def markdown(results: Results) -> str:
    """Return the page."""
    return "\n".join(_parts(results))


def _parts(results: Results) -> Iterator[str]:
    options = "tuned as its documentation allows" if results.tuned else "at its defaults"
    rounds = max((row.rounds for row in results.rows), default=0)
    yield (
        f"Every client {options}, acks=all; {rounds} round{'s' * (rounds != 1)} at most. "
        f"{machine.sentence(results.context)}\n"
    )
    if results.absent:
        yield _list("Not measured, because missing", results.absent)
    if results.failed:
        yield _list("Failed", results.failed)
    for group in Group:
        yield from _outcomes(group, results)
    if results.achievements:
        words = {True: "reached", False: "not reached", None: "open"}
        heads = ["figure", "expected", "ours", "lowest - highest", ""]
        lines = [
            [one.what, one.expected, one.ours, one.spread, words[one.reached]]
            for one in results.achievements
        ]
        yield f"### Expected on a quiet machine\n\n{table(heads, lines)}"
    for case, rows in groupby(results.rows, lambda row: row.case):
        title = ALL_CASES[case].title
        mine = list(rows)
        figures = _latencies(mine) if mine[0].latency else _rates(mine)
        yield f"### {title[0].upper()}{title[1:]}\n\n{figures}"
    for result in results.specials.values():
        yield _special(result)
    if results.rows:
        yield f"### The options of each client\n\n{_settings(results.rows)}"


def table(heads: Sequence[str], lines: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """Return a table whose first `words` columns are text, and the others figures."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [heads, rule, *lines])


def _list(title: str, reasons: Mapping[str, str]) -> str:
    lines = [f"- {name}: {' '.join(reason.split())}" for name, reason in reasons.items()]
    return "\n".join([f"{title}:", "", *lines, ""])


def _outcomes(group: Group, results: Results) -> Iterator[str]:
    """Yield the table of a group of targets, with the numbers of those that are met."""
    mine = [one for one in results.outcomes if one.group == group.value]
    if not mine:
        return
    counts = f"{summary(mine)}\n\n" if group is not Group.INFORMATION else ""
    heads = ["case", "against", "ours", "theirs", "reached", "by round", "wanted", ""]
    lines = [
        [
            *(one.what, one.against, one.ours, one.theirs, one.reached, one.by_round),
            *(one.wanted, one.verdict),
        ]
        for one in mine
    ]
    yield f"### {group.value}\n\n{counts}{table(heads, lines, words=2)}"
    behind = [one for one in mine if one.verdict.startswith("behind")]
    if behind and not results.tuned:
        reasons = {one.what: REASONS.get(one.case, "no reason is stated") for one in behind}
        yield _list("Behind, because", reasons)


def _rates(mine: Sequence[Row]) -> str:
    limited = any(row.of_limit is not None for row in mine)
    heads = [
        *("client", "call", "records/s", "lowest - highest", "ours / this"),
        *["of the limit"] * limited,
        *("CPU us/record", "peak MB", "records x rounds"),
    ]
    lines = [
        [
            *(row.title, row.way, f"{row.rate.median:,.0f}", _range(row.rate), _times(row)),
            *["" if row.of_limit is None else f"{row.of_limit:.0%}"] * limited,
            *_costs(row),
        ]
        for row in mine
    ]
    return table(heads, lines, words=2)


def _latencies(mine: Sequence[Row]) -> str:
    names = list(mine[0].latency)
    heads = [
        *("client", *(f"{name}, us" for name in names), "lowest - highest p50", "this / ours"),
        *("CPU us/operation", "peak MB", "operations x rounds"),
    ]
    lines = [
        [
            ", ".join(filter(None, (row.title, row.way))),
            *(_latency(row, name) for name in names),
            *(_range(row.latency["p50"]), _times(row), *_costs(row)),
        ]
        for row in mine
    ]
    return table(heads, lines)


def _costs(row: Row) -> tuple[str, str, str]:
    return digits(row.cpu_us.median), f"{row.peak_mb:,.0f}", f"{row.records:,} x {row.rounds}"


def _latency(row: Row, name: str) -> str:
    """Return a percentile if a round has enough operations for it."""
    return f"{row.latency[name].median:,.0f}" if row.records >= MIN_OPERATIONS[name] else "-"


def _range(spread: Spread) -> str:
    return f"{spread.low:,.0f} - {spread.high:,.0f}"


def _times(row: Row) -> str:
    return "" if row.ratio is None else f"{row.ratio:.2f}"


def _special(result: Mapping[str, Any]) -> str:
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
    note = f"\nRatio: {result['ratio_is']}.\n"
    return f"### {result['title']}\n\n{table(heads, lines, words=2)}{note}"


def _settings(rows: Sequence[Row]) -> str:
    """Return the list of each client's options, with the cases that used them."""
    seen: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        options = ", ".join(f"{key}={value}" for key, value in row.settings.items()) or "none"
        seen.setdefault((row.title, options), []).append(row.case)
    lines = [
        f"- {title}: {options} ({', '.join(dict.fromkeys(cases))})\n"
        for (title, options), cases in sorted(seen.items())
    ]
    return "".join(lines)
