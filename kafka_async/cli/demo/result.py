"""The options and the result of a run of the demo."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.demo.words import Comparison
from kafka_async.kernel import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True)
class DemoOptions:
    """Holds the options of a run.

    Attributes:
        files: The text; if empty, Python's language reference.
        connection: The cluster; without servers, an embedded cluster.
        out: Directory of Spark's files.
        keep: Do not delete topics and group.
        seed: Chooses when the worker is killed.
    """

    files: Sequence[Path]
    connection: ConnectionOptions
    out: Path
    keep: bool
    with_spark: bool
    seed: int

    @property
    def bootstrap(self) -> str | None:
        """The brokers; None for an embedded cluster."""
        return self.connection.bootstrap


@dataclass
class Stage:
    """Holds a row of the summary; `records` is 0 for a stage without records."""

    name: str
    seconds: float = 0.0
    records: int = 0


@dataclass
class Result:
    """Holds the result of a run."""

    run_id: str
    seed: int
    backend: str
    topics: dict[str, str]
    lines: int
    comparison: Comparison = field(default_factory=lambda: Comparison(0, 0, 0, 0))
    counts: Counter[str] = field(default_factory=Counter[str])
    aborted_transactions: int = 0
    killed_workers: int = 0
    rebalances: int = 0
    batches: int = 0
    stages: list[Stage] = field(default_factory=list[Stage])
    written_files: list[Path] = field(default_factory=list[Path])
    spark: str = "not run"

    def as_dict(self) -> dict[str, object]:
        """Return the figures that --json writes.

        `words` and `distinct_words` come from the reference count. `aborted_transactions` includes
        the killed worker's transaction, which the coordinator aborts. `rebalances` is the group's
        last generation. `batches` counts the batches of the Spark stream. `seed` reproduces the
        moment of the kill.
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
            "batches": self.batches,
            "seconds": {stage.name: round(stage.seconds, 3) for stage in self.stages},
            "topics": self.topics,
            "backend": self.backend,
            "kernel": IMPLEMENTATION,
            "spark": self.spark,
            "seed": self.seed,
        }

    @contextmanager
    def timed(self, name: str, records: int = 0) -> Generator[Stage]:
        """Measure a stage and add it to the stages if it succeeds."""
        stage = Stage(name, records=records)
        start = time.perf_counter()
        yield stage
        stage.seconds = time.perf_counter() - start
        self.stages.append(stage)
