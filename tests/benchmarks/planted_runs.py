"""Runs with given figures."""

from __future__ import annotations

from benchmarks.peers.task import Figures
from benchmarks.rounds import Run

CASE = "produce-100"


def runs(peer: str, seconds: list[float], *, way: str = "enqueue", case: str = CASE) -> list[Run]:
    return [
        Run(case, peer, way, number, Figures(each, each / 2, 8_000, settings={"linger_ms": 5}))
        for number, each in enumerate(seconds, 1)
    ]


def trips(peer: str, p50: list[float], operations: int = 100) -> list[Run]:
    return [
        Run("round-trip", peer, "", number, Figures(1.0, 0.1, operations, latency_us=latency))
        for number, each in enumerate(p50, 1)
        for latency in ({"p50": each, "p99": each * 2, "p99.9": each * 3},)
    ]
