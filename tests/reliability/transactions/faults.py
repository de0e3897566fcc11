"""Plans the faults of `make reliability-transactions`. Pure."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

BROKERS: Final = 3
WORKERS: Final = 3
MIN_PAUSE, MAX_PAUSE = 0.5, 2.0
"""Seconds between the end of a fault and the beginning of the next."""


class FaultKind(enum.Enum):
    """Faults of a run."""

    KILL_WORKER = "kill a worker"
    STOP_WORKER = "stop a worker by SIGSTOP"
    KILL_BROKER = "kill a broker"
    STOP_BROKER = "stop a broker by SIGSTOP"


SECONDS: Final = {
    FaultKind.KILL_WORKER: (0.0, 1.0),
    FaultKind.STOP_WORKER: (1.0, 12.0),
    FaultKind.KILL_BROKER: (1.0, 6.0),
    FaultKind.STOP_BROKER: (1.0, 12.0),
}
"""Shortest and longest time without the worker or broker. Sessions last 6 s and transactions 10 s,
so a worker that was stopped may continue with a lost session and an expired transaction."""


@dataclass(frozen=True)
class Fault:
    """Describes one fault.

    Attributes:
        kind: The kind of fault.
        number: The worker or the broker, from 1.
        pause: Seconds before the fault.
        seconds: Seconds until the worker or broker is started or continued.
    """

    kind: FaultKind
    number: int
    pause: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.kind.value}: number {self.number} for {self.seconds:.1f} s"


def faults(seed: int) -> Iterator[Fault]:
    """Yield faults without end: each four contain every kind, in a random order."""
    rng = random.Random(seed)
    while True:
        for kind in rng.sample(list(FaultKind), len(FaultKind)):
            number = rng.randint(1, WORKERS if kind in WORKER_FAULTS else BROKERS)
            yield Fault(
                kind, number, rng.uniform(MIN_PAUSE, MAX_PAUSE), rng.uniform(*SECONDS[kind])
            )


WORKER_FAULTS: Final = frozenset({FaultKind.KILL_WORKER, FaultKind.STOP_WORKER})
