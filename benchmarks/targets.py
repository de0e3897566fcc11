"""The targets of the benchmark, as data.

A target compares a figure of our client in a case with that of another contender, or of the best of
several. `benchmarks.outcomes` compares the results with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from benchmarks.cases import CASES, PYTHON_CASES, WITHOUT_LINGER, Case, Contender
from benchmarks.clients import JAVA, OURS, PEERS, PLAIN, PYTHONS, RAW, on_python


class Figure(Enum):
    """Figure to compare, with its unit."""

    RATE = "records/s"
    CPU = "us CPU/record"
    P50 = "us"


class Wanted(Enum):
    """Relation of our figure to the other one; `NOTHING` for comparisons without a target."""

    TIMES = "at least {:g}x"
    AT_MOST = "at most {:g}x"
    LESS = "below it"
    ABOVE = "at most {:g} more"
    NOTHING = "no target"


class Group(Enum):
    """Tables of the page, by title."""

    MAIN = "What was to be reached"
    CPU = "Client CPU a record: below every peer"
    PLAIN = "The kernel in plain Python: ahead of kafka-python"
    INFORMATION = "Without a target: beside the best of the other clients"


@dataclass(frozen=True)
class Target:
    """Target in a case.

    Attributes:
        against: peers, of which the best one is compared.
        against_way: the call of the peer; if None, the same call as ours.
        any_way: compare the best call of the peer.
    """

    what: str
    case: str
    way: str
    against: tuple[str, ...]
    figure: Figure = Figure.RATE
    wanted: Wanted = Wanted.TIMES
    limit: float = 1.0
    against_way: str | None = None
    ours: str = OURS
    any_way: bool = False
    group: Group = Group.MAIN


PYTHON: Final = ("aiokafka", "confluent", "confluent_asyncio", "kafka_python")
ASYNCIO: Final = ("aiokafka", "confluent_asyncio")
ALL_PEERS: Final = (*PYTHON, JAVA)
CONFLUENT_CALLS: Final = ("callbacks", "enqueue")
"""Calls with a callback for each record, like our handles, and with callbacks for errors only."""


def _produce() -> list[Target]:
    enqueue, keyed = "produce 100 B, enqueue", "the same, keyed"
    return [
        Target(enqueue, "produce-100", "enqueue", (JAVA,), limit=1.0),
        *(
            Target(enqueue, "produce-100", "enqueue", ("confluent",), limit=2.0, against_way=way)
            for way in CONFLUENT_CALLS
        ),
        Target(enqueue, "produce-100", "enqueue", ("aiokafka",), limit=8.0),
        Target(keyed, "produce-100-keyed", "enqueue", (JAVA,), limit=0.7),
        *(
            Target(
                keyed, "produce-100-keyed", "enqueue", ("confluent",), limit=1.5, against_way=way
            )
            for way in CONFLUENT_CALLS
        ),
        Target(keyed, "produce-100-keyed", "enqueue", ("aiokafka",), limit=6.0),
        Target("send_many", "send-many", "send_many", (OURS,), limit=1.3, against_way="enqueue"),
        Target("ready-made batches", "send-batch", "send_batch", (RAW,), limit=0.8),
        *(
            Target(what, case, "enqueue", ALL_PEERS, limit=1.2, any_way=True)
            for what, case in (
                ("produce 1 KiB, best peer", "produce-1k"),
                ("produce 1 KiB keyed, best peer", "produce-1k-keyed"),
            )
        ),
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
        Target("consume 1 KiB, zstd", "consume-1k-zstd", "poll", ALL_PEERS, limit=1.2),
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
    """Return targets for the CPU time of each throughput case with a peer."""
    return [
        Target(
            case.title,
            case.name,
            way_of_ours(case),
            peers,
            Figure.CPU,
            Wanted.LESS,
            any_way=True,
            group=Group.CPU,
        )
        for case in CASES.values()
        if not case.operations and (peers := peers_in(case))
    ]


def _plain() -> list[Target]:
    """Return targets for the kernel in plain Python in each case with kafka-python."""
    return [
        Target(
            case.title,
            case.name,
            way_of_ours(case),
            ("kafka_python",),
            Figure.P50 if case.operations else Figure.RATE,
            Wanted.LESS if case.operations else Wanted.TIMES,
            ours=PLAIN,
            group=Group.PLAIN,
        )
        for case in CASES.values()
        if "kafka_python" in peers_in(case)
    ]


def comparisons(*, tuned: bool) -> list[Target]:
    """Return comparisons with the best peer of each case, without a target."""
    return [
        Target(
            case.title,
            case.name,
            way_of_ours(case),
            peers,
            Figure.P50 if case.operations else Figure.RATE,
            Wanted.NOTHING,
            any_way=True,
            group=Group.INFORMATION,
        )
        for case in CASES.values()
        if (case.tuned or not tuned) and (peers := peers_in(case))
    ]


def peers_in(case: Case) -> tuple[str, ...]:
    """Return the other clients of a case, in the order of the table of peers."""
    present = {contender.peer for contender in case.contenders}
    return tuple(peer for peer in ALL_PEERS if peer in present)


def way_of_ours(case: Case) -> str:
    """Return the first call of our client in a case."""
    return next(each.way for each in case.contenders if each.peer == OURS)


def _without_target(targets: list[Target]) -> list[Target]:
    """Return comparisons for cases whose targets do not include all other clients."""
    covered: dict[str, set[str]] = {}
    for target in targets:
        covered.setdefault(target.case, set()).update(target.against)
    return [
        each
        for each in comparisons(tuned=True)
        if set(each.against) - covered.get(each.case, set())
    ]


_MAIN = [*_produce(), *_consume(), *_latency()]
TARGETS: Final = (*_MAIN, *_cpu(), *_plain(), *_without_target(_MAIN))

LONE_SEND: Final = "a lone await send(), p50"
DEFAULT_TARGETS: Final = (
    Target(LONE_SEND, "lone-send", "", ("aiokafka",), Figure.P50, Wanted.AT_MOST),
    Target(
        LONE_SEND,
        "lone-send",
        "",
        (OURS,),
        Figure.P50,
        Wanted.AT_MOST,
        limit=1.2,
        against_way=WITHOUT_LINGER,
    ),
    Target("1,000 concurrent send()", "send-concurrent", "send", ASYNCIO, limit=1.5),
)
"""Targets of clients with default options."""

REASONS: Final[Mapping[str, str]] = {
    "round-trip": "within noise: single rounds give 0.79 to 1.46 times the other's time",
    "consume-1k": "ours moves 93 % of what a raw socket in one thread does; librdkafka, above that "
    "limit, reads ahead in separate threads on the other core",
}
"""Reasons, by case, why our client is behind in the checked-in table of defaults."""


SHARE_OF_SEND_MANY: Final = 0.667
"""Share of the rate of `send_many`: a call per record costs at most 1.5 times as much."""


def _pythons() -> list[Target]:
    """Return targets per Python version: calls for single records against `send_many` and peers."""
    produce = "pythons-produce-100"
    found: list[Target] = []
    for version in PYTHONS:
        ours, confluent = on_python(OURS, version), on_python("confluent", version)
        found += [
            Target(
                f"{way}, Python {version}",
                produce,
                way,
                (ours,),
                limit=SHARE_OF_SEND_MANY,
                against_way="send_many",
                ours=ours,
            )
            for way in ("enqueue", "enqueue_nowait")
        ]
        found += [
            Target(
                f"enqueue, Python {version}",
                produce,
                "enqueue",
                (peer,),
                limit=limit,
                ours=ours,
                any_way=True,
            )
            for peer, limit in ((confluent, 2.5), (JAVA, 1.5))
        ]
    return found


def _comparisons_on_pythons() -> list[Target]:
    """Return comparisons per Python version with the best peer, without a target."""
    found: list[Target] = []
    for case in list(PYTHON_CASES.values())[1:]:
        for version in PYTHONS:
            ours = on_python(OURS, version)
            names = dict.fromkeys(each.peer for each in case.contenders)
            found.append(
                Target(
                    f"{case.title.removesuffix(', by Python')}, Python {version}",
                    case.name,
                    next(each.way for each in case.contenders if each.peer == ours),
                    tuple(
                        name
                        for name in names
                        if name != ours and PEERS[name].python in ("", version)
                    ),
                    Figure.P50 if case.operations else Figure.RATE,
                    Wanted.NOTHING,
                    ours=ours,
                    any_way=True,
                    group=Group.INFORMATION,
                )
            )
    return found


PYTHON_TARGETS: Final = (*_pythons(), *_comparisons_on_pythons())

SPECIAL: Final = {
    "metadata": ("10,000 partitions: metadata to routing table", "half the fastest peer's time"),
    "assignor": ("500 members in an assignor", "no peer is faster"),
    "memory": ("peak memory at full speed", "at most 40 MB and the budgets"),
    "many_topics": ("5,000 topics produced to", "half the speed of one topic"),
    "idle": ("idle, 3 brokers", "a producer 0.02 %, a consumer 0.25 % of a core"),
    "fairness": ("the longest turn of the event loop", "at most 5 ms"),
}
"""Titles and goals of special cases, for reports in which they were not measured."""


def contender_of(target: Target) -> Contender:
    """Return our contender of a target."""
    return Contender(target.ours, target.way)
