"""Kills processes inside the body of `async for`; the record in progress must come again.

    python -m tests.reliability.consumer_kills [--kills 1000] [--processes 2] [--seed N] [--resume]

Also `make reliability-consumer-kills`. Each process of a pool reads one partition, which
is statically assigned, with automatic commits every 5 ms. It reports each record, and the body of
its loop ends when the parent says so. The parent withholds that for a random record, waits for a
random time, kills the process with SIGKILL and starts it again: the record in progress must be
among the records that come next, in order. The seed determines records and times. The result is
written to artifacts/reliability/ after each kill; `--resume` continues such a run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_async import Admin, Consumer, NewTopic, Producer, TopicPartition
from kafka_async.testing.backends import BackendUnavailableError, create_backend
from tests.programs import ROOT

if TYPE_CHECKING:
    from asyncio.subprocess import Process

TOPIC: Final = "reliability-kills"
KILLS: Final = 1_000
"""Kills of a whole run."""
MAX_RECORDS: Final = 20
"""Maximum records that a process gets beyond the one that it must get again."""
MAX_DELAY: Final = 0.03
"""Maximum seconds between the report of a record and the kill: several automatic commits."""
LIMIT_SECONDS: Final = 60.0
"""Limit for the next record of a process."""
FILE: Final = Path("artifacts") / "reliability" / "consumer_kills.json"


@dataclass
class Run:
    """Progress of a run.

    Attributes:
        seed: The seed.
        kills: Kills whose successor has reported its first records.
        faults: What was wrong, one text for each lost record.
    """

    seed: int
    kills: int = 0
    faults: list[str] = field(default_factory=list[str])

    def save(self, path: Path) -> None:
        """Write the run to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def verdict(self, wanted: int) -> str:
        """Return the result in one line."""
        again = self.kills - len(self.faults)
        passed = "passed" if again == wanted else "FAILED"
        return f"{passed}: the record in progress came again {again} of {wanted} times"


def fault_of(killed_at: int | None, offsets: list[int]) -> str | None:
    """Return what is wrong with the offsets after a kill in the body of a record's processing."""
    if killed_at is None:
        return None
    if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
        return f"not in order: {offsets}"
    if killed_at not in offsets:
        return f"killed at offset {killed_at}, continued with {offsets}"
    return None


async def consume(servers: str, partition: int) -> None:
    """Report each record on the standard output, and end its processing by a line of the input."""
    loop = asyncio.get_running_loop()
    replies = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(replies), sys.stdin)
    async with Consumer(
        servers,
        partitions=[TopicPartition(TOPIC, partition)],
        group_id=f"{TOPIC}-{partition}",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=5,
    ) as consumer:
        async for record in consumer:
            say(str(record.offset))
            if not await replies.readline():
                return  # the parent has ended


async def read_until_killed(
    servers: str, partition: int, killed_at: int | None, chosen: random.Random
) -> list[int]:
    """Run a process until it is killed; return its offsets, the last one in progress."""
    process: Process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.reliability.consumer_kills", "--child", servers),
        str(partition),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    offsets: list[int] = []
    extra = chosen.randint(1, MAX_RECORDS)
    try:
        while True:
            async with asyncio.timeout(LIMIT_SECONDS):
                offsets.append(int(await process.stdout.readline()))
            beyond = killed_at is None or offsets[-1] >= killed_at
            extra -= beyond
            if extra <= 0:
                await asyncio.sleep(chosen.uniform(0, MAX_DELAY))
                return offsets
            if not beyond or chosen.random() < 0.5:
                await asyncio.sleep(chosen.uniform(0, 0.01))
            process.stdin.write(b"\n")
    finally:
        process.kill()
        await process.wait()


async def kill_again_and_again(
    servers: str, partition: int, run: Run, wanted: int, path: Path
) -> None:
    """Kill the processes of one partition until the run has enough kills."""
    killed_at: int | None = None
    chosen = random.Random(f"{run.seed} {run.kills} {partition}")
    while run.kills < wanted:
        offsets = await read_until_killed(servers, partition, killed_at, chosen)
        if killed_at is not None and run.kills < wanted:
            run.kills += 1
            fault = fault_of(killed_at, offsets)
            if fault is not None:
                run.faults.append(f"partition {partition}: {fault}")
            run.save(path)
        killed_at = offsets[-1]


async def run_kills(servers: str, processes: int, run: Run, wanted: int, path: Path) -> None:
    """Create the topic and kill processes in each of its partitions."""
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(TOPIC, processes)])
    async with Producer(servers) as producer:
        for partition in range(processes):
            for number in range((wanted + 2) * MAX_RECORDS):
                await producer.enqueue(TOPIC, b"%d" % number, partition=partition)
    async with asyncio.TaskGroup() as group:
        for partition in range(processes):
            group.create_task(kill_again_and_again(servers, partition, run, wanted, path))


def say(text: str) -> None:
    """Write a line to the standard output at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--child"]:
        asyncio.run(consume(given[1], int(given[2])))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--resume", action="store_true", help="continue the run of the file")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--backend", default="embedded")
    options = parser.parse_args(given)
    run = Run(options.seed)
    if options.resume:
        run = Run(**json.loads(options.file.read_text(encoding="utf-8")))
    say(f"seed {run.seed}, {run.kills} of {options.kills} kills are done")
    backend = create_backend(options.backend)
    try:
        backend.start()
    except BackendUnavailableError as error:
        say(str(error))
        return 2
    try:
        servers = backend.bootstrap_servers
        asyncio.run(run_kills(servers, options.processes, run, options.kills, options.file))
    finally:
        backend.stop()
    for fault in run.faults:
        say(fault)
    say(run.verdict(options.kills))
    return 0 if run.verdict(options.kills).startswith("passed") else 1


if __name__ == "__main__":
    sys.exit(main())
