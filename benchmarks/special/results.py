"""What a special case gives: its lines, and its goals with what was reached."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks import wire_cases


@dataclass(frozen=True)
class Row:
    """One client at one thing; `what` says which, where a case has several.

    `ratio` is explained in the result's `ratio_is`; `settings` are the options that the client ran
    with.
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
    """What was to be reached, and what was: met if `figure` is no worse than `limit`.

    `low` and `high` are single rounds, where the figure is the median of several.
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
        """Whether it was reached."""
        return self.figure >= self.limit if self.more_is_better else self.figure <= self.limit


@dataclass(frozen=True)
class Result:
    """All of a case."""

    case: str
    title: str
    ratio_is: str
    rows: Sequence[Row]
    goals: Sequence[Goal] = ()

    def plain(self) -> dict[str, Any]:
        """For JSON; each goal says whether it was met."""
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
    """Median and spread of some figures."""
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
    """A goal that the median of the rounds is to reach."""
    median = statistics.median(figures)
    return Goal(what, median, limit, unit, more_is_better, min(figures), max(figures))


def ratio_goal(rows: Sequence[wire_cases.Row], limit: float) -> Goal:
    """A goal that the fastest of the other clients is to be slower than ours by so many times."""
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
    """What `wire_cases.measure` found, in milliseconds."""
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
