"""Cases that are timed in this process, in interleaved rounds.

All contenders of a case do the same work, and their results are checked once before the
measurement. Each round times all contenders, starting with another one each time, so that noise
affects all. The result is the median of the ratios of the rounds; times show the order of
magnitude. The garbage collector stays enabled, but objects that exist before a sample are frozen,
so that a collection costs only the contender's own objects.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from benchmarks.payload import WrongResultError
from benchmarks.rows import Spread

SAMPLE_SECONDS = 0.01
"""Minimum seconds of a sample: a call is repeated until then."""


@dataclass(frozen=True)
class Contender:
    """Client, a function that does the work of a case once, and the check of its result."""

    client: str
    run: Callable[[], object]
    is_correct: Callable[[object], bool]


@dataclass(frozen=True)
class Case:
    """The same work with several clients; the others are compared with the first.

    Times are per unit: a `run` has `units`, for example the records of a batch.
    """

    name: str
    contenders: tuple[Contender, ...]
    units: int = 1


@dataclass(frozen=True)
class Row:
    """Row of the table: microseconds per unit, and the ratio to our time in the same round."""

    case: str
    client: str
    median: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float


def measure_all(cases: Iterable[Case], rounds: int) -> list[Row]:
    """Measure cases in CPU time, which excludes other processes."""
    return [row for case in cases for row in measure(case, rounds)]


def measure(case: Case, rounds: int, clock: Callable[[], float] = time.process_time) -> list[Row]:
    """Return a row per contender, with its time relative to the first one."""
    for contender in case.contenders:
        if not contender.is_correct(contender.run()):
            raise WrongResultError(f"{case.name}: {contender.client} has a wrong result")
    loops = {each.client: _loops(each.run, clock) for each in case.contenders}
    times: dict[str, list[float]] = {each.client: [] for each in case.contenders}
    for number in range(rounds):
        start = number % len(case.contenders)
        for each in case.contenders[start:] + case.contenders[:start]:
            seconds = _sample(each.run, loops[each.client], clock)
            times[each.client].append(seconds / loops[each.client] / case.units * 1e6)
    ours = times[case.contenders[0].client]
    rows = [_row(case.name, client, mine, ours) for client, mine in times.items()]
    for row in rows:
        print(f"{row.case}: {row.client} {row.median:,.2f} us, x{row.ratio:.2f}", file=sys.stderr)
    return rows


def _loops(run: Callable[[], object], clock: Callable[[], float]) -> int:
    """Return the number of calls for a sample, and warm up the code."""
    loops = 1
    while (seconds := _sample(run, loops, clock)) < SAMPLE_SECONDS / 2:
        loops = max(loops * 2, min(loops * 100, int(loops * SAMPLE_SECONDS / max(seconds, 1e-7))))
    return loops


def _sample(run: Callable[[], object], loops: int, clock: Callable[[], float]) -> float:
    gc.collect()
    gc.freeze()
    calls = range(loops)
    began = clock()
    for _ in calls:
        run()
    return clock() - began


def _row(case: str, client: str, mine: list[float], ours: list[float]) -> Row:
    ratios = Spread.of([theirs / our for theirs, our in zip(mine, ours, strict=True)])
    return Row(
        case,
        client,
        **asdict(Spread.of(mine)),
        ratio=ratios.median,
        ratio_low=ratios.low,
        ratio_high=ratios.high,
    )


def markdown(rows: Sequence[Row], unit: str) -> str:
    """Return a table with a line per case: our microseconds per unit, the others as multiples."""
    clients = list(dict.fromkeys(row.client for row in rows))
    lines: list[list[str]] = []
    for case in dict.fromkeys(row.case for row in rows):
        by_client = {row.client: row for row in rows if row.case == case}
        ours = by_client[clients[0]]
        times = f"{ours.median:,.2f} ({ours.low:,.2f} - {ours.high:,.2f})"
        lines.append([case, times, *(_multiple(by_client.get(each)) for each in clients[1:])])
    return table(["case", f"{clients[0]}, us a {unit}", *clients[1:]], lines)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text, and the others figures."""
    text = [f"| {' | '.join(cells)} |\n" for cells in (heads, *lines)]
    return "".join([text[0], "|---|" + "---:|" * (len(heads) - 1) + "\n", *text[1:]])


def _multiple(row: Row | None) -> str:
    if row is None:
        return "-"
    return f"x{row.ratio:.2f} ({row.ratio_low:.2f} - {row.ratio_high:.2f})"
