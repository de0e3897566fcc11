"""Compares absolute figures with those expected on an idle machine, for information only.

Absolute figures depend on the machine; the targets are ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.clients import OURS
from benchmarks.targets import Figure

if TYPE_CHECKING:
    from benchmarks.report import Row, Spread


@dataclass(frozen=True)
class Expectation:
    """Expected figure of our client in a case."""

    what: str
    case: str
    way: str
    expected: float
    figure: Figure = Figure.RATE


@dataclass(frozen=True)
class Achievement:
    """Expected and measured figures as text; `reached` is None if there is no measurement."""

    what: str
    expected: str
    ours: str
    spread: str
    reached: bool | None


EXPECTED: Final = (
    Expectation("produce 100 B, enqueue", "produce-100", "enqueue", 1_000_000),
    Expectation("the same, keyed", "produce-100-keyed", "enqueue", 700_000),
    Expectation("consume 100 B, poll", "consume-100", "poll", 3_000_000),
    Expectation("async for", "consume-100-iterate", "iterate", 2_000_000),
    Expectation("poll_batches()", "consume-100-batches", "batches", 5_000_000),
    Expectation("to_arrow()", "consume-100-batches", "arrow", 5_000_000),
    Expectation("client CPU, produce 100 B", "produce-100", "enqueue", 0.9, Figure.CPU),
    Expectation("client CPU, consume 100 B", "consume-100", "poll", 0.35, Figure.CPU),
)
FIRE_AND_FORGET: Final = (
    Expectation("produce 100 B, enqueue", "produce-100", "enqueue", 4_132_324),
    Expectation("the same, keyed", "produce-100-keyed", "enqueue", 3_961_769),
)
"""Figures with default options: the lowest rounds before awaited records stopped lingering."""
METADATA_MS: Final = 60.0
"""Milliseconds from a metadata response with 10,000 partitions to the routing table."""


def achievements(rows: Sequence[Row], specials: Mapping[str, Any]) -> list[Achievement]:
    """Return all comparisons, including those without a measurement."""
    return [*(_achievement(each, rows) for each in EXPECTED), _metadata(specials)]


def fire_and_forget(rows: Sequence[Row]) -> list[Achievement]:
    """Return the comparisons for records that no task awaits, with default options."""
    return [_achievement(each, rows) for each in FIRE_AND_FORGET]


def _achievement(each: Expectation, rows: Sequence[Row]) -> Achievement:
    mine = [row for row in rows if (row.case, row.peer, row.way) == (each.case, OURS, each.way)]
    unit = each.figure.value
    expected = f"{_digits(each.expected)} {unit}"
    if not mine:
        return Achievement(each.what, expected, "not measured", "", None)
    spread = mine[0].rate if each.figure is Figure.RATE else mine[0].cpu_us
    more = each.figure is Figure.RATE
    reached = spread.median >= each.expected if more else spread.median <= each.expected
    return Achievement(
        each.what, expected, f"{_digits(spread.median)} {unit}", _range(spread), reached
    )


def _metadata(specials: Mapping[str, Any]) -> Achievement:
    """Return the comparison of the slowest metadata response."""
    lines = specials.get("metadata", {}).get("rows", ())
    mine = [line for line in lines if line["client"] == OURS]
    what, expected = "10,000 partitions of metadata", f"{METADATA_MS:g} ms"
    if not mine:
        return Achievement(what, expected, "not measured", "", None)
    slowest = max(mine, key=lambda line: line["median"])
    spread = f"{slowest['low']:.3g} - {slowest['high']:.3g}"
    figure = slowest["median"]
    return Achievement(what, expected, f"{figure:.3g} ms", spread, figure <= METADATA_MS)


def _digits(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"


def _range(spread: Spread) -> str:
    return f"{_digits(spread.low)} - {_digits(spread.high)}"
