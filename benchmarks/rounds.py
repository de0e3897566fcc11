"""The runs: interleaved in rounds, each in a process of its own, each checked at the other end.

A run that ended well, and one that failed, is a line in the ledger as soon as it is known, so that
a benchmark that was interrupted goes on where it stopped. A client that fails or takes too long is
left out of the rest of its case; a client that is wrong ends the benchmark.
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

from benchmarks import children, payload, topics
from benchmarks.cases import SECONDS, Case, Contender
from benchmarks.contenders import PEERS
from benchmarks.peers.task import Figures, Task
from benchmarks.progress import Step
from benchmarks.topics import Tally, WrongResultError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.progress import Progress

TIME_LIMIT = 60.0
"""Seconds after which a client's process is ended."""
CHECK: Final = 0
"""The number of the round in which consumers are checked; timed ones count from 1."""
UNTUNED: Final = 0.5
"""Of the records, where nothing is tuned: some clients take several times as long for them then."""
UNTUNED_OPERATIONS: Final = 0.0075
"""Of the single operations: a client may wait a second to fill a batch."""


READY: Final = 8.0
"""Seconds until all contenders of a case that run side by side are connected."""


class FailedError(RuntimeError):
    """A client's process failed or took too long."""


@dataclass(frozen=True)
class Run:
    """One contender in one round: its figures, or what went wrong."""

    case: str
    peer: str
    way: str
    number: int
    figures: Figures | None = None
    error: str | None = None

    @property
    def contender(self) -> Contender:
        """Whose run it is."""
        return Contender(self.peer, self.way)


class Ledger:
    """All runs so far, in a file of JSON lines; the first line says on what they were made."""

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
        """Keep a run."""
        self.runs.append(run)
        self._append({"run": asdict(run)})

    def add_special(self, name: str, result: Any) -> None:
        """Keep the result of a case that has a shape of its own."""
        self.specials[name] = result
        self._append({"special": name, "result": result})

    def find(self, case: Case, contender: Contender, number: int) -> Run | None:
        """The run that was made already."""
        for run in self.runs:
            if (run.case, run.contender, run.number) == (case.name, contender, number):
                return run
        return None

    def failed(self, case: Case, contender: Contender) -> bool:
        """Whether this contender failed in this case before."""
        return any(
            run.error is not None
            for run in self.runs
            if (run.case, run.contender) == (case.name, contender)
        )

    def complaint(self) -> str:
        """What is wrong with the whole of it: something failed, or there is nothing."""
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
        keys = (self.context.keys() | before.keys()) - {"date"}  # a night may lie in between
        changed = sorted(key for key in keys if before.get(key) != self.context.get(key))
        self.context = {**self.context, **before}
        if changed:
            raise SystemExit(
                f"{self._path} was made on something else ({', '.join(changed)} differ): run "
                "without --resume"
            )
        kept = [first]
        for text in lines:
            try:
                line = json.loads(text)
            except ValueError:  # cut off when the benchmark was ended
                continue
            if "special" in line and "error" not in line["result"]:
                self.specials[line["special"]] = line["result"]
            elif "special" in line:
                continue  # it is tried again
            elif line["run"]["error"] is None:
                figures = Figures(**line["run"].pop("figures"))
                self.runs.append(Run(**line["run"], figures=figures))
            else:
                continue  # it is tried again
            kept.append(text)
        self._path.write_text("\n".join(kept) + "\n", "utf-8")


def order(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """The order of a round: reversed every other time, so that nobody is always the first."""
    return list(contenders[:: 1 if number % 2 else -1])


def measure(
    case: Case,
    contenders: Sequence[Contender],
    bootstrap: str,
    rounds: int,
    ledger: Ledger,
    *,
    tuned: bool = True,
    scale: float = 1.0,
    progress: Progress | None = None,
) -> None:
    """Make the runs of a case that the ledger has not.

    Raises:
        WrongResultError: a client lost, invented or changed records.
    """
    course = _Course(case, bootstrap, ledger, progress, tuned=tuned, scale=scale)
    try:
        for number in _numbers(case, rounds):
            course.round(order(contenders, number), number)
    finally:
        course.end()


def remaining(
    case: Case, contenders: Sequence[Contender], rounds: int, ledger: Ledger
) -> list[Step]:
    """The rounds of a case in which there are runs that the ledger has not."""
    steps: list[Step] = []
    for number in _numbers(case, rounds):
        missing = [each for each in contenders if ledger.find(case, each, number) is None]
        if missing:
            steps.append(Step(case.name, number, _seconds(case, missing)))
    return steps


def _seconds(case: Case, contenders: Sequence[Contender]) -> float:
    """How long a round is likely to take."""
    timed = case.operations / case.rate if case.rate else SECONDS
    if case.together:
        return READY + timed + len(contenders)
    return sum(timed + PEERS[each.peer].around for each in contenders)


def _numbers(case: Case, rounds: int) -> range:
    """The rounds of a case; consumers are checked first."""
    return range(CHECK if case.kind == "consume" else 1, rounds + 1)


class _Course:
    """A case under way: its topics, and what is to be found in them."""

    def __init__(
        self,
        case: Case,
        bootstrap: str,
        ledger: Ledger,
        progress: Progress | None,
        *,
        tuned: bool,
        scale: float,
    ) -> None:
        self._case = case
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._progress = progress
        self._tuned = tuned
        untuned = UNTUNED_OPERATIONS if case.operations and case.tuned else UNTUNED
        self._scale = scale * (1.0 if tuned else untuned)
        self._filled: dict[int, str] = {}

    def round(self, contenders: Sequence[Contender], number: int) -> None:
        """One round, all at once where the case says so."""
        missing = [
            contender
            for contender in contenders
            if self._ledger.find(self._case, contender, number) is None
        ]
        if not missing:
            return
        if self._progress is not None:
            sys.stderr.write(f"{self._progress.line(self._case.name, number)}\n")
        if self._case.together:
            for run in self._all_at_once(missing, number):
                self._keep(run)
            return
        for contender in missing:
            if not self._ledger.failed(self._case, contender):
                self._keep(self._run(contender, number))

    def _all_at_once(self, contenders: Sequence[Contender], number: int) -> list[Run]:
        """All of a round side by side, their operations spread evenly over the time between two."""
        start = time.time() + READY
        share = 1 / (self._case.rate * len(contenders))
        with ThreadPoolExecutor(len(contenders)) as pool:
            under_way = [
                pool.submit(self._run, contender, number, start + place * share)
                for place, contender in enumerate(contenders)
            ]
            try:
                wait(under_way, return_when=FIRST_EXCEPTION)
                return [future.result() for future in under_way if future.done()]
            finally:
                while wait(under_way, timeout=0.1).not_done:  # none of them is waited for, then
                    children.end_all()

    def end(self) -> None:
        """Delete the topics that were filled."""
        if self._filled:
            asyncio.run(topics.delete(self._bootstrap, *self._filled.values()))

    def _keep(self, run: Run) -> None:
        self._ledger.add(run)
        said = run.error
        if run.figures is not None:
            rate = run.figures.records / run.figures.seconds
            said = f"{rate:,.0f} /s in {run.figures.seconds:.2f} s"
        name = "check" if run.number == CHECK else f"round {run.number}"
        sys.stderr.write(f"{run.case}, {name}: {run.peer} {run.way}: {said}\n")

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
        records = case.checked(scale) if verify else case.records(contender, scale)
        task = replace(self._task(contender, self._topic(records), records), verify=verify)
        figures = launch(contender, task)
        _check_read(self._case, contender, task, figures)
        return figures

    def _topic(self, records: int) -> str:
        """The topic with so many records, filled when it is first asked for."""
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
    wanted = Tally(
        task.records, payload.expected(task.records, task.size, compressible=compressible)
    )
    # Single operations need not take all values in turn; some carry the time they were sent at.
    counted = task.kind != "produce" or PEERS[contender.peer].counts_only
    right = found.records == wanted.records if counted else found == wanted
    told = figures.records <= task.records if counted else figures.records == task.records
    if not right or not told:
        raise WrongResultError(
            f"{case.name}: {contender.peer} ({contender.way or task.kind}) sent {wanted.records} "
            f"records with checksum {wanted.checksum}, says it was {figures.records}, and "
            f"{found.records} with checksum {found.checksum} are in the topic"
        )


def _check_read(case: Case, contender: Contender, task: Task, figures: Figures) -> None:
    wanted = payload.expected(task.records, task.size, compressible=task.compression != "none")
    checks = task.verify and not PEERS[contender.peer].counts_only
    if figures.records != task.records or (checks and figures.checksum != wanted):
        raise WrongResultError(
            f"{case.name}: {contender.peer} ({contender.way}) read {figures.records} records with "
            f"checksum {figures.checksum}; {task.records} with {wanted} are in the topic"
        )


def launch(contender: Contender, task: Task) -> Figures:
    """Run a task in the client's own process; the figures it printed.

    Raises:
        FailedError: it exited with an error, printed no figures, or took longer than TIME_LIMIT.
    """
    peer = PEERS[contender.peer]
    command = [peer.interpreter, "-m", peer.module, json.dumps(asdict(task))]
    try:
        code, printed, complaint = children.run(command, TIME_LIMIT, peer.environment)
    except children.TimeLimitError as error:
        raise FailedError(str(error)) from None
    if code:
        raise FailedError(f"exit code {code}: {_last_line(complaint)}")
    try:
        return Figures(**json.loads(printed.splitlines()[-1]))
    except (ValueError, IndexError, TypeError) as error:
        raise FailedError(f"it printed no figures: {printed[-200:]!r}") from error


def _last_line(text: str) -> str:
    """Of a traceback, what was raised."""
    lines = text.strip().splitlines()
    return lines[-1].replace(sys.executable, "python")[-500:] if lines else "it said nothing"
