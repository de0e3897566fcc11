"""Results of special cases: rows, and goals with the figures that were reached."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.clients import OURS, PEERS
from benchmarks.rows import Spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.wire import timing

K = TypeVar("K")


@dataclass(frozen=True)
class Row:
    """Figures of a client; the result's `ratio_is` explains `ratio`, and `what` names the work."""

    client: str
    median: float
    low: float
    high: float
    unit: str
    ratio: float
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    what: str = ""

    @classmethod
    def of(
        cls, client: str, figures: Sequence[float], unit: str, ratio: float = 1.0, **options: Any
    ) -> Row:
        """Return a row with the median and the spread of figures."""
        return cls(client, **asdict(Spread.of(figures)), unit=unit, ratio=ratio, **options)


@dataclass(frozen=True)
class Goal:
    """Goal and the figure that was reached; `low` and `high` are the extremes of single rounds."""

    what: str
    figure: float
    limit: float
    unit: str
    more_is_better: bool = False
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(
        cls, what: str, figures: Sequence[float], limit: float, unit: str, **options: bool
    ) -> Goal:
        """Return a goal for the median of the rounds."""
        found = Spread.of(figures)
        return cls(what, found.median, limit, unit, low=found.low, high=found.high, **options)

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


def by_key(rounds: Sequence[Mapping[K, float]]) -> dict[K, list[float]]:
    """Return the figures of all rounds by key."""
    return {key: [each[key] for each in rounds] for key in rounds[0]}


def compared_with_ours(
    found: Mapping[tuple[str, str], Sequence[float]],
    unit: str,
    settings: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
) -> list[Row]:
    """Return rows of figures by work and client, with their ratios to our client's."""
    medians = {key: Spread.of(figures).median for key, figures in found.items()}
    return [
        Row.of(
            PEERS[client].title,
            figures,
            unit,
            medians[what, client] / medians[what, OURS],
            what=what,
            settings=(settings or {}).get((what, client), {}),
        )
        for (what, client), figures in found.items()
    ]


def timed_result(
    case: str, title: str, ratio_is: str, rows: Sequence[timing.Row], limit: float
) -> Result:
    """Return the result of timed rows in ms; the goal: the fastest other client's time in ours."""
    peers = [row for row in rows if not row.client.startswith("kafka_async")]
    nearest = min(peers, key=lambda row: row.ratio)
    goal = Goal(
        f"{nearest.client}, {nearest.case}: its time in ours",
        nearest.ratio,
        limit,
        "x",
        more_is_better=True,
        low=nearest.ratio_low,
        high=nearest.ratio_high,
    )
    lines = [
        Row(
            each.client,
            *(each.median / 1e3, each.low / 1e3, each.high / 1e3),
            "ms",
            each.ratio,
            what=each.case,
        )
        for each in rows
    ]
    return Result(case, title, f"the client's time in ours{ratio_is}", lines, (goal,))
