"""Runs cases in interleaved rounds, each run in a separate process, and checks the records.

Each run, successful or failed, is written to the run log at once, so that an interrupted benchmark
can be continued. A client that fails or exceeds the time limit is excluded from the rest of the
case. A client with wrong records ends the benchmark.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import child_processes, payload, topics
from benchmarks.cases import SECONDS, Case, Contender
from benchmarks.clients import PEERS
from benchmarks.peers.task import Figures, Task
from benchmarks.progress import Step
from benchmarks.topics import Tally, WrongResultError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.progress import Progress

TIME_LIMIT = 60.0
"""Time limit of a client's process in seconds."""
CHECK: Final = 0
"""Number of the round that checks consumers; timed rounds count from 1."""
DEFAULTS_RECORDS_FACTOR: Final = 0.5
"""Factor for records with default options: some clients take several times as long."""
DEFAULTS_OPERATIONS_FACTOR: Final = 0.0075
"""Factor for single operations with default options: a client may wait a second per batch."""
CONNECT_SECONDS: Final = 8.0
"""Seconds until all contenders that run at the same time are connected."""


class FailedError(RuntimeError):
    """A client's process failed or exceeded the time limit."""


@dataclass(frozen=True)
class Run:
    """Run of a contender in a round, with its figures or its error."""

    case: str
    peer: str
    way: str
    number: int
    figures: Figures | None = None
    error: str | None = None

    @property
    def contender(self) -> Contender:
        """Contender of the run."""
        return Contender(self.peer, self.way)


class RunLog:
    """All runs so far, in a file of JSON lines; the first line describes the machine."""

    def __init__(self, path: Path, context: dict[str, Any], *, resume: bool) -> None:
        self.runs: list[Run] = []
        self.specials: dict[str, Any] = {}
        self.context = context
        self._path = path
        if resume and path.exists():
            self._load()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"context": context}) + "\n", "utf-8")

    def add(self, run: Run) -> None:
        """Add a run."""
        self.runs.append(run)
        self._append({"run": asdict(run)})

    def add_special(self, name: str, result: Any) -> None:
        """Add the result of a special case."""
        self.specials[name] = result
        self._append({"special": name, "result": result})

    def find(self, case: Case, contender: Contender, number: int) -> Run | None:
        """Return a run if it is in the log, else None."""
        for run in self.runs:
            if (run.case, run.contender, run.number) == (case.name, contender, number):
                return run
        return None

    def failed(self, case: Case, contender: Contender) -> bool:
        """Return True if the contender has failed in the case."""
        return any(
            run.error is not None
            for run in self.runs
            if (run.case, run.contender) == (case.name, contender)
        )

    def failure(self) -> str:
        """Return what failed, or that nothing was measured; empty if all is well."""
        failed = [
            f"{run.contender.peer} in {run.case}" for run in self.runs if run.error is not None
        ]
        failed += [name for name, result in self.specials.items() if "error" in result]
        if failed:
            return "failed: " + ", ".join(failed)
        return "" if self.runs or self.specials else "nothing was measured"

    def _append(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _load(self) -> None:
        first, *lines = self._path.read_text("utf-8").splitlines()
        before = json.loads(first)["context"]
        keys = (self.context.keys() | before.keys()) - {
            "date"
        }  # a run may be continued on another day
        changed = sorted(key for key in keys if before.get(key) != self.context.get(key))
        self.context = {**self.context, **before}
        if changed:
            raise SystemExit(
                f"{self._path} differs in its machine or versions ({', '.join(changed)}): run "
                "without --resume"
            )
        kept = [first]
        for text in lines:
            try:
                line = json.loads(text)
            except ValueError:  # truncated when the benchmark was interrupted
                continue
            if "special" in line and "error" not in line["result"]:
                self.specials[line["special"]] = line["result"]
            elif "special" in line:
                continue  # failed: run it again
            elif line["run"]["error"] is None:
                figures = Figures(**line["run"].pop("figures"))
                self.runs.append(Run(**line["run"], figures=figures))
            else:
                continue  # failed: run it again
            kept.append(text)
        self._path.write_text("\n".join(kept) + "\n", "utf-8")


def order(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """Return the order of a round: reversed in every second round."""
    return list(contenders[:: 1 if number % 2 else -1])


def measure(
    case: Case,
    contenders: Sequence[Contender],
    bootstrap: str,
    rounds: int,
    run_log: RunLog,
    *,
    tuned: bool = True,
    scale: float = 1.0,
    progress: Progress | None = None,
) -> None:
    """Make the runs of a case that are not in the run log.

    Raises:
        WrongResultError: a client lost, invented or changed records.
    """
    runner = _CaseRunner(case, bootstrap, run_log, progress, tuned=tuned, scale=scale)
    try:
        for number in _numbers(case, rounds):
            runner.round(order(contenders, number), number)
    finally:
        runner.end()


def remaining(
    case: Case, contenders: Sequence[Contender], rounds: int, run_log: RunLog
) -> list[Step]:
    """Return the rounds of a case with runs that are not in the run log."""
    steps: list[Step] = []
    for number in _numbers(case, rounds):
        missing = [each for each in contenders if run_log.find(case, each, number) is None]
        if missing:
            steps.append(Step(case.name, number, _seconds(case, missing)))
    return steps


def _seconds(case: Case, contenders: Sequence[Contender]) -> float:
    """Return the estimated seconds of a round."""
    timed = case.operations / case.rate if case.rate else SECONDS
    if case.together:
        return CONNECT_SECONDS + timed + len(contenders)
    return sum(timed + PEERS[each.peer].around for each in contenders)


def _numbers(case: Case, rounds: int) -> range:
    """Return the numbers of the rounds; the check of consumers is the first."""
    return range(CHECK if case.kind == "consume" else 1, rounds + 1)


class _CaseRunner:
    """Runs the rounds of a case, and owns its topics."""

    def __init__(
        self,
        case: Case,
        bootstrap: str,
        run_log: RunLog,
        progress: Progress | None,
        *,
        tuned: bool,
        scale: float,
    ) -> None:
        self._case = case
        self._bootstrap = bootstrap
        self._run_log = run_log
        self._progress = progress
        self._tuned = tuned
        factor = (
            DEFAULTS_OPERATIONS_FACTOR
            if case.operations and case.tuned
            else DEFAULTS_RECORDS_FACTOR
        )
        self._scale = scale * (1.0 if tuned else factor)
        self._filled: dict[int, str] = {}

    def round(self, contenders: Sequence[Contender], number: int) -> None:
        """Run a round, all contenders at the same time if the case requires it."""
        missing = [
            contender
            for contender in contenders
            if self._run_log.find(self._case, contender, number) is None
        ]
        if not missing:
            return
        if self._progress is not None:
            sys.stderr.write(f"{self._progress.line(self._case.name, number)}\n")
        if self._case.together:
            for run in self._all_at_once(missing, number):
                self._record(run)
            return
        for contender in missing:
            if not self._run_log.failed(self._case, contender):
                self._record(self._run(contender, number))

    def _all_at_once(self, contenders: Sequence[Contender], number: int) -> list[Run]:
        """Run all contenders at the same time, with their operations spread evenly."""
        start = time.time() + CONNECT_SECONDS
        share = 1 / (self._case.rate * len(contenders))
        with ThreadPoolExecutor(len(contenders)) as pool:
            futures = [
                pool.submit(self._run, contender, number, start + place * share)
                for place, contender in enumerate(contenders)
            ]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                return [future.result() for future in futures if future.done()]
            finally:
                while wait(futures, timeout=0.1).not_done:  # after an exception, end the others
                    child_processes.kill_all()

    def end(self) -> None:
        """Delete the topics."""
        if self._filled:
            asyncio.run(topics.delete(self._bootstrap, *self._filled.values()))

    def _record(self, run: Run) -> None:
        self._run_log.add(run)
        outcome = run.error
        if run.figures is not None:
            rate = run.figures.records / run.figures.seconds
            outcome = f"{rate:,.0f} /s in {run.figures.seconds:.2f} s"
        name = "check" if run.number == CHECK else f"round {run.number}"
        sys.stderr.write(f"{run.case}, {name}: {run.peer} {run.way}: {outcome}\n")

    def _run(self, contender: Contender, number: int, start: float = 0.0) -> Run:
        try:
            if self._case.kind == "consume":
                figures = self._consume(contender, verify=number == CHECK)
            else:
                figures = self._produce(contender, start)
        except FailedError as error:
            return Run(self._case.name, contender.peer, contender.way, number, error=str(error))
        return Run(self._case.name, contender.peer, contender.way, number, figures)

    def _produce(self, contender: Contender, start: float) -> Figures:
        topic = asyncio.run(topics.create(self._bootstrap))
        try:
            task = self._task(contender, topic, self._case.records(contender, self._scale))
            task = replace(task, start=start)
            figures = launch(contender, task)
            _check_sent(self._case, contender, task, figures, self._bootstrap)
            return figures
        finally:
            asyncio.run(topics.delete(self._bootstrap, topic))

    def _consume(self, contender: Contender, *, verify: bool) -> Figures:
        case, scale = self._case, self._scale
        records = case.check_records(scale) if verify else case.records(contender, scale)
        task = replace(self._task(contender, self._topic(records), records), verify=verify)
        figures = launch(contender, task)
        _check_read(self._case, contender, task, figures)
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
        return Task(
            kind=case.kind,
            bootstrap=self._bootstrap,
            topic=topic,
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
    case: Case, contender: Contender, task: Task, figures: Figures, bootstrap: str
) -> None:
    found = asyncio.run(topics.tally(bootstrap, task.topic))
    compressible = task.compression != "none"
    expected = Tally(
        task.records, payload.expected(task.records, task.size, compressible=compressible)
    )
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
    expected = payload.expected(task.records, task.size, compressible=task.compression != "none")
    checks = task.verify and not PEERS[contender.peer].counts_only
    if figures.records != task.records or (checks and figures.checksum != expected):
        raise WrongResultError(
            f"{case.name}: {contender.peer} ({contender.way}) read {figures.records} records with "
            f"checksum {figures.checksum}; {task.records} with {expected} are in the topic"
        )


def launch(contender: Contender, task: Task) -> Figures:
    """Run a task in the process of a client; return the figures that it prints.

    Raises:
        FailedError: the process failed, output no figures, or exceeded TIME_LIMIT.
    """
    peer = PEERS[contender.peer]
    command = [peer.interpreter, "-m", peer.module, json.dumps(asdict(task))]
    try:
        code, output, errors = child_processes.run(command, TIME_LIMIT, peer.environment)
    except child_processes.TimeLimitError as error:
        raise FailedError(str(error)) from None
    if code:
        raise FailedError(f"exit code {code}: {_last_line(errors)}")
    try:
        return Figures(**json.loads(output.splitlines()[-1]))
    except (ValueError, IndexError, TypeError) as error:
        raise FailedError(f"it printed no figures: {output[-200:]!r}") from error


def _last_line(text: str) -> str:
    """Return the last line of error output, for example the exception of a traceback."""
    lines = text.strip().splitlines()
    return lines[-1].replace(sys.executable, "python")[-500:] if lines else "no output"
