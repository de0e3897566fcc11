"""What a run of the demo is asked for, what it finds, and who is told of it meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kafka_async.cli.demo import text
from kafka_async.kernel import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Generator


class Teller(Protocol):
    """Who shows a person what goes on."""

    def stage(self, title: str, total: int | None) -> None:
        """A new stage begins; `total` is what its progress bar counts to."""
        ...

    def advance(self, done: int) -> None:
        """So much of the stage is done."""
        ...

    def say(self, line: str) -> None:
        """Something happened that a person wants to know."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Leave the screen to another program."""
        ...


@dataclass(frozen=True)
class Plan:
    """What the caller asked for. `bootstrap` None starts an embedded cluster.

    `patience` is how many seconds an unreachable cluster is waited for.
    """

    files: Sequence[Path]
    bootstrap: str | None
    out: Path
    keep: bool
    with_spark: bool
    seed: int
    patience: float


@dataclass
class Stage:
    """One row of the table at the end. `records` 0: the stage is not about records."""

    name: str
    seconds: float = 0.0
    records: int = 0


@dataclass
class Result:
    """What a run found; `as_dict` is what --json writes."""

    run_id: str
    seed: int
    backend: str
    topics: dict[str, str]
    lines: int
    comparison: text.Comparison = field(default_factory=lambda: text.Comparison(0, 0, 0, 0))
    counts: Counter[str] = field(default_factory=Counter[str])
    aborted_transactions: int = 0
    killed_workers: int = 0
    rebalances: int = 0
    stages: list[Stage] = field(default_factory=list[Stage])
    wrote: list[Path] = field(default_factory=list[Path])
    spark: str = "not run"

    def as_dict(self) -> dict[str, object]:
        """Plain figures, for JSON.

        `words` and `distinct_words` are the plain count's. `aborted_transactions` counts what
        workers aborted and what the coordinator aborted for the killed one, if it had begun.
        `rebalances` is the group's last generation. `seed` repeats the moment of the kill.
        """
        return {
            "lines": self.lines,
            "words": self.comparison.expected,
            "distinct_words": self.comparison.distinct,
            "lost": self.comparison.lost,
            "duplicated": self.comparison.duplicated,
            "aborted_transactions": self.aborted_transactions,
            "killed_workers": self.killed_workers,
            "rebalances": self.rebalances,
            "seconds": {stage.name: round(stage.seconds, 3) for stage in self.stages},
            "topics": self.topics,
            "backend": self.backend,
            "kernel": IMPLEMENTATION,
            "spark": self.spark,
            "seed": self.seed,
        }

    @contextmanager
    def timed(self, name: str, records: int = 0) -> Generator[Stage]:
        """Time a stage; it is a row if it succeeds."""
        stage = Stage(name, records=records)
        start = time.perf_counter()
        yield stage
        stage.seconds = time.perf_counter() - start
        self.stages.append(stage)
