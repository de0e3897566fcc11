"""Stops, starts, kills and freezes the members of a group while records flow.

    python -m tests.reliability.groups [--seconds 300] [--records 500000] [--seed N]

Also `make reliability-groups`. Twelve members in processes read 80 partitions. Every record must be
returned, in the order of its key, again only if a killed or frozen member had it in flight, and no
later than session, rebalance timeout and 2 s after it was acknowledged. The seed determines the
schedule. The result of a whole run on Apache Kafka that has passed is written to
benchmarks/results/, that of any other run to artifacts/reliability/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_async import Admin, NewTopic, Producer
from kafka_async.testing.backends import BackendUnavailableError, create_backend
from tests.programs import ROOT
from tests.reliability.group_check import (
    Action,
    ActionKind,
    Progress,
    Returned,
    Verdict,
    check,
    schedule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC: Final = "reliability-groups"
SESSION, REBALANCE, GRACE = 6.0, 10.0, 2.0
"""Seconds: session and rebalance timeout of the members, and what is added to their sum."""
TICK: Final = 0.1
"""Seconds between two writes of records."""
SECONDS, RECORDS, MEMBERS, PARTITIONS = 300.0, 500_000, 12, 80
"""Options of a whole run."""
RESULTS: Final = ROOT / "benchmarks" / "results"
ARTIFACTS: Final = Path("artifacts") / "reliability"


def say(text: str) -> None:
    """Print a text at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class MemberProcess:
    """Runs a member in a process, and reads its events.

    Attributes:
        in_flight: Number of records that were in flight when it was killed or lost its partitions.
        failures: Errors of its consumers.
    """

    def __init__(self, number: int, options: dict[str, Any]) -> None:
        self.in_flight = 0
        self.failures: list[str] = []
        self.progress = Progress()
        self._options = {**options, "client_id": f"member-{number}"}
        self._frozen = False
        self._uncommitted = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the consumer, and first the process if there is none."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.reliability.group_member"),
                json.dumps(self._options),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=2**24,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            self._reading = asyncio.create_task(self._read(self._process))
        self._write(b"start\n")

    def stop(self) -> None:
        """Stop the consumer in order."""
        self._write(b"stop\n")

    async def freeze(self, seconds: float) -> None:
        """Let the process do nothing for a time."""
        self._frozen = True
        self._send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill the process as by kill -9."""
        self._send_signal(signal.SIGKILL)
        await self._end()
        self.in_flight += self.progress.on_killed()

    async def close(self) -> None:
        """Stop the consumer and the process in order."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._end()

    def on_event(self, event: str, at: float, rows: Any) -> None:
        """Note what the member has printed."""
        progress = self.progress
        if event == "returned":
            for row in rows:
                progress.on_returned(Returned(at, *row))
        elif event == "committed":
            for row in rows:
                progress.on_committed(*row)
        elif event in ("lost", "revoked"):
            gone = sum(progress.on_gone(row) for row in rows)
            if event == "lost":
                self.in_flight += gone
            else:
                self._uncommitted = gone
        elif event == "expelled" and self._frozen:  # It was stopped before it could join again.
            self.in_flight += self._uncommitted + progress.on_killed()
        elif event in ("expelled", "failed"):
            self.failures.append(rows)
        elif event == "stopped":
            self._frozen = False

    async def _end(self) -> None:
        process, reading = self._process, self._reading
        self._process = self._reading = None
        self._frozen = False
        if process is not None and reading is not None:
            await reading
            await process.wait()

    def _send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if there is one."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _write(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                return  # The process was killed while it printed.
            event = json.loads(line)
            self.on_event(event["event"], event["at"], event["rows"])


class Run:
    """Runs a schedule on a cluster."""

    def __init__(
        self, servers: str, *, members: int, partitions: int, records: int, seconds: float
    ) -> None:
        options: dict[str, Any] = {
            "servers": servers,
            "topics": [TOPIC],
            "group_id": "reliability-groups",
            "auto_offset_reset": "earliest",
            "session_timeout_ms": round(SESSION * 1000),
            "heartbeat_interval_ms": 1_000,
            "auto_commit_interval_ms": 1_000,
            "max_poll_interval_ms": round(REBALANCE * 1000),
            "partition_assignment_strategy": ["cooperative-sticky"],
        }
        self.members = [MemberProcess(number, options) for number in range(members)]
        self._servers = servers
        self._partitions = partitions
        self._records = records
        self._seconds = seconds
        self._sent: dict[int, list[float]] = {index: [] for index in range(partitions)}

    async def run(self, actions: Sequence[Action]) -> Verdict:
        """Send records and carry out the actions; return the verdict once all was returned."""
        async with Admin(self._servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, self._partitions)])
        for member in self.members:
            await member.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._produce())
                tasks.create_task(self._act(actions))
            await self._wait_for_the_rest()
        finally:
            for member in self.members:
                await member.close()
        returned = [row for member in self.members for row in member.progress.returned]
        in_flight = sum(member.in_flight for member in self.members)
        return check(self._sent, returned, in_flight, SESSION + REBALANCE + GRACE)

    async def _produce(self) -> None:
        """Send the records of each key, which is its partition, evenly over the run."""
        per_tick = max(1, round(self._records * TICK / self._seconds))
        count, begun = 0, time.monotonic()
        async with Producer(self._servers) as producer:
            while count < self._records:
                chosen = range(count, min(count + per_tick, self._records))
                for number in chosen:
                    index = number % self._partitions
                    await producer.enqueue(
                        TOPIC, b"%d" % number, key=b"%d" % index, partition=index
                    )
                await producer.flush()
                now = time.monotonic()
                for number in chosen:
                    self._sent[number % self._partitions].append(now)
                count += len(chosen)
                await asyncio.sleep(max(0.0, begun + count * TICK / per_tick - now))

    async def _act(self, actions: Sequence[Action]) -> None:
        begun = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for action in actions:
                await asyncio.sleep(max(0.0, begun + action.at - time.monotonic()))
                member = self.members[action.member]
                if action.kind is ActionKind.STOP:
                    member.stop()
                elif action.kind is ActionKind.START:
                    await member.start()
                else:
                    say(str(action))
                    tasks.create_task(self._fault(member, action))
        for member in self.members:
            await member.start()

    async def _fault(self, member: MemberProcess, action: Action) -> None:
        if action.kind is ActionKind.KILL:
            await member.kill()
            await member.start()
            return
        await member.freeze(action.seconds)

    async def _wait_for_the_rest(self) -> None:
        """Wait until each record was returned, or none was for as long as one may take."""
        limit, known, since = SESSION + REBALANCE + GRACE, -1, time.monotonic()
        while time.monotonic() < since + limit:
            ends: dict[int, int] = {}
            for member in self.members:
                for row in member.progress.returned:
                    ends[row.partition] = max(ends.get(row.partition, 0), row.last + 1)
            count = sum(ends.values())
            if count >= self._records:
                return
            if count > known:
                known, since = count, time.monotonic()
            await asyncio.sleep(0.5)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.reliability.groups", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="default: 300")
    parser.add_argument("--records", type=int, default=RECORDS, help="default: 500000")
    parser.add_argument("--members", type=int, default=MEMBERS, help="default: 12")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="default: 80")
    parser.add_argument("--seed", type=int, help="seed of the schedule (default: random)")
    parser.add_argument("--backend", default="apache", help="apache (default) or embedded")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the seed, the schedule and the verdict; return the exit status."""
    options = parse(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    actions = schedule(seed, options.seconds, options.members)
    kinds = {kind.value: sum(it.kind is kind for it in actions) for kind in ActionKind}
    say(f"seed {seed}; schedule: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")
    try:
        with create_backend(options.backend, {"brokers": 1}) as backend:
            run = Run(
                backend.bootstrap_servers,
                members=options.members,
                partitions=options.partitions,
                records=options.records,
                seconds=options.seconds,
            )
            verdict = asyncio.run(run.run(actions))
    except BackendUnavailableError as error:
        say(str(error))
        return 1
    failures = [text for member in run.members for text in member.failures]
    for text in failures:
        say(f"a consumer failed: {text}")
    passed = verdict.passed and not failures
    result = {
        "seed": seed,
        "backend": options.backend,
        "date": date.today().isoformat(),
        "schedule": [str(action) for action in actions],
        "failures": failures,
        "verdict": str(verdict),
        "passed": passed,
    }
    run_of = options.seconds, options.records, options.members, options.partitions
    whole = run_of == (SECONDS, RECORDS, MEMBERS, PARTITIONS) and options.backend == "apache"
    folder = RESULTS if whole and passed else ARTIFACTS
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "reliability_groups.json"
    file.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    say(f"{'passed' if passed else 'failed'}: {verdict} (seed {seed}); written: {file}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
