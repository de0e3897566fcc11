"""Results of special cases: rows, and goals with the figures that were reached."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks import wire_cases


@dataclass(frozen=True)
class Row:
    """Figures of a client; `what` names the work if a case has several kinds.

    The result's `ratio_is` explains `ratio`; `settings` are the options of the client.
    """

    client: str
    median: float
    low: float
    high: float
    unit: str
    ratio: float
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    what: str = ""


@dataclass(frozen=True)
class Goal:
    """Goal with the figure that was reached: met if `figure` is not worse than `limit`.

    `low` and `high` are the extremes of single rounds, if the figure is the median of several.
    """

    what: str
    figure: float
    limit: float
    unit: str
    more_is_better: bool = False
    low: float | None = None
    high: float | None = None

    @property
    def met(self) -> bool:
        """True if the goal was reached."""
        return self.figure >= self.limit if self.more_is_better else self.figure <= self.limit


@dataclass(frozen=True)
class Result:
    """Result of a special case."""

    case: str
    title: str
    ratio_is: str
    rows: Sequence[Row]
    goals: Sequence[Goal] = ()

    def plain(self) -> dict[str, Any]:
        """Return the result for JSON, with `met` in each goal."""
        goals = [{**asdict(goal), "met": goal.met} for goal in self.goals]
        return {**asdict(self), "goals": goals}


def row(
    client: str,
    figures: Sequence[float],
    unit: str,
    *,
    ratio: float,
    what: str = "",
    settings: Mapping[str, Any] | None = None,
) -> Row:
    """Return a row with the median and the spread of figures."""
    return Row(
        client,
        statistics.median(figures),
        min(figures),
        max(figures),
        unit,
        ratio,
        settings or {},
        what,
    )


def median_goal(
    what: str, figures: Sequence[float], limit: float, unit: str, *, more_is_better: bool = False
) -> Goal:
    """Return a goal for the median of the rounds."""
    median = statistics.median(figures)
    return Goal(what, median, limit, unit, more_is_better, min(figures), max(figures))


def ratio_goal(rows: Sequence[wire_cases.Row], limit: float) -> Goal:
    """Return a goal for the ratio of the fastest other client's time to ours."""
    nearest = min(
        (row for row in rows if not row.client.startswith("kafka_async")),
        key=lambda row: row.ratio,
    )
    return Goal(
        f"{nearest.client}, {nearest.case}: its time in ours",
        nearest.ratio,
        limit,
        "x",
        more_is_better=True,
        low=nearest.ratio_low,
        high=nearest.ratio_high,
    )


def milliseconds(rows: Sequence[wire_cases.Row]) -> list[Row]:
    """Convert rows of `wire_cases.measure` to milliseconds."""
    return [
        Row(
            each.client,
            each.median / 1e3,
            each.low / 1e3,
            each.high / 1e3,
            "ms",
            each.ratio,
            what=each.case,
        )
        for each in rows
    ]
