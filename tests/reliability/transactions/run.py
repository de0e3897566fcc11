"""Copies a topic in transactions while workers and brokers are killed and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kafka_async import Admin, Consumer, NewTopic, Producer, TopicPartition
from kafka_async.admin import OffsetSpec
from kafka_async.errors import KafkaError
from kafka_async.testing import History, Verdict, check_history
from kafka_async.testing.backends.base import BrokerControl
from tests.programs import ROOT
from tests.reliability.transactions.faults import WORKER_FAULTS, WORKERS, Fault, FaultKind, faults
from tests.reliability.transactions.worker import WorkerOptions

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS: Final = 9
CHECK_INTERVAL: Final = 0.5
PROGRESS_SECONDS: Final = 180.0
"""Time without a newly committed record after which a run fails."""


class PausableBrokers(BrokerControl, Protocol):
    """Brokers that are processes: they can be stopped by SIGSTOP too."""

    def pause_broker(self, broker_id: int) -> None:
        """Freeze a broker."""

    def resume_broker(self, broker_id: int) -> None:
        """Continue a frozen broker."""


class ReliabilityError(Exception):
    """The run cannot continue."""


@dataclass
class Result:
    """Figures of a run."""

    verdict: Verdict
    seconds: float
    faults: Counter[str]
    events: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])


class Run:
    """One copy of a topic.

    Args:
        servers: Addresses of the brokers.
        control: Kills, stops and starts brokers.
        directory: Directory of the workers' log and of the history.
        seed: Seed of the faults.
        records: Number of records of the input.
        per_transaction: Maximum number of records in a transaction.
        name: Part of the names of topics, group and transactional ids.
    """

    def __init__(
        self,
        servers: str,
        control: PausableBrokers,
        directory: Path,
        seed: int,
        *,
        records: int,
        per_transaction: int,
        name: str,
    ) -> None:
        self._servers = servers
        self._control = control
        self._directory = directory
        self._faults = faults(seed)
        self._records = records
        self._per_transaction = per_transaction
        self._input, self._output, self._group = (
            f"{kind}-{name}" for kind in ("input", "output", "copy")
        )
        self._workers: dict[int, asyncio.subprocess.Process] = {}
        self._away: tuple[FaultKind, int] | None = None
        self._began = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._events: list[tuple[float, str]] = []

    async def run(self) -> Result:
        """Copy all records under faults; return the verdict of the history."""
        await self._prepare()
        enough = asyncio.Event()
        disturbing = asyncio.create_task(self._disturb(enough))
        try:
            await self._wait_until_copied(disturbing)
        finally:
            enough.set()
            await asyncio.wait([disturbing])
            for process in self._workers.values():
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        seconds = time.monotonic() - self._began
        verdict = await self._check()
        return Result(verdict, round(seconds, 1), self._counts, self._events)

    def _say(self, text: str) -> None:
        at = round(time.monotonic() - self._began, 1)
        self._events.append((at, text))
        sys.stdout.write(f"{at:7.1f} s  {text}\n")
        sys.stdout.flush()

    # -- input and workers -------------------------------------------------------------------------

    async def _prepare(self) -> None:
        configs = {"min.insync.replicas": "2"}
        async with Admin(self._servers) as admin:
            await admin.create_topics(
                [NewTopic(t, PARTITIONS, 3, configs=configs) for t in (self._input, self._output)]
            )
        async with Producer(self._servers) as producer:
            for number in range(self._records):
                await producer.enqueue(
                    self._input, b"record %d" % number, partition=number % PARTITIONS
                )
            await producer.flush()

    async def _start_worker(self, number: int) -> None:
        options = WorkerOptions(
            self._servers,
            self._input,
            self._output,
            self._group,
            f"{self._group}-{number}",
            self._per_transaction,
        )
        with (self._directory / "workers.log").open("ab") as log:
            self._workers[number] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.reliability.transactions.worker"),
                json.dumps(asdict(options)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    # -- faults ------------------------------------------------------------------------------------

    async def _disturb(self, enough: asyncio.Event) -> None:
        """Start the workers, and apply faults until it is `enough`; none remains."""
        for number in range(1, WORKERS + 1):
            await self._start_worker(number)
        for fault in self._faults:
            if await set_within(enough, fault.pause):
                return
            self._say(str(fault))
            self._counts[fault.kind.value] += 1
            await self._apply(fault)
            await set_within(enough, fault.seconds)
            await self._restore()

    async def _apply(self, fault: Fault) -> None:
        number = fault.number
        self._away = fault.kind, number
        if fault.kind in WORKER_FAULTS:
            kills = fault.kind is FaultKind.KILL_WORKER
            process = self._workers[number]
            process.send_signal(signal.SIGKILL if kills else signal.SIGSTOP)
            if kills:
                await process.wait()
        elif fault.kind is FaultKind.KILL_BROKER:
            await asyncio.to_thread(self._control.kill_broker, number)
        else:
            await asyncio.to_thread(self._control.pause_broker, number)

    async def _restore(self) -> None:
        """Start or continue what the last fault has killed or stopped."""
        if self._away is None:
            return
        kind, number = self._away
        if kind is FaultKind.KILL_WORKER:
            await self._start_worker(number)
        elif kind is FaultKind.STOP_WORKER:
            self._workers[number].send_signal(signal.SIGCONT)
        elif kind is FaultKind.KILL_BROKER:
            await asyncio.to_thread(self._control.start_broker, number)
        else:
            await asyncio.to_thread(self._control.resume_broker, number)
        self._away = None

    # -- progress and check ------------------------------------------------------------------------

    async def _wait_until_copied(self, disturbing: asyncio.Task[None]) -> None:
        copied, progress = -1, time.monotonic()
        async with Admin(self._servers) as admin:
            while copied < self._records:
                await asyncio.sleep(CHECK_INTERVAL)
                if disturbing.done():
                    disturbing.result()
                self._check_workers()
                found = await self._committed(admin)
                if found > copied:
                    copied, progress = found, time.monotonic()
                elif time.monotonic() - progress > PROGRESS_SECONDS:
                    raise ReliabilityError(
                        f"{copied} of {self._records} records, and none for {PROGRESS_SECONDS:g} s"
                    )
        self._say(f"{copied} records are copied")

    async def _committed(self, admin: Admin) -> int:
        try:
            offsets = await admin.list_group_offsets(self._group)
        except KafkaError:  # The brokers are disturbed: ask again.
            return -1
        return sum(row.offset for row in offsets.values())

    def _check_workers(self) -> None:
        for number, process in self._workers.items():
            if process.returncode is not None and self._away != (FaultKind.KILL_WORKER, number):
                raise ReliabilityError(
                    f"worker {number} has ended by itself with status {process.returncode}"
                )

    async def _check(self) -> Verdict:
        """Write the history of input and committed output, and check it."""
        path = self._directory / "history.jsonl"
        path.unlink(missing_ok=True)
        with History(path) as history:
            for record in await read_committed(self._servers, self._input):
                history.sent(f"{record[0]}:{record[1]}", key=str(record[0]))
            for _, _, place in await read_committed(self._servers, self._output):
                history.read((place or b"").decode())
        return check_history(path)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; return False if it is not set in this time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def read_committed(servers: str, topic: str) -> list[tuple[int, int, bytes | None]]:
    """Return partition, offset and key of all records, once no transaction is open."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
    async with Admin(servers) as admin, asyncio.timeout(90):
        while (ends := await admin.list_offsets(latest)) != await admin.list_offsets(  # noqa: ASYNC110
            latest, isolation_level="read_committed"
        ):
            await asyncio.sleep(0.1)
    found: list[tuple[int, int, bytes | None]] = []
    async with Consumer(
        servers,
        partitions=partitions,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        for partition in partitions:
            while await consumer.position(partition) < ends[partition].offset:
                found += [
                    (record.partition, record.offset, record.key)
                    for record in await consumer.poll(max_records=10_000, timeout=0.5)
                ]
    return found
