"""Draws the chart of a run: a bar per client with its spread, and the raw socket as a line."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cases import CASES
from benchmarks.clients import OURS, PEERS, RAW
from benchmarks.rows import Figure, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

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
TITLES: Final = {PEERS[peer].title for peer in COLOURS}
BAR: Final = 0.24
"""Height of a bar in inches."""
WIDTH: Final = 13.0


def _thousands(figure: float) -> str:
    return f"{figure / 1e6:.2f} M" if figure >= 1e6 else f"{figure / 1e3:,.0f} k"


def _micros(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.2f}"


@dataclass(frozen=True)
class Panel:
    """Part of the chart: `cases` with the call to show for each."""

    title: str
    cases: dict[str, str]
    figure: Figure
    unit: Callable[[float], str]


PANELS: Final = (
    Panel(
        "Produce, records/s (more is better)",
        {"produce-100": "enqueue", "produce-100-keyed": "enqueue", "produce-1k": "enqueue"}
        | {"send-concurrent": "send"},
        Figure.RATE,
        _thousands,
    ),
    Panel(
        "Consume, records/s (more is better)",
        {"consume-100": "poll", "consume-100-iterate": "iterate"}
        | {"consume-1k": "poll", "consume-1k-zstd": "poll"},
        Figure.RATE,
        _thousands,
    ),
    Panel(
        "Latency p50, microseconds (less is better)",
        {"round-trip": "", "round-trip-1000": "", "round-trip-1": "", "end-to-end": ""},
        Figure.P50,
        _micros,
    ),
    Panel(
        "Client CPU, microseconds a record (less is better)",
        {"produce-100": "enqueue", "produce-1k": "enqueue"}
        | {"consume-100": "poll", "consume-1k-zstd": "poll"},
        Figure.CPU,
        _micros,
    ),
)


@dataclass(frozen=True)
class Group:
    """Rows of a case, and the figure of the raw socket if it was measured."""

    title: str
    rows: Sequence[Row]
    limit: float | None


def _groups(panel: Panel, rows: Sequence[Row]) -> list[Group]:
    found: list[Group] = []
    for case, way in panel.cases.items():
        of_case = [row for row in rows if row.case == case]
        mine = [row for row in of_case if row.peer != RAW]
        # The row of the same call, else of another call of the peer.
        chosen = {row.peer: row for row in reversed(mine)}
        chosen |= {row.peer: row for row in mine if row.way == way}
        limits = [row.figure(panel.figure).median for row in of_case if row.peer == RAW]
        limit = limits[0] if limits and panel.figure is not Figure.CPU else None
        if mine:
            bars = [row for row in mine if row is chosen[row.peer]]
            found.append(Group(CASES[case].title, bars, limit))
    return found


def draw(rows: Sequence[Row], machine: str, path: Path) -> bool:
    """Write the chart as PNG; return False if none of its cases was measured."""
    panels = [(panel, groups) for panel in PANELS if (groups := _groups(panel, rows))]
    if not panels:
        return False
    from matplotlib.figure import Figure as Picture

    columns = min(2, len(panels))
    lines = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    heights = [max(_bars(groups) for _, groups in line) for line in lines]
    picture: Any = Picture(figsize=(WIDTH, sum(heights) * BAR + 1.6), layout="constrained")
    axes = picture.subplots(len(lines), columns, height_ratios=heights, squeeze=False)
    for each in axes.flat[len(panels) :]:
        each.set_visible(False)
    for each, (panel, groups) in zip(axes.flat, panels, strict=False):
        _draw_panel(each, panel, groups)
    rounds = max(row.rounds for _, groups in panels for group in groups for row in group.rows)
    medians = f"medians of {rounds} rounds; thin lines from the lowest to the highest"
    title = f"{PEERS[OURS].title} beside its peers: {medians if rounds > 1 else 'a single round'}"
    picture.suptitle(title, fontsize=13, fontweight="bold")
    picture.supxlabel("\n".join(textwrap.wrap(machine, 200)), fontsize=7.5, color="#555555")
    picture.savefig(path, dpi=110)
    return True


def _bars(groups: Sequence[Group]) -> int:
    """Return the height of a panel in bars: a group has one for its title, and its clients."""
    return sum(len(group.rows) + 1 for group in groups)


def _draw_panel(axes: Any, panel: Panel, groups: Sequence[Group]) -> None:
    labels: list[str] = []
    for group in groups:
        labels.append(group.title)
        if group.limit is not None:
            labels[-1] += f" (raw socket {panel.unit(group.limit)})"
            span = (len(labels) - 0.5, len(labels) + len(group.rows) - 0.5)
            axes.plot([group.limit] * 2, span, color="#222222", linestyle="--", linewidth=1.4)
        for row in group.rows:
            spread = row.figure(panel.figure)
            ends = [[max(0.0, spread.median - spread.low)], [spread.high - spread.median]]
            bar = axes.barh(len(labels), spread.median, 0.82, xerr=ends, color=COLOURS[row.peer])
            axes.bar_label(bar, [panel.unit(spread.median)], padding=3, fontsize=7.5)
            labels.append(row.title)
    longest = max(row.figure(panel.figure).high for group in groups for row in group.rows)
    axes.set_xlim(0, longest * 1.2)  # a limit further away has only its figure
    axes.set_yticks(range(len(labels)), labels, fontsize=7.5)
    axes.invert_yaxis()
    for label in axes.get_yticklabels():
        label.set_fontweight("normal" if label.get_text() in TITLES else "bold")
    axes.set_title(panel.title, fontsize=11, loc="right")
    axes.xaxis.set_major_formatter(partial(_tick, panel))
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _tick(panel: Panel, figure: float, _: int) -> str:
    return panel.unit(figure) if figure else "0"
