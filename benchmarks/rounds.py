"""Runs cases in interleaved rounds, each run in a separate process, and checks the records.

A client that fails or exceeds the time limit is excluded from the rest of the case. A client with
wrong records ends the benchmark.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks import topics
from benchmarks.cases import SECONDS, Case, Contender
from benchmarks.clients import PEERS
from benchmarks.payload import WrongResultError
from benchmarks.peers.task import Figures, Task
from benchmarks.processes import FailedError, launch, run_together
from benchmarks.progress import Progress, Step
from benchmarks.runs import CHECK, Run, RunLog
from benchmarks.topics import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.tls import TlsListener

DEFAULTS_RECORDS_FACTOR: Final = 0.5
"""Factor for records with default options: some clients take several times as long."""
DEFAULTS_OPERATIONS_FACTOR: Final = 0.0075
"""Factor for single operations with default options: a client may wait a second per batch."""
CONNECT_SECONDS: Final = 8.0
"""Seconds until all contenders that run at the same time are connected."""


def order(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """Return the order of a round: reversed in every second round."""
    return list(contenders[:: 1 if number % 2 else -1])


def numbers(case: Case, rounds: int) -> range:
    """Return the numbers of the rounds; the check of consumers is the first."""
    return range(CHECK if case.kind == "consume" else 1, min(rounds, case.rounds) + 1)


def remaining(
    case: Case, contenders: Sequence[Contender], rounds: int, run_log: RunLog
) -> list[Step]:
    """Return the rounds of a case with runs that are not in the run log."""
    return [
        Step(case.name, number, _seconds(case, missing))
        for number in numbers(case, rounds)
        if (missing := run_log.missing(case, contenders, number))
    ]


def _seconds(case: Case, contenders: Sequence[Contender]) -> float:
    """Return the estimated seconds of a round."""
    timed = case.operations / case.rate if case.rate else SECONDS
    if case.together:
        return CONNECT_SECONDS + timed + len(contenders)
    return sum(timed + PEERS[each.peer].around for each in contenders)


class CaseRunner:
    """Runs the rounds of a case, and owns its topics."""

    def __init__(
        self,
        case: Case,
        bootstrap: str,
        run_log: RunLog,
        progress: Progress,
        *,
        tuned: bool = True,
        scale: float = 1.0,
        tls: TlsListener | None = None,
    ) -> None:
        self._case = case
        self._tls = tls
        self._bootstrap = bootstrap
        self._run_log = run_log
        self._progress = progress
        self._tuned = tuned
        if not tuned and case.operations and case.tuned:
            scale *= DEFAULTS_OPERATIONS_FACTOR
        elif not tuned:
            scale *= DEFAULTS_RECORDS_FACTOR
        self._scale = scale
        self._filled: dict[int, str] = {}

    def run(self, contenders: Sequence[Contender], rounds: int) -> None:
        """Make the runs that are not in the run log."""
        try:
            for number in numbers(self._case, rounds):
                self._round(order(contenders, number), number)
        finally:
            if self._filled:
                asyncio.run(topics.delete(self._bootstrap, *self._filled.values()))

    def _round(self, contenders: Sequence[Contender], number: int) -> None:
        missing = self._run_log.missing(self._case, contenders, number)
        if missing:
            print(self._progress.line(self._case.name, number), file=sys.stderr)
        if missing and self._case.together:
            self._run_all_at_once(missing, number)
            return
        for contender in missing:
            if not self._run_log.has_failed(self._case, contender):
                self._record(self._run(contender, number))

    def _run_all_at_once(self, contenders: Sequence[Contender], number: int) -> None:
        """Run all contenders at the same time, with their operations spread evenly."""
        start = time.time() + CONNECT_SECONDS
        share = 1 / (self._case.rate * len(contenders))
        calls = [
            partial(self._run, contender, number, start + place * share)
            for place, contender in enumerate(contenders)
        ]
        for run in run_together(calls):
            self._record(run)

    def _record(self, run: Run) -> None:
        self._run_log.add(run)
        outcome = run.error
        if run.figures is not None:
            rate = run.figures.records / run.figures.seconds
            outcome = f"{rate:,.0f} /s in {run.figures.seconds:.2f} s"
        name = "check" if run.number == CHECK else f"round {run.number}"
        print(f"{run.case}, {name}: {run.peer} {run.way}: {outcome}", file=sys.stderr)

    def _run(self, contender: Contender, number: int, start: float = 0.0) -> Run:
        run = Run(self._case.name, contender.peer, contender.way, number)
        try:
            if self._case.kind == "consume":
                return replace(run, figures=self._consume(contender, verify=number == CHECK))
            return replace(run, figures=self._produce(contender, start))
        except FailedError as error:
            return replace(run, error=str(error))

    def _produce(self, contender: Contender, start: float) -> Figures:
        topic = asyncio.run(topics.create(self._bootstrap))
        try:
            records = self._case.records(contender, self._scale)
            task = replace(self._task(contender, topic, records), start=start)
            figures = launch(contender.peer, task)
            found = asyncio.run(topics.tally(self._bootstrap, topic))
            _check_sent(self._case, contender, task, figures, found)
            return figures
        finally:
            asyncio.run(topics.delete(self._bootstrap, topic))

    def _consume(self, contender: Contender, *, verify: bool) -> Figures:
        case, scale = self._case, self._scale
        records = case.check_records(scale) if verify else case.records(contender, scale)
        task = replace(self._task(contender, self._topic(records), records), verify=verify)
        figures = launch(contender.peer, task)
        _check_read(case, contender, task, figures)
        return figures

    def _topic(self, records: int) -> str:
        """Return the topic with `records` records; create it on first use."""
        if records not in self._filled:
            self._filled[records] = asyncio.run(self._fill(records))
        return self._filled[records]

    async def _fill(self, records: int) -> str:
        case = self._case
        topic = await topics.create(self._bootstrap)
        await topics.fill(
            self._bootstrap,
            topic,
            records,
            case.size,
            keyed=case.keyed,
            compression=case.compression,
        )
        return topic

    def _task(self, contender: Contender, topic: str, records: int) -> Task:
        case = self._case
        bootstrap, cafile = (self._tls if case.tls else None) or (self._bootstrap, "")
        return Task(
            kind=case.kind,
            bootstrap=bootstrap,
            topic=topic,
            cafile=cafile,
            way=contender.way,
            partitions=topics.PARTITIONS,
            records=records,
            size=case.size,
            keyed=case.keyed,
            compression=case.compression,
            rate=case.rate,
            concurrency=case.concurrency,
            tuned=self._tuned,
        )


def _check_sent(
    case: Case, contender: Contender, task: Task, figures: Figures, found: Tally
) -> None:
    expected = _expected(task)
    # The values of single operations differ between clients: some contain the time of sending.
    counted = task.kind != "produce" or PEERS[contender.peer].counts_only
    correct = found.records == expected.records if counted else found == expected
    plausible = figures.records <= task.records if counted else figures.records == task.records
    if not correct or not plausible:
        raise WrongResultError(
            f"{case.name}: {contender.peer} ({contender.way or task.kind}) sent {expected.records} "
            f"records with checksum {expected.checksum}, reported {figures.records}, and "
            f"{found.records} with checksum {found.checksum} are in the topic"
        )


def _check_read(case: Case, contender: Contender, task: Task, figures: Figures) -> None:
    expected = _expected(task)
    checks = task.verify and not PEERS[contender.peer].counts_only
    if figures.records != task.records or (checks and figures.checksum != expected.checksum):
        raise WrongResultError(
            f"{case.name}: {contender.peer} ({contender.way}) read {figures.records} records with "
            f"checksum {figures.checksum}; {expected.records} with {expected.checksum} are in the "
            "topic"
        )


def _expected(task: Task) -> Tally:
    return Tally.expected(task.records, task.size, compressible=task.compression != "none")
