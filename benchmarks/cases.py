"""The table of benchmark cases, each with its clients and the call that each is measured by."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import log
from typing import Any, Final, NamedTuple

from benchmarks.clients import JAVA, OURS, PEERS, PLAIN, PYTHONS, RAW, on_python

SECONDS: Final = 1.0
"""Approximate duration of a run in seconds."""
TIERS: Final = (100_000, 500_000, 2_000_000, 8_000_000)
"""Sizes of the topics to consume, in records of 100 bytes; a client reads a whole topic."""
MEGABYTES: Final = {"none": 350, "lz4": 150, "zstd": 60}
"""Megabytes per second that the broker can receive, or the cores can compress, by codec."""
MAIN_ROUNDS: Final = 5
FEW_ROUNDS: Final = 3
"""Rounds of cases without a target."""


class Contender(NamedTuple):
    """Client, and the call that it is measured by."""

    peer: str
    way: str = ""


ONLY_TUNED: Final = (Contender("confluent", "callbacks"), Contender(JAVA, "program"))
"""Contenders that the table of defaults excludes if another call of the client is in the case."""


@dataclass(frozen=True)
class Case:
    """Case of the benchmark: the same work for every contender.

    Attributes:
        kind: the kind of task: `produce`, `consume`, `round_trip` or `end_to_end`.
        operations: number of single operations in cases that measure latency, else 0.
        tls: clients connect over TLS, to a second broker.
        together: run all contenders at the same time, because each is idle most of the time.
        rounds: maximum number of rounds in a complete run.
        tuned, defaults: the case is in the table of clients with these options.
    """

    name: str
    title: str
    kind: str
    contenders: tuple[Contender, ...]
    size: int = 100
    keyed: bool = False
    compression: str = "none"
    rate: float = 0.0
    concurrency: int = 1
    operations: int = 0
    together: bool = False
    rounds: int = MAIN_ROUNDS
    tuned: bool = True
    defaults: bool = False
    tls: bool = False

    def contenders_of_table(self, *, tuned: bool) -> tuple[Contender, ...]:
        """Return the contenders of a table: with default options some calls are the same."""
        others = {each.peer for each in self.contenders if each not in ONLY_TUNED}
        return tuple(
            each
            for each in self.contenders
            if tuned or each not in ONLY_TUNED or each.peer not in others
        )

    def records(self, contender: Contender, scale: float = 1.0) -> int:
        """Return the number of records of a run: a multiple of 1,000, so that all values occur."""
        if self.operations:
            return max(int(self.operations * scale), 2)
        speed = PEERS[contender.peer].speeds[contender.way]
        if self.kind == "consume":
            records = speed * 1000 * SECONDS * (1.0 if self.compression == "none" else 0.8)
            records *= 0.3 if self.size > 100 else 1.0
            return _thousands(min(self._tiers, key=lambda tier: abs(log(tier / records))) * scale)
        limit = MEGABYTES[self.compression] * 1000 / self.size
        speed = min(speed * (0.7 if self.keyed else 1.0), limit)
        return _thousands(speed * 1000 * SECONDS * scale)

    def check_records(self, scale: float = 1.0) -> int:
        """Return the number of records that a consumer reads in the check round."""
        return _thousands(self._tiers[0] * scale)

    @property
    def _tiers(self) -> tuple[int, ...]:
        """Numbers of records of the topics to consume."""
        return TIERS if self.size <= 100 else tuple(tier * 3 // 10 for tier in TIERS)


def _thousands(records: float) -> int:
    return max(int(records) // 1000, 1) * 1000


CLIENTS: Final = (OURS, PLAIN, "aiokafka", "confluent", "confluent_asyncio", "kafka_python", JAVA)
ASYNCIO: Final = (OURS, PLAIN, "aiokafka", "confluent_asyncio")
WITHOUT_LINGER: Final = "linger_ms=0"
"""Our client with this option and otherwise the defaults."""
_SIZES = {100: ("100", "100 B"), 1024: ("1k", "1 KiB")}


def _calls(way: str, *peers: str) -> tuple[Contender, ...]:
    return tuple(Contender(peer, way) for peer in peers)


def _shape(verb: str, size: int, how: str, *, keyed: bool, compression: str) -> dict[str, Any]:
    """Return the name, the title and the records of a case."""
    name, title = _SIZES[size]
    words = [*["keyed"] * keyed, *[compression] * (compression != "none")]
    return {
        "name": "-".join([verb, name, *words]),
        "title": ", ".join([f"{verb} {title}{how}", *words]),
        "kind": verb,
        "size": size,
        "keyed": keyed,
        "compression": compression,
    }


def _produce(size: int, compression: str, keyed: bool) -> Case:
    plain = compression == "none"
    contenders = list(_calls("enqueue", *CLIENTS))
    if plain:  # a callback for each record, like our handles; `enqueue` reports only errors
        contenders.insert(3, Contender("confluent", "callbacks"))
    if keyed:  # the Java tool does not support keys
        contenders[-1] = Contender(JAVA, "program")
    elif plain:
        contenders += [Contender(JAVA, "program"), Contender(RAW, "send_batch")]
    return Case(
        **_shape("produce", size, "", keyed=keyed, compression=compression),
        contenders=tuple(contenders),
        rounds=MAIN_ROUNDS if plain and (size, keyed) != (1024, True) else FEW_ROUNDS,
        defaults=plain,
    )


def _consume(size: int, compression: str, *, keyed: bool = False) -> Case:
    plain = compression == "none" and not keyed
    raw = _calls("batches", RAW) if plain else ()
    return Case(
        **_shape("consume", size, " by poll", keyed=keyed, compression=compression),
        contenders=(*_calls("poll", *CLIENTS), *raw),
        rounds=MAIN_ROUNDS if plain or (size, compression) == (1024, "zstd") else FEW_ROUNDS,
        defaults=plain,
    )


def _iterate(size: int) -> Case:
    name, title = _SIZES[size]
    return Case(
        f"consume-{name}-iterate",
        f"consume {title} by async for",
        "consume",
        _calls("iterate", *(peer for peer in CLIENTS if peer != JAVA)),
        size=size,
        rounds=MAIN_ROUNDS if size == 100 else FEW_ROUNDS,
        defaults=size == 100,
    )


def _batches(size: int, compression: str) -> Case:
    name, title = _SIZES[size]
    plain = compression == "none"
    words = [] if plain else [compression]
    ways = [Contender(peer, way) for peer, way in product((OURS, PLAIN), ("batches", "arrow"))]
    return Case(
        "-".join(["consume", name, "batches", *words]),
        ", ".join([f"consume {title} as batches and Arrow", *words]),
        "consume",
        (*ways, *(_calls("batches", RAW) if plain else ())),
        size=size,
        compression=compression,
        rounds=MAIN_ROUNDS if plain and size == 100 else FEW_ROUNDS,
    )


def _over_tls(verb: str, size: int) -> Case:
    name, title = _SIZES[size]
    way = "enqueue" if verb == "produce" else "poll"
    contenders = _calls(way, OURS, PLAIN, "aiokafka", "confluent", JAVA)
    if verb == "produce":
        contenders += (Contender("confluent", "callbacks"), Contender(JAVA, "program"))
    contenders += _calls("send_batch" if verb == "produce" else "batches", RAW)
    return Case(
        f"{verb}-{name}-tls",
        f"{verb} {title} over TLS",
        verb,
        contenders,
        size=size,
        tls=True,
    )


_CASES = (
    *(_produce(*each) for each in product((100, 1024), ("none", "lz4", "zstd"), (False, True))),
    Case(
        "send-many",
        "produce 100 B, enqueue beside send_many",
        "produce",
        (*_calls("enqueue", OURS, PLAIN), *_calls("send_many", OURS, PLAIN)),
    ),
    Case(
        "send-batch",
        "produce 100 B in ready-made batches",
        "produce",
        _calls("send_batch", OURS, PLAIN, RAW),
    ),
    Case(
        "send-concurrent",
        "1,000 concurrent await send(), 100 B",
        "produce",
        _calls("send", *ASYNCIO),
        concurrency=1_000,
        defaults=True,
    ),
    *(_consume(*each) for each in product((100, 1024), ("none", "lz4", "zstd"))),
    _consume(100, "none", keyed=True),
    *(_iterate(size) for size in (100, 1024)),
    *(_batches(*each) for each in ((100, "none"), (1024, "none"), (100, "zstd"))),
    Case(
        "round-trip",
        "round trip, back to back",
        "round_trip",
        _calls("", *CLIENTS, RAW),
        operations=4_000,
        defaults=True,
    ),
    Case(
        "lone-send",
        "a lone await send(), one after the other",
        "round_trip",
        (*_calls("", OURS, PLAIN, "aiokafka"), Contender(OURS, WITHOUT_LINGER)),
        operations=2_000,
        tuned=False,
        defaults=True,
    ),
    Case(
        "round-trip-1000",
        "round trip at 1,000 requests/s",
        "round_trip",
        _calls("", *CLIENTS, RAW),
        operations=2_000,
        rate=1_000.0,
    ),
    Case(
        "round-trip-1",
        "round trip at 1 request/s",
        "round_trip",
        _calls("", *CLIENTS, RAW),
        operations=30,
        rate=1.0,
        together=True,
        rounds=FEW_ROUNDS,
    ),
    Case(
        "end-to-end",
        "from send to receipt, at 1,000 records/s",
        "end_to_end",
        _calls("", *CLIENTS[:-1]),
        operations=2_000,
        rate=1_000.0,
        rounds=FEW_ROUNDS,
    ),
    *(_over_tls(*each) for each in product(("produce", "consume"), (100, 1024))),
)
CASES = {case.name: case for case in _CASES}


def _on_pythons(peer: str, *ways: str) -> tuple[Contender, ...]:
    return tuple(Contender(on_python(peer, version), way) for version in PYTHONS for way in ways)


_PYTHON_CASES = (
    Case(
        "pythons-produce-100",
        "produce 100 B, by Python",
        "produce",
        (
            *_on_pythons(OURS, "enqueue", "enqueue_nowait", "send_many"),
            *_on_pythons("confluent", "enqueue", "callbacks"),
            *(Contender(JAVA, "enqueue"), Contender(JAVA, "program")),
        ),
    ),
    Case(
        "pythons-produce-100-keyed",
        "produce 100 B, keyed, by Python",
        "produce",
        (
            *_on_pythons(OURS, "enqueue"),
            *_on_pythons("confluent", "enqueue"),
            Contender(JAVA, "program"),
        ),
        keyed=True,
    ),
    Case(
        "pythons-send-concurrent",
        "1,000 concurrent await send(), 100 B, by Python",
        "produce",
        (*_on_pythons(OURS, "send"), *_on_pythons("confluent_asyncio", "send")),
        concurrency=1_000,
    ),
    Case(
        "pythons-consume-100",
        "consume 100 B by poll, by Python",
        "consume",
        (*_on_pythons(OURS, "poll"), *_on_pythons("confluent", "poll"), Contender(JAVA, "poll")),
    ),
    Case(
        "pythons-round-trip",
        "round trip, back to back, by Python",
        "round_trip",
        (
            *_on_pythons(OURS, ""),
            *_on_pythons("confluent", ""),
            *_on_pythons("confluent_asyncio", ""),
            Contender(JAVA),
        ),
        operations=4_000,
    ),
)
PYTHON_CASES = {case.name: case for case in _PYTHON_CASES}
"""Cases of the table that compares Python versions."""
ALL_CASES = CASES | PYTHON_CASES
