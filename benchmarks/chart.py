"""Draws the chart of a run: a bar per client with its spread, and the raw socket as a line."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cases import CASES
from benchmarks.clients import OURS, PEERS, RAW

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.report import Row, Spread

COLOURS: Final = {
    "kafka_async": "#0b5fa5",
    "kafka_async_python": "#7fb2dd",
    "aiokafka": "#e69f00",
    "confluent": "#00805f",
    "confluent_asyncio": "#84ccb4",
    "kafka_python": "#b7679b",
    "java": "#c1440e",
}
"""Colours that people with colour blindness can distinguish."""
LIMIT: Final = "#222222"
BAR: Final = 0.24
"""Height of a bar in inches."""
WIDTH: Final = 13.0
HEAD: Final = 1.0
FOOT: Final = 0.5
DASHES: Final = (0, (4, 2))


@dataclass(frozen=True)
class Bar:
    """Figure of a client in a case."""

    peer: str
    figure: Spread


@dataclass(frozen=True)
class Group:
    """Bars of a case, and the figure of the raw socket if it was measured."""

    case: str
    title: str
    bars: Sequence[Bar]
    limit: float | None


@dataclass(frozen=True)
class Panel:
    """Part of the chart: `cases` with the call to show for each."""

    title: str
    cases: tuple[tuple[str, str], ...]
    figure: Callable[[Row], Spread]
    unit: Callable[[float], str]


def _rate(row: Row) -> Spread:
    return row.rate


def _cpu(row: Row) -> Spread:
    return row.cpu_us


def _p50(row: Row) -> Spread:
    return row.latency["p50"]


def _thousands(figure: float) -> str:
    return f"{figure / 1e6:.2f} M" if figure >= 1e6 else f"{figure / 1e3:,.0f} k"


def _micros(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.2f}"


PRODUCE: Final = (
    ("produce-100", "enqueue"),
    ("produce-100-keyed", "enqueue"),
    ("produce-1k", "enqueue"),
    ("send-concurrent", "send"),
)
CONSUME: Final = (
    ("consume-100", "poll"),
    ("consume-100-iterate", "iterate"),
    ("consume-1k", "poll"),
    ("consume-1k-zstd", "poll"),
)
LATENCY: Final = (
    ("round-trip", ""),
    ("round-trip-1000", ""),
    ("round-trip-1", ""),
    ("end-to-end", ""),
)
CPU: Final = (
    ("produce-100", "enqueue"),
    ("produce-1k", "enqueue"),
    ("consume-100", "poll"),
    ("consume-1k-zstd", "poll"),
)
PANELS: Final = (
    Panel("Produce, records/s (more is better)", PRODUCE, _rate, _thousands),
    Panel("Consume, records/s (more is better)", CONSUME, _rate, _thousands),
    Panel("Latency p50, microseconds (less is better)", LATENCY, _p50, _micros),
    Panel("Client CPU, microseconds a record (less is better)", CPU, _cpu, _micros),
)


def draw(rows: Sequence[Row], machine: str, path: Path) -> bool:
    """Write the chart as PNG; return False if none of its cases was measured."""
    panels = [(panel, groups) for panel in PANELS if (groups := _groups(panel, rows))]
    if not panels:
        return False
    from matplotlib.figure import Figure

    lines = [panels[start : start + 2] for start in range(0, len(panels), 2)]
    heights = [max(_rows(groups) for _, groups in line) * BAR + 0.6 for line in lines]
    height = sum(heights) + HEAD + FOOT
    figure: Any = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(
        rect=(0, FOOT / height, 1, 1 - (HEAD + FOOT) / height), hspace=0.02
    )
    grid = figure.add_gridspec(len(lines), 2, height_ratios=heights)
    for number, line in enumerate(lines):
        for column, (panel, groups) in enumerate(line):
            where = grid[number, column] if len(line) == 2 else grid[number, :]
            _draw_panel(figure.add_subplot(where), panel, groups)
    drawn = {group.case for _, groups in panels for group in groups}
    rounds = max(row.rounds for row in rows if row.case in drawn)
    _draw_head(figure, [group for _, groups in panels for group in groups], rounds)
    foot = "\n".join(textwrap.wrap(machine, 200))
    figure.text(0.005, 0.1 / height, foot, fontsize=7.5, color="#555555", va="bottom")
    figure.savefig(path, dpi=110)
    return True


def _groups(panel: Panel, rows: Sequence[Row]) -> list[Group]:
    found: list[Group] = []
    for case, way in panel.cases:
        mine = [row for row in rows if row.case == case]
        # The row of the same call, else of another call of the peer.
        chosen = {row.peer: row for row in reversed(mine) if row.peer != RAW}
        chosen |= {row.peer: row for row in mine if row.way == way and row.peer != RAW}
        bars = [Bar(row.peer, panel.figure(row)) for row in mine if row is chosen.get(row.peer)]
        limits = [panel.figure(row).median for row in mine if row.peer == RAW]
        limit = limits[0] if limits and panel.figure is not _cpu else None
        if bars:
            found.append(Group(case, CASES[case].title, bars, limit))
    return found


def _rows(groups: Sequence[Group]) -> float:
    """Return the height of groups in bars, including titles and gaps."""
    return sum(len(group.bars) + 1.6 for group in groups)


def _draw_panel(axes: Any, panel: Panel, groups: Sequence[Group]) -> None:
    longest = max(bar.figure.high for group in groups for bar in group.bars)
    near = [group.limit for group in groups if group.limit and group.limit <= longest * 1.5]
    # Space for the name of a client next to the longest bar.
    end = max(longest * 1.36, *(limit * 1.05 for limit in near), 0.0)
    place = 0.0
    for group in groups:
        axes.text(0, place, group.title, fontsize=9, fontweight="bold", va="center")
        first = place + 0.5
        for bar in group.bars:
            place += 1
            _draw_bar(axes, panel, bar, place)
        if group.limit is not None:
            _draw_limit(axes, panel, group.limit, (first, place + 0.5), end)
        place += 1.6
    axes.set_xlim(0, end)
    axes.set_ylim(place - 0.6, -0.8)
    axes.set_title(panel.title, fontsize=11, loc="left")
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(_ticks(panel))
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _ticks(panel: Panel) -> Callable[[float, int], str]:
    """Return the formatter for the axis of a panel."""

    def format_figure(figure: float, _: int) -> str:
        return panel.unit(figure) if figure else "0"

    return format_figure


def _draw_bar(axes: Any, panel: Panel, bar: Bar, place: float) -> None:
    spread = bar.figure
    axes.barh(place, spread.median, height=0.82, color=COLOURS[bar.peer])
    axes.plot([spread.low, spread.high], [place, place], color="#333333", linewidth=1.1)
    ours = bar.peer == OURS
    axes.annotate(
        f"{panel.unit(spread.median)}  {PEERS[bar.peer].title}",
        (max(spread.median, spread.high), place),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=7.5,
        fontweight="bold" if ours else "normal",
        color="#000000" if ours else "#444444",
        va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
    )


def _draw_limit(
    axes: Any, panel: Panel, limit: float, span: tuple[float, float], end: float
) -> None:
    """Draw the figure of the raw socket as a line, or an arrow if it is outside of the chart."""
    if limit < end:
        axes.plot([limit, limit], span, color=LIMIT, linewidth=1.4, linestyle=DASHES)
    arrow = "" if limit < end else " \u2192"
    words = f"raw socket {panel.unit(limit)}{arrow}"
    axes.text(end, span[0] - 0.5, words, fontsize=7.5, ha="right", va="center", color=LIMIT)


def _draw_head(figure: Any, groups: Sequence[Group], rounds: int) -> None:
    """Draw the title and the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    peers = {bar.peer for group in groups for bar in group.bars}
    marks: list[Any] = [
        Patch(color=colour, label=PEERS[peer].title)
        for peer, colour in COLOURS.items()
        if peer in peers
    ]
    if any(group.limit for group in groups):
        marks.append(Line2D([], [], color=LIMIT, linestyle=DASHES, label=PEERS[RAW].title))
    height = figure.get_figheight()
    title = f"{PEERS[OURS].title} beside its peers: "
    title += (
        f"medians of {rounds} rounds; thin lines from the lowest to the highest"
        if rounds > 1
        else "a single round"
    )
    figure.text(0.005, 1 - 0.12 / height, title, fontsize=13, fontweight="bold", va="top")
    where = (0.0, 1 - 0.36 / height)
    figure.legend(
        handles=marks, loc="upper left", bbox_to_anchor=where, ncols=4, fontsize=9, frameon=False
    )
