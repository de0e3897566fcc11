"""The targets of the benchmark, as data.

A target compares a figure of our client in a case with that of another contender, or of the best of
several. `benchmarks.verdicts` compares the results with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cases import ALL_CASES, CASES, PYTHON_CASES, WITHOUT_LINGER, Case
from benchmarks.clients import JAVA, OURS, PEERS, PLAIN, PYTHONS, RAW, on_python
from benchmarks.rows import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


def _target(
    case: str, *against: str, limit: float = 1.0, ours: str = OURS, **options: Any
) -> Target:
    """Return a target: by default more records per second, or less time per single operation."""
    found = ALL_CASES[case]
    defaults: dict[str, Any] = {
        "what": found.title,
        "way": next(each.way for each in found.contenders if each.peer == ours),
        "figure": Figure.P50 if found.operations else Figure.RATE,
        "wanted": Wanted.LESS if found.operations else Wanted.TIMES,
    }
    return Target(case=case, against=against, limit=limit, ours=ours, **defaults | options)


def peers_in(case: Case) -> tuple[str, ...]:
    """Return the other clients of a case, in the order of the table of peers."""
    present = {contender.peer for contender in case.contenders}
    return tuple(peer for peer in ALL_PEERS if peer in present)


def _produce(case: str, what: str, java: float, confluent: float, aiokafka: float) -> list[Target]:
    """Return targets for `enqueue`, and for both calls of confluent-kafka.

    Its call with a callback for each record is like our handles; the other reports only errors.
    """
    return [
        _target(case, JAVA, what=what, limit=java),
        _target(case, "confluent", what=what, limit=confluent, against_way="callbacks"),
        _target(case, "confluent", what=what, limit=confluent, against_way="enqueue"),
        _target(case, "aiokafka", what=what, limit=aiokafka),
    ]


def _round_trip(case: str, what: str) -> list[Target]:
    return [
        _target(case, RAW, what=what, wanted=Wanted.ABOVE, limit=60.0),
        _target(case, *ASYNCIO, what=what),
    ]


def _over_tls(case: Case) -> Target:
    """Return a target beside the best call of all other clients that are measured over TLS."""
    what = f"{case.title}, best peer"
    return _target(case.name, *peers_in(case), what=what, limit=2.0, any_way=True)


_BATCHES = "consume-100-batches"
_MAIN: Final = (
    *_produce("produce-100", "produce 100 B, enqueue", 1.0, 2.0, 8.0),
    *_produce("produce-100-keyed", "the same, keyed", 0.7, 1.5, 6.0),
    _target("send-many", OURS, what="send_many", way="send_many", limit=1.3, against_way="enqueue"),
    _target("send-batch", RAW, what="ready-made batches", limit=0.8),
    _target("produce-1k", *ALL_PEERS, what="produce 1 KiB, best peer", limit=1.2, any_way=True),
    _target(
        "produce-1k-keyed",
        *ALL_PEERS,
        what="produce 1 KiB keyed, best peer",
        limit=1.2,
        any_way=True,
    ),
    _target("send-concurrent", "aiokafka", what="1,000 concurrent send()", limit=3.0),
    _target("consume-100", *PYTHON, what="consume 100 B, poll", limit=2.0),
    _target("consume-100", JAVA, what="consume 100 B, poll"),
    _target("consume-100-iterate", *PYTHON, what="async for", limit=1.3),
    _target(_BATCHES, RAW, what="poll_batches()", limit=0.6),
    _target(_BATCHES, RAW, what="to_arrow()", way="arrow", limit=0.6),
    _target("consume-1k-zstd", *ALL_PEERS, what="consume 1 KiB, zstd", limit=1.2),
    *_round_trip("round-trip-1", "round trip, 1/s"),
    *_round_trip("round-trip-1000", "round trip, 1,000/s"),
    *_round_trip("round-trip", "round trip, back to back"),
    *(_over_tls(case) for case in CASES.values() if case.tls),
)
_CPU: Final = tuple(
    _target(
        case.name,
        *peers,
        figure=Figure.CPU,
        wanted=Wanted.LESS,
        any_way=True,
        group=Group.CPU,
    )
    for case in CASES.values()
    if not case.operations and (peers := peers_in(case))
)
_PLAIN: Final = tuple(
    _target(case.name, "kafka_python", ours=PLAIN, group=Group.PLAIN)
    for case in CASES.values()
    if "kafka_python" in peers_in(case)
)


def _comparison(case: Case, peers: Sequence[str], **options: Any) -> Target:
    """Return a comparison with the best of several peers, without a target."""
    given: dict[str, Any] = {"wanted": Wanted.NOTHING, "any_way": True, **options}
    return _target(case.name, *peers, group=Group.INFORMATION, **given)


def comparisons(*, tuned: bool) -> list[Target]:
    """Return comparisons with the best peer of each case, without a target."""
    return [
        _comparison(case, peers)
        for case in CASES.values()
        if (case.tuned or not tuned) and (peers := peers_in(case))
    ]


def _without_target(targets: Sequence[Target]) -> list[Target]:
    """Return comparisons for cases whose targets do not include all other clients."""
    covered: dict[str, set[str]] = {}
    for target in targets:
        covered.setdefault(target.case, set()).update(target.against)
    return [
        each
        for each in comparisons(tuned=True)
        if set(each.against) - covered.get(each.case, set())
    ]


TARGETS: Final = (*_MAIN, *_CPU, *_PLAIN, *_without_target(_MAIN))

_LONE_SEND: Final[dict[str, Any]] = {
    "what": "a lone await send(), p50",
    "wanted": Wanted.AT_MOST,
}
DEFAULT_TARGETS: Final = (
    _target("lone-send", "aiokafka", **_LONE_SEND),
    _target("lone-send", OURS, limit=1.2, against_way=WITHOUT_LINGER, **_LONE_SEND),
    _target("send-concurrent", *ASYNCIO, what="1,000 concurrent send()", limit=1.5),
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


def _python_targets(version: str) -> list[Target]:
    """Return targets on a Python version: single records against `send_many` and peers."""
    case, ours = "pythons-produce-100", on_python(OURS, version)
    title = f"{{}}, Python {version}"
    calls = [
        _target(
            case,
            ours,
            what=title.format(way),
            way=way,
            limit=SHARE_OF_SEND_MANY,
            against_way="send_many",
            ours=ours,
        )
        for way in ("enqueue", "enqueue_nowait")
    ]
    return calls + [
        _target(case, peer, what=title.format("enqueue"), limit=limit, ours=ours, any_way=True)
        for peer, limit in ((on_python("confluent", version), 2.5), (JAVA, 1.5))
    ]


def _python_comparisons(case: Case) -> list[Target]:
    """Return comparisons with the best peer on each Python version, without a target."""
    names = list(dict.fromkeys(each.peer for each in case.contenders))
    title = case.title.removesuffix(", by Python")
    return [
        _comparison(
            case,
            [name for name in names if name != ours and PEERS[name].python in ("", version)],
            what=f"{title}, Python {version}",
            ours=ours,
        )
        for version in PYTHONS
        for ours in (on_python(OURS, version),)
    ]


PYTHON_TARGETS: Final = (
    *(target for version in PYTHONS for target in _python_targets(version)),
    *(target for case in list(PYTHON_CASES.values())[1:] for target in _python_comparisons(case)),
)


@dataclass(frozen=True)
class Expectation:
    """Expected figure of our client in a case, for information only."""

    what: str
    case: str
    way: str
    expected: float
    figure: Figure = Figure.RATE


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
EXPECTED_WITH_DEFAULTS: Final = (
    Expectation("produce 100 B, enqueue", "produce-100", "enqueue", 4_132_324),
    Expectation("the same, keyed", "produce-100-keyed", "enqueue", 3_961_769),
)
"""Figures with default options: the lowest rounds before awaited records stopped lingering."""
METADATA_MS: Final = 60.0
"""Milliseconds from a metadata response with 10,000 partitions to the routing table."""
