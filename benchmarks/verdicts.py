"""Compares the measured figures with the targets.

The verdict compares medians. All contenders of a round run within the same minute, so the ratios of
single rounds show how reliable a verdict is: it is *within noise* if a round contradicts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.clients import OURS, PEERS
from benchmarks.rows import Figure, Row, Spread
from benchmarks.special import SPECIAL
from benchmarks.targets import METADATA_MS, Expectation, Group, Target, Wanted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

OPEN = "open"


@dataclass(frozen=True)
class Outcome:
    """Target and result as text, for medians and by round; `met` is None if a figure is missing."""

    group: str
    what: str
    ours: str = ""
    against: str = ""
    theirs: str = ""
    reached: str = ""
    by_round: str = ""
    wanted: str = ""
    met: bool | None = None
    verdict: str = OPEN
    case: str = ""


@dataclass(frozen=True)
class Achievement:
    """Expected and measured figures as text; `reached` is None if there is no measurement."""

    what: str
    expected: str
    ours: str = "not measured"
    spread: str = ""
    reached: bool | None = None


# -- targets --------------------------------------------------------------------------------------


def outcomes(
    targets: Sequence[Target], rows: Sequence[Row], selected: Collection[str] | None = None
) -> list[Outcome]:
    """Return the results of targets; with `selected`, only for these cases."""
    chosen = [target for target in targets if selected is None or target.case in selected]
    return [_outcome(target, rows) for target in chosen]


def _outcome(target: Target, rows: Sequence[Row]) -> Outcome:
    of_case = [row for row in rows if row.case == target.case]
    mine = [row for row in of_case if (row.peer, row.way) == (target.ours, target.way)]
    theirs = [row for peer in target.against for row in _theirs(of_case, target, peer)]
    place: dict[str, Any] = {
        "group": target.group.value,
        "what": target.what,
        "wanted": target.wanted.value.format(target.limit),
        "case": target.case,
    }
    if not mine or not theirs:
        return Outcome(**place, against=_named(target, target.against), reached="not measured")
    pick = max if target.figure is Figure.RATE else min
    best = pick(theirs, key=lambda row: row.figure(target.figure).median)
    ours, other = (row.figure(target.figure).median for row in (mine[0], best))
    pairs = [
        (sample.figure(target.figure), best.samples[number].figure(target.figure))
        for number, sample in mine[0].samples.items()
        if number in best.samples
    ]
    met = is_met(target, ours, other)
    absent = [peer for peer in target.against if peer not in {row.peer for row in theirs}]
    missing = f" ({_named(target, absent)} not measured)" if absent else ""
    unit = target.figure.value
    return Outcome(
        **place,
        ours=f"{digits(ours)} {unit}",
        against=_against(target, best) + missing,
        theirs=f"{digits(other)} {unit}",
        reached=f"{ours - other:+,.0f} us"
        if target.wanted is Wanted.ABOVE
        else f"{ours / other:.2f}x",
        by_round=_by_round(target, pairs),
        met=met,
        verdict=verdict(target, met, pairs),
    )


def _theirs(of_case: Sequence[Row], target: Target, peer: str) -> list[Row]:
    """Return the rows of the target's call, else of the same call as ours, else of any call."""
    its = [row for row in of_case if row.peer == peer]
    if target.any_way:
        return its
    if target.against_way is not None:
        return [row for row in its if row.way == target.against_way]
    return [row for row in its if row.way == target.way] or its[:1]


def _against(target: Target, best: Row) -> str:
    names_way = best.way and (best.peer == target.ours or best.way != target.way)
    return f"{best.title}, {best.way}" if names_way else best.title


def _named(target: Target, peers: Sequence[str]) -> str:
    others = " or ".join(PEERS[peer].title for peer in peers)
    return f"{others}, {way}" if (way := target.against_way) not in (None, target.way) else others


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


def _by_round(target: Target, pairs: Sequence[tuple[float, float]]) -> str:
    """Return the median, the lowest and the highest comparison of the rounds."""
    if not pairs:
        return ""
    if target.wanted is Wanted.ABOVE:
        found = Spread.of([ours - other for ours, other in pairs])
        return f"{found.median:+,.0f} ({found.low:+,.0f} to {found.high:+,.0f})"
    found = Spread.of([ours / other for ours, other in pairs])
    return f"{found.median:.2f} ({found.low:.2f} - {found.high:.2f})"


def summary(reached: Sequence[Outcome]) -> str:
    """Return the numbers of targets that are met, not met and open."""
    parts: list[str] = []
    for met, word in ((True, "met"), (False, "not met"), (None, "open")):
        mine = [one for one in reached if one.met is met]
        noisy = sum("within noise" in one.verdict for one in mine)
        parts.append(f"{len(mine)} {word}" + (f" ({noisy} within noise)" if noisy else ""))
    return f"{', '.join(parts)}."


# -- goals of special cases -----------------------------------------------------------------------


def special_outcomes(
    results: Mapping[str, Any], selected: Collection[str] | None = None
) -> list[Outcome]:
    """Return the results of the special cases, including those that were not measured."""
    found: list[Outcome] = []
    for case in SPECIAL.values():
        result = results.get(case.name)
        if selected is not None and case.name not in selected:
            continue
        if result is None or "error" in result:
            reached = "not measured" if result is None else "failed"
            found.append(Outcome(Group.MAIN.value, case.title, reached=reached, wanted=case.goal))
        else:
            found += [_goal(result["title"], goal) for goal in result.get("goals", ())]
    return found


def _goal(title: str, goal: Mapping[str, Any]) -> Outcome:
    more, unit, limit = goal["more_is_better"], goal["unit"], goal["limit"]
    met = bool(goal["met"])
    ends = [end for end in (goal.get("low"), goal.get("high")) if end is not None]
    agree = all((end >= limit if more else end <= limit) == met for end in ends)
    doubt = "" if agree else ", within noise"
    return Outcome(
        Group.MAIN.value,
        title,
        against=goal["what"],
        reached=_with_unit(goal["figure"], unit),
        by_round=f"({ends[0]:,.3g} - {ends[1]:,.3g})" if len(ends) == 2 else "",
        wanted=f"{'at least' if more else 'at most'} {_with_unit(limit, unit)}",
        met=met,
        verdict=("met" if met else "not met")
        + (", one round" if ends and ends[0] == ends[1] else doubt),
    )


def _with_unit(figure: float, unit: str) -> str:
    return f"{figure:,.3g}{'' if unit == 'x' else ' '}{unit}"


# -- absolute figures, for information ------------------------------------------------------------


def achievements(
    expected: Sequence[Expectation], rows: Sequence[Row], specials: Mapping[str, Any] | None = None
) -> list[Achievement]:
    """Return the comparisons with expected figures; with `specials`, also for metadata."""
    found = [_achievement(each, rows) for each in expected]
    return found if specials is None else [*found, _metadata(specials)]


def _achievement(each: Expectation, rows: Sequence[Row]) -> Achievement:
    mine = [row for row in rows if (row.case, row.peer, row.way) == (each.case, OURS, each.way)]
    unit = each.figure.value
    expected = f"{digits(each.expected)} {unit}"
    if not mine:
        return Achievement(each.what, expected)
    found = mine[0].figure(each.figure)
    more = each.figure is Figure.RATE
    return Achievement(
        each.what,
        expected,
        f"{digits(found.median)} {unit}",
        f"{digits(found.low)} - {digits(found.high)}",
        found.median >= each.expected if more else found.median <= each.expected,
    )


def _metadata(specials: Mapping[str, Any]) -> Achievement:
    """Return the comparison of the slowest metadata response."""
    lines = specials.get("metadata", {}).get("rows", ())
    mine = [line for line in lines if line["client"] == OURS]
    what, expected = "10,000 partitions of metadata", f"{METADATA_MS:g} ms"
    if not mine:
        return Achievement(what, expected)
    slowest = max(mine, key=lambda line: line["median"])
    spread = f"{slowest['low']:.3g} - {slowest['high']:.3g}"
    figure = slowest["median"]
    return Achievement(what, expected, f"{figure:.3g} ms", spread, figure <= METADATA_MS)


def digits(figure: float) -> str:
    """Format a figure: whole from 100, else with two digits."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"
