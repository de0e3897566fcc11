"""Plans the faults of `make reliability-spark`, and decides when a run has had enough. Pure.

A run consists of rounds. Each starts a driver that continues the query, and waits for its first
epoch; then come the faults of the round, of which the last kills the driver.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

BROKERS: Final = 3
PARTITIONS: Final = 3
"""Partitions of the input topic, and so transactions of an epoch."""

MIN_KILL_SECONDS, MAX_KILL_SECONDS = 5.0, 30.0
"""Seconds from the first epoch of a driver to a kill; other kills do not count."""
MAX_FIRST_SECONDS: Final = 9.0
"""Limit for the time of the first fault of a round."""
MAX_ARM_SECONDS: Final = 18.0
"""Limit for the time at which a kill in a commit is armed: it then waits for the next commit."""


class FaultKind(enum.Enum):
    """Faults of a run."""

    KILL_DRIVER = "kill the driver"
    KILL_DRIVER_IN_COMMIT = "kill the driver between the decision and its last EndTxn"
    KILL_PYTHON_WORKER = "kill a Python worker"
    KILL_EXECUTOR = "kill an executor"
    KILL_BROKER = "kill a broker"
    ROLL_BROKERS = "roll the brokers"
    DELAY_END_TXN = "delay EndTxn"
    SECOND_DRIVER = "start a second driver"
    SECOND_DRIVER_WHILE_FROZEN = "freeze the driver, start a second one, resume the first"


DRIVER_KILLS: Final = frozenset({FaultKind.KILL_DRIVER, FaultKind.KILL_DRIVER_IN_COMMIT})
SECOND_DRIVERS: Final = frozenset({FaultKind.SECOND_DRIVER, FaultKind.SECOND_DRIVER_WHILE_FROZEN})


@dataclass(frozen=True)
class Fault:
    """Describes one fault.

    Attributes:
        kind: The kind of fault.
        at: Seconds after the first epoch of the driver; after a second driver has taken over, it is
            that driver's first epoch.
        number: The broker to kill, or the number of EndTxn requests that pass before one is held.
        seconds: Time that a broker stays down, or that EndTxn requests are held.
    """

    kind: FaultKind
    at: float
    number: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        text = f"{self.kind.value} at {self.at:.1f} s"
        if self.kind is FaultKind.KILL_BROKER:
            return f"{text}: broker {self.number} for {self.seconds:.1f} s"
        if self.kind in (FaultKind.DELAY_END_TXN, FaultKind.KILL_DRIVER_IN_COMMIT):
            return f"{text}: after {self.number} EndTxn, held for {self.seconds:.1f} s"
        return text


@dataclass(frozen=True)
class Round:
    """Describes a driver's life: the faults in order, and whether it has separate executors."""

    faults: tuple[Fault, ...]
    has_executors: bool = False

    def __str__(self) -> str:
        place = "on a standalone cluster" if self.has_executors else "local"
        return f"{place}: " + ", then ".join(map(str, self.faults))


@dataclass(frozen=True)
class Kill:
    """Records a kill: seconds after the driver's first epoch, and whether it was committing."""

    what: str
    seconds: float
    in_commit: bool

    @property
    def counts(self) -> bool:
        """True if the kill came in the time that is asked for."""
        return MIN_KILL_SECONDS <= self.seconds <= MAX_KILL_SECONDS


@dataclass(frozen=True)
class Goal:
    """Describes what a run needs before it may end."""

    seconds: float = 900.0
    kills: int = 12
    kills_in_commit: int = 4
    epochs: int = 50

    @classmethod
    def of(cls, seconds: float) -> Goal:
        """Return the goal of a run; that of a short run is smaller in proportion."""
        share = min(1.0, seconds / cls.seconds)
        return cls(
            seconds,
            round(cls.kills * share),
            round(cls.kills_in_commit * share),
            round(cls.epochs * share),
        )

    def missing(self, seconds: float, kills: Sequence[Kill], epochs: int) -> list[str]:
        """Return what a run lacks after a time, in words; empty if it may end."""
        counted = [kill for kill in kills if kill.counts]
        rows = (
            (int(seconds), int(self.seconds), "seconds"),
            (len(counted), self.kills, "kills"),
            (sum(kill.in_commit for kill in counted), self.kills_in_commit, "kills in a commit"),
            (epochs, self.epochs, "epochs"),
        )
        return [f"{found} of {needed} {what}" for found, needed, what in rows if found < needed]


def rounds(seed: int, done: int = 0) -> Iterator[Round]:
    """Yield rounds without end: each six contain every kind of fault, in a random order.

    Args:
        seed: Seed of the order and the faults.
        done: Number of rounds to leave out at the beginning.
    """
    return itertools.islice(_rounds(random.Random(seed)), done, None)


def _rounds(rng: random.Random) -> Iterator[Round]:
    while True:
        for extra in rng.sample(_EXTRAS, len(_EXTRAS)):
            yield _round(rng, extra)


_EXTRAS: Final = (
    FaultKind.KILL_PYTHON_WORKER,
    FaultKind.KILL_EXECUTOR,
    FaultKind.KILL_BROKER,
    FaultKind.ROLL_BROKERS,
    FaultKind.DELAY_END_TXN,
    FaultKind.SECOND_DRIVER,
)
_KILLED_IN_COMMIT: Final = frozenset(
    {
        FaultKind.KILL_PYTHON_WORKER,
        FaultKind.KILL_BROKER,
        FaultKind.ROLL_BROKERS,
        FaultKind.SECOND_DRIVER,
        FaultKind.SECOND_DRIVER_WHILE_FROZEN,
    }
)


def _round(rng: random.Random, extra: FaultKind) -> Round:
    at = rng.uniform(MIN_KILL_SECONDS, MAX_FIRST_SECONDS)
    seconds = rng.uniform(3.0, 20.0)
    number = 0
    has_executors = extra is FaultKind.KILL_EXECUTOR
    if extra is FaultKind.KILL_BROKER:
        number, seconds = rng.randint(1, BROKERS), rng.uniform(3.0, 10.0)
    elif extra is FaultKind.DELAY_END_TXN:
        number = rng.randrange(PARTITIONS)
    elif extra is FaultKind.SECOND_DRIVER:
        extra = rng.choice(sorted(SECOND_DRIVERS, key=lambda kind: kind.value))
    if extra in _KILLED_IN_COMMIT:
        kill = Fault(
            FaultKind.KILL_DRIVER_IN_COMMIT,
            rng.uniform(MAX_FIRST_SECONDS, MAX_ARM_SECONDS),
            rng.randrange(PARTITIONS),
            rng.uniform(0.0, 20.0),
        )
    else:
        kill = Fault(FaultKind.KILL_DRIVER, rng.uniform(MAX_FIRST_SECONDS, MAX_KILL_SECONDS - 1))
    return Round((Fault(extra, at, number, seconds), kill), has_executors)
