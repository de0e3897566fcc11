"""What a case of the wire benchmark is, and how cases are timed: in turn, round by round.

Every contender of a case does the same work and is asked once, before the clock runs, whether its
result is right. Then each round times each of them, in an order that turns, so that a noisy moment
hits all. A ratio is made within each round, and the median of those is what counts; times by
themselves show the order of magnitude. The garbage collector is left on, as it is in use, but what
was there before a sample is frozen: a collection costs what the contender has made, and not what
the benchmark and its imports weigh.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

SAMPLE_SECONDS = 0.01
"""How long one sample should take at least: a call is repeated until it does."""


class WrongResultError(RuntimeError):
    """A contender was asked for a result before it was timed, and it was not the right one."""


@dataclass(frozen=True)
class Contender:
    """One client's way of doing a case's work.

    Attributes:
        client: whose it is.
        run: does the work once; what it returns is not looked at while the clock runs.
        right: whether what `run` returned is what it should be.
    """

    client: str
    run: Callable[[], object]
    right: Callable[[object], bool]


@dataclass(frozen=True)
class Case:
    """The same work done by several clients; the first is the one the others are compared with.

    Attributes:
        name: what is done, such as "decode Metadata response v13".
        contenders: ours first, then the peers.
        units: what one `run` is divided into, such as the records of a batch; times are per unit.
    """

    name: str
    contenders: tuple[Contender, ...]
    units: int = 1


@dataclass(frozen=True)
class Row:
    """A line of the table: microseconds a unit over the rounds, and how often ours fits in it."""

    case: str
    client: str
    median: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float


def measure(case: Case, rounds: int, clock: Callable[[], float] = time.perf_counter) -> list[Row]:
    """One row a contender; the first has the ratio 1, and above 1 means slower than the first.

    Args:
        case: what is measured.
        rounds: how often each contender is timed.
        clock: seconds. `time.process_time` is deaf to whoever else wants the processor, and right
            where all the work is done in this process.

    Raises:
        WrongResultError: a contender's result is not right.
    """
    for contender in case.contenders:
        if not contender.right(contender.run()):
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
    """How many calls make a sample long enough; also warms the code up."""
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
    """The rows as a table, a line a case: ours in microseconds, the others as multiples of it.

    Args:
        rows: of all cases.
        unit: what the microseconds are for: "message", "record".
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
