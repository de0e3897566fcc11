"""Compares the measured figures with the targets.

The verdict compares medians. All contenders of a round run within the same minute, so the ratios of
single rounds show how reliable a verdict is: it is *within noise* if a round contradicts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.clients import PEERS
from benchmarks.report import Spread
from benchmarks.targets import SPECIAL, Figure, Group, Target, Wanted, contender_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from benchmarks.cases import Contender
    from benchmarks.report import Row, Sample

OPEN = "open"


@dataclass(frozen=True)
class Outcome:
    """Target and its result as text; `met` is None if a figure is missing.

    `reached` compares the medians. `by_round` compares the figures of each round: median, lowest
    and highest.
    """

    group: str
    what: str
    ours: str
    against: str
    theirs: str
    reached: str
    by_round: str
    wanted: str
    met: bool | None
    verdict: str
    case: str = ""


def outcomes(
    targets: Sequence[Target], rows: Sequence[Row], selected: Collection[str] | None = None
) -> list[Outcome]:
    """Return the results of targets; with `selected`, only those of these cases."""
    chosen = [target for target in targets if selected is None or target.case in selected]
    return [_outcome(target, rows) for target in chosen]


def special_outcomes(
    results: Mapping[str, Any], selected: Collection[str] | None = None
) -> list[Outcome]:
    """Return the results of the special cases, including those that were not measured."""
    found: list[Outcome] = []
    for name, (what, limit) in SPECIAL.items():
        result = results.get(name)
        if selected is not None and name not in selected:
            continue
        if result is None or "error" in result:
            reached = "not measured" if result is None else "failed"
            found.append(
                Outcome(Group.MAIN.value, what, "", "", "", reached, "", limit, None, OPEN)
            )
        else:
            found += [_goal(result, goal) for goal in result.get("goals", ())]
    return found


def _goal(result: Mapping[str, Any], goal: Mapping[str, Any]) -> Outcome:
    more, unit, limit = goal["more_is_better"], goal["unit"], goal["limit"]
    met = bool(goal["met"])
    ends = [end for end in (goal.get("low"), goal.get("high")) if end is not None]
    agree = all((end >= limit if more else end <= limit) == met for end in ends)
    doubt = "" if agree else ", within noise"
    doubt = ", one round" if ends and ends[0] == ends[1] else doubt
    return Outcome(
        Group.MAIN.value,
        f"{result['title']}",
        "",
        goal["what"],
        "",
        _number(goal["figure"], unit),
        f"({ends[0]:,.3g} - {ends[1]:,.3g})" if len(ends) == 2 else "",
        f"{'at least' if more else 'at most'} {_number(limit, unit)}",
        met,
        ("met" if met else "not met") + doubt,
    )


def _number(figure: float, unit: str) -> str:
    return f"{figure:,.3g}{'' if unit == 'x' else ' '}{unit}"


def _outcome(target: Target, rows: Sequence[Row]) -> Outcome:
    mine = _find(rows, target.case, contender_of(target))
    theirs = [row for peer in target.against for row in _theirs(rows, target, peer)]
    wanted = target.wanted.value.format(target.limit)
    if mine is None or not theirs:
        others = _named(target, target.against)
        return Outcome(
            target.group.value,
            *(target.what, "", others, "", "not measured", "", wanted, None, OPEN, target.case),
        )
    best = _best(target, theirs)
    ours, other = figure_of(mine, target.figure), figure_of(best, target.figure)
    pairs = paired(target, mine, best)
    met = is_met(target, ours, other)
    unit = target.figure.value
    against = best.title + (f", {best.way}" if _names_way(target, best) else "")
    absent = [peer for peer in target.against if peer not in {row.peer for row in theirs}]
    if absent:
        against += f" ({_named(target, absent)} not measured)"
    return Outcome(
        target.group.value,
        target.what,
        f"{_digits(ours)} {unit}",
        against,
        f"{_digits(other)} {unit}",
        _compared(target, ours, other),
        _spread(target, pairs),
        wanted,
        met,
        verdict(target, met, pairs),
        target.case,
    )


def _best(target: Target, theirs: Sequence[Row]) -> Row:
    pick = max if target.figure is Figure.RATE else min
    return pick(theirs, key=lambda row: figure_of(row, target.figure))


def _names_way(target: Target, best: Row) -> bool:
    return bool(best.way) and (best.peer == target.ours or best.way != target.way)


def _named(target: Target, peers: Sequence[str]) -> str:
    others = " or ".join(PEERS[peer].title for peer in peers)
    return others + (
        f", {target.against_way}" if target.against_way not in (None, target.way) else ""
    )


def is_met(target: Target, ours: float, other: float) -> bool:
    """Return True if the figures meet the target; without a target, if ours is at least as good."""
    match target.wanted:
        case Wanted.TIMES:
            return ours >= target.limit * other
        case Wanted.AT_MOST:
            return ours <= target.limit * other
        case Wanted.LESS:
            return ours < other
        case Wanted.ABOVE:
            return ours - other <= target.limit
        case Wanted.NOTHING:
            return ours >= other if target.figure is Figure.RATE else ours <= other


def verdict(target: Target, met: bool, pairs: Sequence[tuple[float, float]]) -> str:
    """Return the verdict of the medians, and whether a single round contradicts it."""
    words = ("met", "not met") if target.wanted is not Wanted.NOTHING else ("ahead", "behind")
    result = words[0] if met else words[1]
    if len(pairs) < 2:
        return f"{result}, one round"
    agree = all(is_met(target, ours, other) == met for ours, other in pairs)
    return result if agree else f"{result}, within noise"


def paired(target: Target, mine: Row, best: Row) -> list[tuple[float, float]]:
    """Return our figure and the other one of each round that has both."""
    both = sorted(mine.samples.keys() & best.samples.keys())
    return [
        (_figure_in(mine.samples[number], target.figure), _figure_in(other, target.figure))
        for number in both
        for other in (best.samples[number],)
    ]


def _figure_in(sample: Sample, figure: Figure) -> float:
    if figure is Figure.P50:
        assert sample.p50 is not None
        return sample.p50
    return sample.rate if figure is Figure.RATE else sample.cpu_us


def figure_of(row: Row, figure: Figure) -> float:
    """Return the median of a row."""
    if figure is Figure.P50:
        return row.latency["p50"].median
    return (row.rate if figure is Figure.RATE else row.cpu_us).median


def _find(rows: Sequence[Row], case: str, contender: Contender) -> Row | None:
    for row in rows:
        if (row.case, row.peer, row.way) == (case, contender.peer, contender.way):
            return row
    return None


def _theirs(rows: Sequence[Row], target: Target, peer: str) -> list[Row]:
    """Return the rows of the target's call, else of the same call as ours, else of any call."""
    its = [row for row in rows if (row.case, row.peer) == (target.case, peer)]
    if target.any_way:
        return its
    if target.against_way is not None:
        return [row for row in its if row.way == target.against_way]
    return [row for row in its if row.way == target.way] or its[:1]


def _compared(target: Target, ours: float, other: float) -> str:
    if target.wanted is Wanted.ABOVE:
        return f"{ours - other:+,.0f} us"
    return f"{ours / other:.2f}x"


def _spread(target: Target, pairs: Sequence[tuple[float, float]]) -> str:
    """Return the median, the lowest and the highest comparison of the rounds."""
    if target.wanted is Wanted.ABOVE:
        found = Spread.of([ours - other for ours, other in pairs]) if pairs else None
        return f"{found.median:+,.0f} ({found.low:+,.0f} to {found.high:+,.0f})" if found else ""
    found = Spread.of([ours / other for ours, other in pairs]) if pairs else None
    return f"{found.median:.2f} ({found.low:.2f} - {found.high:.2f})" if found else ""


def _digits(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"


def summary(reached: Sequence[Outcome]) -> str:
    """Return the numbers of targets that are met, not met and open."""
    parts: list[str] = []
    for met, word in ((True, "met"), (False, "not met"), (None, "open")):
        mine = [one for one in reached if one.met is met]
        noisy = sum("within noise" in one.verdict for one in mine)
        parts.append(f"{len(mine)} {word}" + (f" ({noisy} within noise)" if noisy else ""))
    return f"{', '.join(parts)}."
