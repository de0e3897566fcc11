"""Targets of the Spark benchmark, and whether a run meets them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OURS: Final = "kafka_async"
CONNECTOR: Final = "Spark's connector"
READY: Final = "ready-made Arrow batches"
DISCARDED: Final = "fetched, discarded, ready-made"
ONCE: Final = "kafka_async, exactly once"
PYTHON: Final = "empty Python source and sink"
JVM: Final = "empty JVM source and sink"
READ_100: Final = "batch read, 100 B"
READ_1K: Final = "batch read, 1 KiB"
COPY: Final = "copy, 100 B"
FILTER: Final = "read of 1 % by time"
LATENCY: Final = "copy at 1,000 records/s"
CONTROL: Final = "control message to job"

MIN_RATIOS: Final = {
    (READ_100, CONNECTOR): 2.7,
    (READ_1K, CONNECTOR): 1.5,
    (COPY, CONNECTOR): 2.0,
    (FILTER, CONNECTOR): 20.0,
}
"""Least times of the connector, as multiples of ours."""
MAX_OURS_TO_READY: Final = 1.15
"""Most time of our read, as a multiple of a source with ready-made batches."""
MAX_ONCE: Final = 1.15
"""Most time of an exactly-once copy, as a multiple of an at-least-once one."""
MAX_LATENCY: Final = 1.2
"""Highest latency, as a multiple of the connector's; or the connector's and the cost of Python."""
MAX_CONTROL_MS: Final = {"p50": 20.0, "p99": 100.0}


@dataclass(frozen=True)
class Verdict:
    """A target, what was measured, and whether it meets the target."""

    name: str
    measured: float
    target: float
    met: bool
    unit: str = "times"

    def __str__(self) -> str:
        relation = "meets" if self.met else "MISSES"
        return f"{self.name}: {self.measured:.2f} {self.unit} {relation} {self.target:.2f}"


def check(
    ratios: Mapping[tuple[str, str], float],
    latencies: Mapping[tuple[str, str], tuple[float, float]],
) -> list[Verdict]:
    """Return the verdicts on the cases that were measured.

    Args:
        ratios: Time of a client as a multiple of ours, by case and client.
        latencies: p50 and p99 in ms, by case and client.
    """
    verdicts = [
        Verdict(f"{case}, {client}", ratios[case, client], least, ratios[case, client] >= least)
        for (case, client), least in MIN_RATIOS.items()
        if (case, client) in ratios
    ]
    if (READ_100, READY) in ratios:
        measured = 1 / ratios[READ_100, READY]
        name = f"{READ_100}, ours to {READY}"
        verdicts.append(Verdict(name, measured, MAX_OURS_TO_READY, measured <= MAX_OURS_TO_READY))
    if (COPY, ONCE) in ratios:
        measured = ratios[COPY, ONCE]
        verdicts.append(Verdict(f"{COPY}, {ONCE}", measured, MAX_ONCE, measured <= MAX_ONCE))
    for at, name in enumerate(("p50", "p99")):
        if (LATENCY, OURS) in latencies:
            of = {
                client: latencies[LATENCY, client][at] for client in (OURS, CONNECTOR, PYTHON, JVM)
            }
            cost = max(0.0, of[PYTHON] - of[JVM])
            target = max(MAX_LATENCY * of[CONNECTOR], of[CONNECTOR] + cost)
            verdicts.append(
                Verdict(f"{LATENCY}, {name}", of[OURS], target, of[OURS] <= target, "ms")
            )
        if (CONTROL, OURS) in latencies:
            measured, target = latencies[CONTROL, OURS][at], MAX_CONTROL_MS[name]
            verdicts.append(
                Verdict(f"{CONTROL}, {name}", measured, target, measured <= target, "ms")
            )
    return verdicts
