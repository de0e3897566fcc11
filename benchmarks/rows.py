"""Aggregates runs to rows: medians, spread, and ratios to our client and to the raw socket."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from benchmarks.cases import ALL_CASES, Case, Contender
from benchmarks.clients import OURS, PEERS, RAW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.peers.task import Figures
    from benchmarks.runs import Run


class Figure(Enum):
    """Figure of a run to compare, with its unit."""

    RATE = "records/s"
    CPU = "us CPU/record"
    P50 = "us"


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest of several figures."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        """Return the spread of at least one figure."""
        return cls(statistics.median(figures), min(figures), max(figures))


@dataclass(frozen=True)
class Sample:
    """Figures of a round: records/s, CPU in microseconds per record, p50 in microseconds."""

    rate: float
    cpu_us: float
    p50: float | None = None

    @classmethod
    def of(cls, figures: Figures) -> Sample:
        """Return the sample of a run."""
        return cls(
            figures.records / figures.seconds,
            figures.cpu_seconds / figures.records * 1e6,
            (figures.latency_us or {}).get("p50"),
        )

    def figure(self, figure: Figure) -> float:
        """Return a figure that the sample has."""
        found = {Figure.RATE: self.rate, Figure.CPU: self.cpu_us, Figure.P50: self.p50}[figure]
        assert found is not None
        return found


@dataclass(frozen=True)
class Row:
    """Figures of a contender in a case: records/s, CPU in microseconds per record, memory in MB.

    Attributes:
        latency: p50, p99 and p99.9 in microseconds, in cases of single operations.
        ratio: our rate divided by this one, or this p50 divided by ours; None if ours is missing.
        of_limit: the rate divided by the raw socket's, or None.
        samples: the rounds by number; samples of a round were measured within the same minute.
    """

    case: str
    peer: str
    way: str
    rounds: int
    records: int
    rate: Spread
    cpu_us: Spread
    peak_mb: float
    latency: Mapping[str, Spread] = field(default_factory=dict[str, Spread])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ratio: float | None = None
    of_limit: float | None = None
    samples: Mapping[int, Sample] = field(default_factory=dict[int, Sample])

    @property
    def title(self) -> str:
        """Title of the client."""
        return PEERS[self.peer].title

    def figure(self, figure: Figure) -> Spread:
        """Return the spread of a figure that the row has."""
        if figure is Figure.P50:
            return self.latency["p50"]
        return self.rate if figure is Figure.RATE else self.cpu_us


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Return the rows of all timed contenders, in the order of the table of cases."""
    found: list[Row] = []
    for case in ALL_CASES.values():
        mine = [_row(case, contender, runs) for contender in case.contenders]
        found += _with_ratios([row for row in mine if row is not None])
    return found


def _row(case: Case, contender: Contender, runs: Sequence[Run]) -> Row | None:
    mine = {
        run.number: run.figures
        for run in runs
        if (run.case, run.contender) == (case.name, contender) and run.number and run.figures
    }
    if not mine:
        return None
    samples = {number: Sample.of(figures) for number, figures in mine.items()}
    first, *_ = mine.values()
    latencies = [figures.latency_us or {} for figures in mine.values()]
    return Row(
        case.name,
        contender.peer,
        contender.way,
        len(mine),
        first.records,
        Spread.of([each.rate for each in samples.values()]),
        Spread.of([each.cpu_us for each in samples.values()]),
        max(figures.peak_mb for figures in mine.values()),
        {name: Spread.of([each[name] for each in latencies]) for name in latencies[0]},
        first.settings,
        samples=samples,
    )


def _with_ratios(mine: Sequence[Row]) -> list[Row]:
    ours = {row.way: row for row in reversed(mine) if row.peer == OURS}
    first = next(reversed(ours.values()), None)
    limit = next((row.rate.median for row in mine if row.peer == RAW), None)
    return [
        replace(
            row,
            ratio=_ratio(ours.get(row.way, first), row),
            of_limit=None if limit is None or row.latency else row.rate.median / limit,
        )
        for row in mine
    ]


def _ratio(ours: Row | None, row: Row) -> float | None:
    if ours is None:
        return None
    if ours.latency and row.latency:
        return row.latency["p50"].median / ours.latency["p50"].median
    return ours.rate.median / row.rate.median
