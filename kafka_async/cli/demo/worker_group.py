"""Three workers in one consumer group: two tasks, and a child process that is killed.

All three join, get partitions, and then get their instructions. The child process stops after a
random line, at a random phase of a transaction, and is killed with SIGKILL. Its partitions are
assigned to the others when its session expires (6 s), and the coordinator aborts its open
transaction (10 s).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.demo.child_process import ChildProcess, child_process
from kafka_async.cli.demo.worker import PHASES, Event, Instructions, Job, Worker
from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine, Mapping, Sequence
    from typing import Any

ShowMessage = Callable[[str], None]

KILLED_WORKER: Final = "worker-3"
PHASE_TEXTS: Final[dict[str, str]] = dict(
    zip(
        PHASES,
        ("before it wrote", "its counts written", "counts and offsets written"),
        strict=True,
    )
)


@dataclass
class GroupState:
    """Collects the workers' events."""

    assignments: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    aborted: int = 0
    killed: int = 0
    generation: int = 0
    held_phase: str | None = None
    last_error: str = ""
    failed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: Event) -> None:
        """Apply an event."""
        if event.kind == "assigned":
            self.assignments[event.worker] = event.partitions
            self.generation = max(self.generation, event.generation)
        elif event.kind == "holding":
            self.held_phase = event.detail
        elif event.kind in ("restarted", "failed"):
            self.last_error = f"{event.worker}: {event.detail}"
        self.aborted += event.kind == "aborted"
        self.failed |= event.kind == "failed"
        self.changed.set()

    def is_fully_assigned(self, workers: int, partitions: int) -> bool:
        """Return whether this number of workers owns all partitions, at least one each."""
        owned = [p for assigned in self.assignments.values() for p in assigned]
        owners = sum(bool(assigned) for assigned in self.assignments.values())
        return owners == workers and sorted(owned) == list(range(partitions))

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until events have made a condition true."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def choose_instructions(
    assignments: Mapping[str, Sequence[int]],
    lines: Mapping[int, int],
    lines_per_transaction: int,
    rng: random.Random,
) -> dict[str, Instructions]:
    """Return instructions by worker: one aborts a transaction, and another is killed.

    Both happen early enough for small texts. `assignments` are partitions by worker, `lines` the
    number of lines by partition. A worker with empty partitions cannot be killed inside a
    transaction, so it gets no instruction to hold.
    """
    lines_of = {worker: sum(lines[p] for p in owned) for worker, owned in assignments.items()}
    killed_lines = lines_of[KILLED_WORKER]
    phase, fraction = rng.choice(PHASES), rng.uniform(0.3, 0.7)
    transactions = lines_of["worker-1"] // lines_per_transaction
    return {
        "worker-1": Instructions(abort_from=max(1, min(3, transactions))),
        "worker-2": Instructions(),
        KILLED_WORKER: Instructions(
            hold_after=int(killed_lines * fraction) if killed_lines else None, hold_phase=phase
        ),
    }


class WorkerGroup:
    """Runs the workers until all lines are counted, and kills one of them."""

    def __init__(
        self,
        job: Job,
        connection: ConnectionOptions,
        *,
        lines: Mapping[int, int],
        rng: random.Random,
        show: ShowMessage,
    ) -> None:
        self._job = job
        self._connection = connection
        self._lines = lines
        self._rng = rng
        self._show = show
        self.state = GroupState()

    async def run(self, wait_until_counted: Coroutine[Any, Any, None]) -> None:
        """Run the workers until `wait_until_counted` returns; raise a failed worker's error."""
        counted = asyncio.create_task(wait_until_counted)
        workers = [
            Worker(self._job_of(f"worker-{n}"), self._connection, self._on_event) for n in (1, 2)
        ]
        tasks = {asyncio.create_task(worker.run()) for worker in workers}
        tasks.add(asyncio.create_task(self._run_killed_worker(workers)))
        try:
            pending = {counted, *tasks}
            while not counted.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in {counted, *tasks}:
                task.cancel()
            await asyncio.wait({counted, *tasks})

    def _job_of(self, name: str) -> Job:
        transactional_id = f"{self._job.transactional_id}-{name.rpartition('-')[2]}"
        return replace(self._job, name=name, transactional_id=transactional_id)

    def _on_event(self, event: Event) -> None:
        self.state.add(event)
        if event.kind == "aborted":
            purpose = f" {event.detail}" if event.detail else ""
            self._show(f"{event.worker} aborts a transaction{purpose}, and counts again")
        elif event.kind == "restarted":
            self._show(f"{event.worker} restarts from what was committed ({event.detail})")

    async def _run_killed_worker(self, workers: list[Worker]) -> None:
        """Instruct all workers once they have partitions; kill the child process when it holds."""
        job = json.dumps(asdict(self._job_of(KILLED_WORKER)))
        async with child_process("kafka_async.cli.demo.worker", job) as process:
            process.write(self._connection.to_json())
            reading = asyncio.create_task(self._read_events(process))
            try:
                await self._wait_unless_ended(
                    reading, process, lambda: self.state.is_fully_assigned(3, len(self._lines))
                )
                instructions = self._instructions()
                for worker, its in zip(workers, instructions, strict=False):
                    worker.begin(its)
                process.write(json.dumps(asdict(instructions[-1])))
                await self._wait_unless_ended(
                    reading, process, lambda: self.state.held_phase is not None
                )
                process.kill()
                await process.wait()
            finally:
                reading.cancel()
                await asyncio.wait({reading})
        self.state.killed += 1
        self.state.assignments.pop(KILLED_WORKER)
        phase = PHASE_TEXTS[self.state.held_phase or ""]
        self._show(f"{KILLED_WORKER} is killed (kill -9) in a transaction, {phase}")
        self._show("its session ends in 6 s, its transaction in 10 s")

    def _instructions(self) -> list[Instructions]:
        instructions = choose_instructions(
            self.state.assignments, self._lines, self._job.lines_per_transaction, self._rng
        )
        self._show(f"three workers share {len(self._lines)} partitions, and start")
        if instructions[KILLED_WORKER].hold_after is None:
            self._show(f"the text is too small for {KILLED_WORKER} to get a line: it is not killed")
        return list(instructions.values())

    async def _read_events(self, process: ChildProcess) -> None:
        async for line in process.lines():
            self._on_event(Event(**json.loads(line)))

    async def _wait_unless_ended(
        self, reading: asyncio.Task[None], process: ChildProcess, condition: Callable[[], bool]
    ) -> None:
        waiting = asyncio.create_task(self.state.wait_for(condition))
        try:
            await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})
        if not condition():
            reason = (
                self.state.last_error
                if self.state.failed
                else f"{KILLED_WORKER}: {process.last_error_line()}"
            )
            raise KafkaError(f"the worker process ended by itself; {reason}")
