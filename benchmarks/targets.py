"""What is to be reached, as data, and what was.

A target compares one figure of ours in a case with that of another contender, or of the best of
several. Where the other one was not measured, the target is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cases import Contender
from benchmarks.contenders import JAVA, OURS, PEERS, PLAIN, RAW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.report import Row


class Figure(Enum):
    """What is compared, and its unit."""

    RATE = "records/s"
    CPU = "us CPU/record"
    P50 = "us"


class Wanted(Enum):
    """How ours is to stand to the other: `TIMES` as much at least, or as little at most, ..."""

    TIMES = "at least {:g}x"
    LESS = "below it"
    ABOVE = "at most {:g} more"


@dataclass(frozen=True)
class Target:
    """A line of the table of targets. `against` names peers: the best one of them counts."""

    what: str
    case: str
    way: str
    against: tuple[str, ...]
    figure: Figure = Figure.RATE
    wanted: Wanted = Wanted.TIMES
    limit: float = 1.0
    against_way: str | None = None
    ours: str = OURS


@dataclass(frozen=True)
class Outcome:
    """A target and what came of it; `met` is None where something was not measured."""

    what: str
    ours: str
    against: str
    theirs: str
    reached: str
    wanted: str
    met: bool | None


PYTHON: Final = ("aiokafka", "confluent", "confluent_asyncio", "kafka_python")
ASYNCIO: Final = ("aiokafka", "confluent_asyncio")
EVERYONE: Final = (*PYTHON, JAVA)
CONFLUENT: Final = ("callbacks", "enqueue")
"""With a report of each record, as our handles give, and with errors alone reported: faster."""


def _produce() -> list[Target]:
    enqueue, keyed = "produce 100 B, enqueue", "the same, keyed"
    return [
        Target(enqueue, "produce-100", "enqueue", (JAVA,), limit=1.0),
        *(
            Target(enqueue, "produce-100", "enqueue", ("confluent",), limit=2.0, against_way=way)
            for way in CONFLUENT
        ),
        Target(enqueue, "produce-100", "enqueue", ("aiokafka",), limit=8.0),
        Target(keyed, "produce-100-keyed", "enqueue", (JAVA,), limit=0.7),
        *(
            Target(
                keyed, "produce-100-keyed", "enqueue", ("confluent",), limit=1.5, against_way=way
            )
            for way in CONFLUENT
        ),
        Target(keyed, "produce-100-keyed", "enqueue", ("aiokafka",), limit=6.0),
        Target("send_many", "send-many", "send_many", (OURS,), limit=1.3, against_way="enqueue"),
        Target("ready-made batches", "send-batch", "send_batch", (RAW,), limit=0.8),
        Target("produce 1 KiB, best peer", "produce-1k", "enqueue", PYTHON, limit=1.2),
        Target("produce 1 KiB, Java tool", "produce-1k", "enqueue", (JAVA,), limit=1.2),
        Target("1,000 concurrent send()", "send-concurrent", "send", ("aiokafka",), limit=3.0),
    ]


def _consume() -> list[Target]:
    poll, batches = "consume 100 B, poll", "consume-100-batches"
    return [
        Target(poll, "consume-100", "poll", PYTHON, limit=2.0),
        Target(poll, "consume-100", "poll", (JAVA,), limit=1.0),
        Target("async for", "consume-100-iterate", "iterate", PYTHON, limit=1.3),
        Target("poll_batches()", batches, "batches", (RAW,), limit=0.6),
        Target("to_arrow()", batches, "arrow", (RAW,), limit=0.6),
        Target("consume 1 KiB, zstd", "consume-1k-zstd", "poll", PYTHON, limit=1.2),
    ]


def _latency() -> list[Target]:
    cases = {
        "round-trip-1": "round trip, 1/s",
        "round-trip-1000": "round trip, 1,000/s",
        "round-trip": "round trip, back to back",
    }
    return [
        target
        for case, what in cases.items()
        for target in (
            Target(what, case, "", (RAW,), Figure.P50, Wanted.ABOVE, 60.0),
            Target(what, case, "", ASYNCIO, Figure.P50, Wanted.LESS),
        )
    ]


def _cpu() -> list[Target]:
    cases = {"produce-100": "enqueue", "produce-100-keyed": "enqueue", "consume-100": "poll"}
    return [
        Target(f"client CPU, {case}", case, way, EVERYONE, Figure.CPU, Wanted.LESS)
        for case, way in cases.items()
    ]


TARGETS: Final = (*_produce(), *_consume(), *_latency(), *_cpu())


def outcomes(rows: Sequence[Row], specials: Mapping[str, Any]) -> list[Outcome]:
    """All targets, those of kafka-python and the plain kernel, and the special cases' goals."""
    return [
        *(_outcome(target, rows) for target in TARGETS),
        *(_goal(result, goal) for result in specials.values() for goal in result.get("goals", ())),
        *(_outcome(target, rows) for target in _plain(rows)),
    ]


def _plain(rows: Sequence[Row]) -> list[Target]:
    """The kernel in plain Python beats kafka-python, wherever both were measured."""
    measured = {(row.case, row.way, row.peer): row for row in rows}
    targets: list[Target] = []
    for (case, way, peer), row in measured.items():
        if peer == PLAIN and (case, way, "kafka_python") in measured:
            figure = Figure.P50 if row.latency else Figure.RATE
            wanted = Wanted.LESS if row.latency else Wanted.TIMES
            what = f"plain Python, {case}"
            targets.append(Target(what, case, way, ("kafka_python",), figure, wanted, ours=PLAIN))
    return targets


def _goal(result: Mapping[str, Any], goal: Mapping[str, Any]) -> Outcome:
    bound = "at least" if goal["more_is_better"] else "at most"
    unit = goal["unit"]
    return Outcome(
        f"{result['title']}",
        "",
        goal["what"],
        "",
        _number(goal["figure"], unit),
        f"{bound} {_number(goal['limit'], unit)}",
        bool(goal["met"]),
    )


def _number(figure: float, unit: str) -> str:
    return f"{figure:,.3g}{'' if unit == 'x' else ' '}{unit}"


def _outcome(target: Target, rows: Sequence[Row]) -> Outcome:
    mine = _find(rows, target.case, Contender(target.ours, target.way))
    theirs = [row for peer in target.against if (row := _theirs(rows, target, peer)) is not None]
    wanted = target.wanted.value.format(target.limit)
    others = " or ".join(PEERS[peer].title for peer in target.against)
    if target.against_way not in (None, target.way):
        others += f", {target.against_way}"
    if mine is None or not theirs:
        return Outcome(target.what, "", others, "", "not measured", wanted, None)
    pick = max if target.figure is Figure.RATE else min
    best = pick(theirs, key=lambda row: figure_of(row, target.figure))
    ours, other = figure_of(mine, target.figure), figure_of(best, target.figure)
    unit = target.figure.value
    named = best.peer == target.ours or best.way != target.way
    return Outcome(
        target.what,
        f"{_digits(ours)} {unit}",
        best.title + (f", {best.way}" if named else ""),
        f"{_digits(other)} {unit}",
        f"{ours - other:+,.0f} us" if target.wanted is Wanted.ABOVE else f"{ours / other:.2f}x",
        wanted,
        is_met(target, ours, other),
    )


def is_met(target: Target, ours: float, other: float) -> bool:
    """Whether our figure stands to the other's as it is wanted to."""
    match target.wanted:
        case Wanted.TIMES:
            return ours >= target.limit * other
        case Wanted.LESS:
            return ours < other
        case Wanted.ABOVE:
            return ours - other <= target.limit


def figure_of(row: Row, figure: Figure) -> float:
    """A row's median."""
    if figure is Figure.P50:
        return row.latency["p50"].median
    return (row.rate if figure is Figure.RATE else row.cpu_us).median


def _find(rows: Sequence[Row], case: str, contender: Contender) -> Row | None:
    for row in rows:
        if (row.case, row.peer, row.way) == (case, contender.peer, contender.way):
            return row
    return None


def _theirs(rows: Sequence[Row], target: Target, peer: str) -> Row | None:
    """By the call that the target names; else by the same as ours, or what the peer has instead."""
    if target.against_way is not None:
        return _find(rows, target.case, Contender(peer, target.against_way))
    instead = (row for row in rows if (row.case, row.peer) == (target.case, peer))
    return _find(rows, target.case, Contender(peer, target.way)) or next(instead, None)


def _digits(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"
