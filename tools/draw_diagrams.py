"""Draws diagrams of the documentation as docs/images/*.svg, from descriptions in this file.

python tools/draw_diagrams.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tools.generated_page import DOCS, update

FONT: Final = "font-family='Helvetica, Arial, sans-serif'"
INK: Final = "#1f2937"
LINE: Final = "#475569"
FAINT: Final = "#cbd5e1"
BOX: Final = "#e0f2fe"
STORE: Final = "#fef3c7"
SPARK: Final = "#ffe4e6"
ACTIVE: Final = "#f1f5f9"


# -- shapes ----------------------------------------------------------------------------------------


def text(
    x: float, y: float, words: str, *, size: int = 13, anchor: str = "middle", style: str = ""
) -> str:
    """Return a line of text."""
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' text-anchor='{anchor}' "
        f"fill='{INK}' {style}>{escape(words)}</text>"
    )


def box(x: float, y: float, width: float, height: float, fill: str, *lines: str) -> str:
    """Return a box with lines of text in its middle; the first one is bold."""
    shape = (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='6' "
        f"fill='{fill}' stroke='{LINE}'/>"
    )
    top = y + height / 2 + 4.5 - 8.5 * (len(lines) - 1)
    shown = (
        text(
            x + width / 2,
            top + 17 * number,
            line,
            size=13 if number == 0 else 12,
            style="font-weight='bold'" if number == 0 else "",
        )
        for number, line in enumerate(lines)
    )
    return "".join([shape, *shown])


def arrow(x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False) -> str:
    """Return an arrow."""
    style = "stroke-dasharray='5 4' " if dashed else ""
    return (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{LINE}' "
        f"stroke-width='1.5' {style}marker-end='url(#head)'/>"
    )


def picture(title: str, width: int, height: int, shapes: Iterable[str]) -> str:
    """Return a picture on white paper, which is readable in dark pages too."""
    head = (
        "<defs><marker id='head' markerWidth='9' markerHeight='8' refX='8' refY='4' orient='auto'>"
        f"<path d='M0,0 L9,4 L0,8 z' fill='{LINE}'/></marker></defs>"
    )
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"role='img' aria-label='{escape(title, quote=True)}' {FONT}>",
        head,
        f"<rect width='{width}' height='{height}' rx='8' fill='white'/>",
        *shapes,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# -- sequences -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """An arrow between two participants of a sequence."""

    sender: int
    receiver: int
    words: str


@dataclass(frozen=True)
class Phase:
    """Messages with a common name, and a remark beside them."""

    name: str
    messages: Sequence[Message]
    remark: str


@dataclass(frozen=True)
class Sequenced:
    """A sequence of phases; participants have the colour of their boxes, remarks a heading."""

    title: str
    participants: Sequence[tuple[str, str]]
    phases: Sequence[Phase]
    remarks: str = ""


def sequence(it: Sequenced) -> str:
    """Return the picture of a sequence."""
    left, gap, top, step = 170, 150, 62, 36
    columns = [left + gap * number for number in range(len(it.participants))]
    width = columns[-1] + 330
    shapes: list[str] = []
    y = float(top)
    for number, phase in enumerate(it.phases):
        height = step * len(phase.messages) + 12
        fill = ACTIVE if number % 2 == 0 else "white"
        shapes.append(
            f"<rect x='12' y='{y:g}' width='{width - 24}' height='{height}' fill='{fill}'/>"
        )
        shapes.append(
            text(
                24,
                y + height / 2 + 5,
                phase.name,
                size=15,
                anchor="start",
                style="font-weight='bold'",
            )
        )
        shapes.append(
            text(columns[-1] + 70, y + height / 2 + 5, phase.remark, anchor="start", size=12)
        )
        for index, message in enumerate(phase.messages):
            at = y + step * (index + 1) - 4
            start, end = columns[message.sender], columns[message.receiver]
            shapes.append(arrow(start, at, end, at))
            shapes.append(
                text(
                    (start + end) / 2,
                    at - 6,
                    message.words,
                    size=12,
                    style="paint-order='stroke' stroke='white' stroke-width='3'",
                )
            )
        y += height
    lines = [
        f"<line x1='{x}' y1='{top}' x2='{x}' y2='{y:g}' stroke='{FAINT}' stroke-width='2'/>"
        for x in columns
    ]
    heads = [
        box(x - 58, 16, 116, 34, fill, name)
        for x, (name, fill) in zip(columns, it.participants, strict=True)
    ]
    heads.append(
        text(
            columns[-1] + 70,
            38,
            it.remarks,
            anchor="start",
            style="font-weight='bold'",
        )
    )
    background = [shape for shape in shapes if shape.startswith("<rect")]
    rest = [shape for shape in shapes if not shape.startswith("<rect")]
    return picture(it.title, width, int(y) + 16, [*background, *lines, *heads, *rest])


# -- the exactly-once sink -------------------------------------------------------------------------

PARTICIPANTS: Final = ("driver", "task 0", "task 1", "topic", "ledger topic")
DRIVER, FIRST, SECOND, TOPIC, LEDGER = range(5)
SINK: Final = (
    Phase(
        "plan",
        (
            Message(
                DRIVER, LEDGER, "lock, complete what an earlier driver has decided, number the plan"
            ),
            Message(DRIVER, SECOND, "start the tasks"),
        ),
        "nothing is written yet",
    ),
    Phase(
        "write",
        (
            Message(FIRST, TOPIC, "rows in a transaction, left open"),
            Message(SECOND, TOPIC, "rows"),
            Message(FIRST, DRIVER, "producer id, epoch"),
            Message(SECOND, DRIVER, "producer id, epoch"),
        ),
        "the next driver aborts the transactions",
    ),
    Phase(
        "decide",
        (Message(DRIVER, LEDGER, "the transactions of the epoch: it will be committed"),),
        "as above or as below, never a part",
    ),
    Phase(
        "commit",
        (
            Message(DRIVER, TOPIC, "EndTxn for each transaction: rows become visible"),
            Message(DRIVER, LEDGER, "the epoch is committed"),
        ),
        "the next driver commits the rest",
    ),
)


EPOCH: Final = Sequenced(
    "An epoch of the exactly-once sink: plan, write, decide, commit",
    [(name, SPARK if number < TOPIC else STORE) for number, name in enumerate(PARTICIPANTS)],
    SINK,
    "if the driver is killed here",
)


# -- groups ----------------------------------------------------------------------------------------

CLASSIC: Final = Sequenced(
    "A rebalance of the classic protocol: join, synchronize, heartbeats",
    (("leader", BOX), ("other member", BOX), ("coordinator", STORE)),
    (
        Phase(
            "join",
            (
                Message(1, 2, "JoinGroup: its topics"),
                Message(0, 2, "JoinGroup: its topics"),
                Message(2, 0, "generation, topics of all members"),
                Message(2, 1, "generation"),
            ),
            "the coordinator waits for all members",
        ),
        Phase(
            "sync",
            (
                Message(1, 2, "SyncGroup"),
                Message(0, 2, "SyncGroup: assignments of all members"),
                Message(2, 0, "its assignment"),
                Message(2, 1, "its assignment"),
            ),
            "the assignor runs on the leader",
        ),
        Phase(
            "stable",
            (Message(1, 2, "Heartbeat"), Message(0, 2, "Heartbeat")),
            "each heartbeat_interval_ms",
        ),
    ),
)
CONSUMER: Final = Sequenced(
    "A rebalance of the consumer protocol: join, revoke, assign",
    (("member A", BOX), ("member B", BOX), ("coordinator", STORE)),
    (
        Phase(
            "join",
            (Message(1, 2, "heartbeat: its topics"), Message(2, 1, "next epoch, nothing yet")),
            "the assignor runs on the coordinator",
        ),
        Phase(
            "revoke",
            (
                Message(0, 2, "heartbeat"),
                Message(2, 0, "keep partition 0 only"),
                Message(0, 2, "heartbeat: it owns partition 0"),
            ),
            "A reads partition 0 all the time",
        ),
        Phase(
            "assign",
            (Message(1, 2, "heartbeat"), Message(2, 1, "partition 1")),
            "B begins at the committed offset",
        ),
    ),
)


# -- the orchestrator ------------------------------------------------------------------------------


def orchestrator() -> str:
    """Return the parts of a running orchestrator."""
    shapes = [
        box(16, 70, 150, 62, STORE, "control topic", "run, backfill,", "cancel, pause"),
        box(16, 190, 150, 62, STORE, "source topics", "new records", "and their lag"),
        f"<rect x='216' y='24' width='500' height='276' rx='8' fill='{ACTIVE}' stroke='{LINE}'/>",
        text(232, 46, "active driver: one process", anchor="start", style="font-weight='bold'"),
        box(
            236,
            62,
            180,
            220,
            BOX,
            "event loop",
            "triggers: rows, lag, interval",
            "limits, pools, time-outs",
            "retries, bisection",
            "ledger writer",
        ),
        *(
            box(486, 62 + 76 * number, 100, 56, BOX, f"job {number + 1}", "in a thread")
            for number in range(3)
        ),
        box(618, 62, 84, 208, SPARK, "Spark", "tagged", "actions"),
        *(arrow(416, 90 + 76 * number, 484, 90 + 76 * number) for number in range(3)),
        *(arrow(586, 90 + 76 * number, 616, 90 + 76 * number) for number in range(3)),
        arrow(166, 101, 234, 101),
        arrow(166, 221, 234, 221),
        f"<rect x='216' y='356' width='500' height='104' rx='8' fill='white' stroke='{LINE}' "
        "stroke-dasharray='5 4'/>",
        text(466, 376, "one transaction for each job", style="font-weight='bold'"),
        box(232, 390, 108, 54, STORE, "ledger", "state of jobs"),
        box(352, 390, 108, 54, STORE, "offsets", "processed"),
        box(472, 390, 108, 54, STORE, "events", "of the job"),
        box(592, 390, 108, 54, STORE, "reply", "to the sender"),
        arrow(326, 282, 326, 354),
        text(340, 330, "commit", anchor="start", size=12),
        box(756, 70, 150, 62, BOX, "waiting driver", "another process"),
        box(756, 190, 150, 62, BOX, "waiting driver", "another process"),
        arrow(756, 101, 718, 101, dashed=True),
        arrow(756, 221, 718, 221, dashed=True),
        text(831, 160, "one takes over,", size=12),
        text(831, 176, "and fences the old one", size=12),
    ]
    title = "An orchestrator: topics, the active driver with its jobs, and waiting drivers"
    return picture(title, 922, 476, shapes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pictures; with --check only compare them."""
    parser = argparse.ArgumentParser(description="Draws diagrams of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    check = parser.parse_args(arguments).check
    images = DOCS / "images"
    files = {
        images / "exactly_once.svg": sequence(EPOCH),
        images / "group_classic.svg": sequence(CLASSIC),
        images / "group_consumer.svg": sequence(CONSUMER),
        images / "orchestrator.svg": orchestrator(),
    }
    return update(dict(files), check=check)


if __name__ == "__main__":
    sys.exit(main())
