"""Three workers in one group: two tasks here and a process of its own, which is killed.

The order of things: all three join and get partitions; they get their orders; the process reaches a
random line, stops at a random place inside a transaction, and is killed with SIGKILL. Its
partitions come back when its session ends (6 s), what it had open is aborted by the coordinator
(10 s), and the others finish the work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kafka_async.cli.demo.child import Child, child
from kafka_async.cli.demo.worker import PHASES, Event, Job, Orders, Worker
from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine, Mapping, Sequence
    from typing import Any

Narrator = Callable[[str], None]

DOOMED: Final = "worker-3"
WHERE: Final[dict[str, str]] = dict(
    zip(
        PHASES,
        ("before it wrote", "its counts written", "counts and offsets written"),
        strict=True,
    )
)


@dataclass
class Tally:
    """What the workers have reported so far."""

    assignments: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    aborted: int = 0
    killed: int = 0
    restarts: int = 0
    generation: int = 0
    held_at: str | None = None
    trouble: str = ""
    failed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: Event) -> None:
        """Take a report in."""
        if event.kind == "assigned":
            self.assignments[event.worker] = event.partitions
            self.generation = max(self.generation, event.generation)
        elif event.kind == "holding":
            self.held_at = event.detail
        elif event.kind in ("restarted", "failed"):
            self.trouble = f"{event.worker}: {event.detail}"
        self.aborted += event.kind == "aborted"
        self.restarts += event.kind == "restarted"
        self.failed |= event.kind == "failed"
        self.changed.set()

    def covers(self, workers: int, partitions: int) -> bool:
        """Whether so many workers own all partitions, each at least one."""
        owned = [p for mine in self.assignments.values() for p in mine]
        busy = sum(bool(mine) for mine in self.assignments.values())
        return busy == workers and sorted(owned) == list(range(partitions))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until reports have made something true."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def orders_for(
    assignments: Mapping[str, Sequence[int]],
    lines: Mapping[int, int],
    lines_per_transaction: int,
    rng: random.Random,
) -> dict[str, Orders]:
    """Who aborts and who is to be killed when, so that it happens in small texts too.

    `lines` is how many each partition holds. The doomed worker stops at a random line of its share.
    One without a share cannot be killed inside a transaction.
    """
    share = {name: sum(lines[p] for p in mine) for name, mine in assignments.items()}
    own = share[DOOMED]
    phase, moment = rng.choice(PHASES), rng.uniform(0.3, 0.7)
    transactions = share["worker-1"] // lines_per_transaction
    return {
        "worker-1": Orders(abort_from=max(1, min(3, transactions))),
        "worker-2": Orders(),
        DOOMED: Orders(hold_after=int(own * moment) if own else None, hold_phase=phase),
    }


class Crew:
    """Runs the workers until all lines are counted.

    `lines` is how many each partition holds; the event `killed` is set when the one is dead.
    """

    def __init__(
        self,
        job: Job,
        *,
        lines: Mapping[int, int],
        rng: random.Random,
        say: Narrator,
        killed: asyncio.Event,
    ) -> None:
        self._job = job
        self._lines = lines
        self._rng = rng
        self._say = say
        self._killed = killed
        self.tally = Tally()

    async def run(self, counted: Coroutine[Any, Any, None]) -> None:
        """Work, lose one worker, and go on until `counted` returns.

        A worker that dies otherwise raises here; nothing is left running afterwards.
        """
        finish = asyncio.create_task(counted)
        here = [Worker(self._named(f"worker-{n}"), self._hear) for n in (1, 2)]
        tasks = {asyncio.create_task(worker.run()) for worker in here}
        tasks.add(asyncio.create_task(self._doom(here)))
        try:
            pending = {finish, *tasks}
            while not finish.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in {finish, *tasks}:
                task.cancel()
            await asyncio.wait({finish, *tasks})

    def _named(self, name: str) -> Job:
        transactional_id = f"{self._job.transactional_id}-{name.rpartition('-')[2]}"
        return replace(self._job, name=name, transactional_id=transactional_id)

    def _hear(self, event: Event) -> None:
        self.tally.add(event)
        if event.kind == "aborted":
            why = "" if event.detail == "on purpose" else f" ({event.detail})"
            purpose = "" if why else " on purpose"
            self._say(f"{event.worker} aborts a transaction{purpose}, and counts again{why}")
        elif event.kind == "restarted":
            self._say(f"{event.worker} restarts from what was committed ({event.detail})")

    async def _doom(self, here: list[Worker]) -> None:
        """Give the orders once all have partitions; kill the process when it holds."""
        job = json.dumps(asdict(self._named(DOOMED)))
        async with child("kafka_async.cli.demo.worker", job) as process:
            reading = asyncio.create_task(self._read(process))
            try:
                await self._unless_ended(
                    reading, process, lambda: self.tally.covers(3, len(self._lines))
                )
                orders = self._orders()
                for worker, its in zip(here, orders, strict=False):
                    worker.begin(its)
                process.write(json.dumps(asdict(orders[-1])))
                await self._unless_ended(reading, process, lambda: self.tally.held_at is not None)
                process.kill()
                await process.ended()
            finally:
                reading.cancel()
                await asyncio.wait({reading})
        self.tally.killed += 1
        self.tally.assignments.pop(DOOMED)
        self._killed.set()
        where = WHERE[self.tally.held_at or ""]
        self._say(f"{DOOMED} is killed (kill -9) in a transaction, {where}")
        self._say("its session ends in 6 s, its transaction in 10 s")

    def _orders(self) -> list[Orders]:
        orders = orders_for(
            self.tally.assignments, self._lines, self._job.lines_per_transaction, self._rng
        )
        self._say(f"three workers share {len(self._lines)} partitions, and start")
        if orders[DOOMED].hold_after is None:
            self._say(f"so small a text leaves nothing for {DOOMED}: it will not be killed")
        return list(orders.values())

    async def _read(self, process: Child) -> None:
        async for line in process.lines():
            self._hear(Event(**json.loads(line)))

    async def _unless_ended(
        self, reading: asyncio.Task[None], process: Child, condition: Callable[[], bool]
    ) -> None:
        waiting = asyncio.create_task(self.tally.until(condition))
        try:
            await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})
        if not condition():
            why = self.tally.trouble if self.tally.failed else f"{DOOMED}: {process.last_words()}"
            raise KafkaError(f"the worker process ended by itself; {why}")
