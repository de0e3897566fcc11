"""Cases of the wire benchmark, and their measurement in interleaved rounds.

All contenders of a case do the same work, and their results are checked once before the
measurement. Each round times all contenders, starting with another one each time, so that noise
affects all. The result is the median of the ratios of the rounds; times show the order of
magnitude. The garbage collector stays enabled, but objects that exist before a sample are frozen,
so that a collection costs only the contender's own objects.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

SAMPLE_SECONDS = 0.01
"""Minimum seconds of a sample: a call is repeated until then."""


class WrongResultError(RuntimeError):
    """The result of a contender is wrong in the check before the measurement."""


@dataclass(frozen=True)
class Contender:
    """Work of a case with one client.

    Attributes:
        client: the name of the client.
        run: does the work once; its result is ignored during the measurement.
        is_correct: returns True if a result of `run` is correct.
    """

    client: str
    run: Callable[[], object]
    is_correct: Callable[[object], bool]


@dataclass(frozen=True)
class Case:
    """The same work with several clients; the others are compared with the first.

    Attributes:
        name: the name of the case, for example "decode Metadata response v13".
        contenders: ours first, then the peers.
        units: number of units of a `run`, for example the records of a batch; times are per unit.
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


def measure(case: Case, rounds: int, clock: Callable[[], float] = time.perf_counter) -> list[Row]:
    """Measure a case; return a row per contender, with its time relative to the first one.

    Args:
        case: the case.
        rounds: the number of samples of each contender.
        clock: returns seconds. Use `time.process_time` if all work is done in this process, so that
            other processes do not affect the result.

    Raises:
        WrongResultError: the result of a contender is wrong.
    """
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
    rows = [_row(case, client, times) for client in times]
    for row in rows:
        sys.stderr.write(f"{row.case}: {row.client} {row.median:,.2f} us, x{row.ratio:.2f}\n")
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


def _row(case: Case, client: str, times: dict[str, list[float]]) -> Row:
    mine, ours = times[client], times[case.contenders[0].client]
    ratios = [theirs / our for theirs, our in zip(mine, ours, strict=True)]
    return Row(
        case.name,
        client,
        statistics.median(mine),
        min(mine),
        max(mine),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
    )


def markdown(rows: list[Row], unit: str) -> str:
    """Return a table with a line per case: ours in microseconds, the others as multiples of it.

    Args:
        rows: the rows of all cases.
        unit: the unit of the times, "message" or "record".
    """
    clients = list(dict.fromkeys(row.client for row in rows))
    lines = [
        f"| case | {clients[0]}, us a {unit} | " + " | ".join(clients[1:]) + " |",
        "|---|" + "---:|" * len(clients),
    ]
    for case in dict.fromkeys(row.case for row in rows):
        by_client = {row.client: row for row in rows if row.case == case}
        ours = by_client[clients[0]]
        cells = [f"{ours.median:,.2f} ({ours.low:,.2f} - {ours.high:,.2f})"]
        cells += [_multiple(by_client.get(client)) for client in clients[1:]]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _multiple(row: Row | None) -> str:
    if row is None:
        return "-"
    return f"x{row.ratio:.2f} ({row.ratio_low:.2f} - {row.ratio_high:.2f})"
