"""A transactional worker: consume lines, count words, commit counts and offsets in one go.

This is KIP-1050's example. Each category of error has one answer: an abortable error rewinds to
what was committed, an application-recoverable one restarts producer and consumer, anything that
needs a person ends the worker.

Run as a program (`python -m kafka_async.cli.demo.worker JSON`) it is a process of its own, which
reports in JSON lines on standard output, begins at its orders, a JSON line on standard input, and
ends when that ends. It is the one that gets killed: ordered so, it stops inside a transaction, says
"holding", and waits for its end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from kafka_async import Consumer, Producer
from kafka_async.cli import waiting
from kafka_async.cli.demo.text import words
from kafka_async.errors import (
    InvalidConfigurationError,
    KafkaError,
    TransactionAbortableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafka_async import Record, TopicPartition, Transaction

# Where inside a transaction the doomed worker may stop: nothing written, counts, offsets as well.
BEGUN, PRODUCED, OFFSETS = "begun", "produced", "offsets"
PHASES: Final = (BEGUN, PRODUCED, OFFSETS)

PAUSE: Final = 1.0


@dataclass(frozen=True)
class Job:
    """What a worker needs to know to join."""

    name: str
    bootstrap: str
    lines_topic: str
    counts_topic: str
    group: str
    transactional_id: str
    lines_per_transaction: int = 100


@dataclass(frozen=True)
class Orders:
    """What a worker is told when it begins.

    `abort_from`: the first transaction, from 1, that it may abort on purpose, once. `hold_after`:
    in the transaction that takes it beyond so many lines it stops in `hold_phase`, to be killed.
    """

    abort_from: int | None = None
    hold_after: int | None = None
    hold_phase: str = BEGUN


@dataclass(frozen=True)
class Event:
    """What a worker reports: assigned, committed, aborted, holding, restarted or failed."""

    worker: str
    kind: str
    lines: int = 0
    partitions: list[int] = field(default_factory=list[int])
    generation: int = 0
    detail: str = ""


class AbortedOnPurposeError(Exception):
    """Raised inside a transaction to show that an abort leaves nothing behind."""


class Worker:
    """Owns one producer and one consumer at a time; makes new ones after what it cannot mend."""

    def __init__(self, job: Job, report: Callable[[Event], None]) -> None:
        self._job = job
        self._report = report
        self._lines = 0
        self._transactions = 0
        self._orders: Orders | None = None
        self._ordered = asyncio.Event()

    def begin(self, orders: Orders) -> None:
        """Let it work; it has only joined the group so far."""
        self._orders = orders
        self._ordered.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                async with self._producer() as producer, self._consumer() as consumer:
                    await self._work(producer, consumer)
            except InvalidConfigurationError:
                raise
            except KafkaError as error:
                # KIP-1050, application-recoverable: close both, and start from what was committed.
                self._tell("restarted", detail=f"{type(error).__name__}: {error}")
                await asyncio.sleep(PAUSE)

    def _producer(self) -> Producer:
        return Producer(
            self._job.bootstrap,
            client_id=self._job.name,
            transactional_id=self._job.transactional_id,
            transaction_timeout_ms=10_000,
            linger_ms=0,
        )

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            self._job.bootstrap,
            topics=[self._job.lines_topic],
            client_id=self._job.name,
            group_id=self._job.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )

        def assigned(_: Iterable[TopicPartition]) -> None:
            mine = sorted(tp.partition for tp in consumer.assignment())
            generation = consumer.group_metadata().generation_id
            self._tell("assigned", partitions=mine, generation=generation)

        consumer.on_assigned(assigned)
        return consumer

    async def _work(self, producer: Producer, consumer: Consumer) -> None:
        await self._ordered.wait()
        while True:
            records = await consumer.poll(max_records=self._job.lines_per_transaction, timeout=1.0)
            if not records:
                continue
            try:
                async with producer.transaction() as transaction:
                    await self._count(transaction, producer, consumer, records)
            except (TransactionAbortableError, AbortedOnPurposeError) as error:
                await consumer.seek_to_committed()
                self._tell("aborted", detail=str(error))
            else:
                self._lines += len(records)
                self._tell("committed", lines=len(records))

    async def _count(
        self,
        transaction: Transaction,
        producer: Producer,
        consumer: Consumer,
        records: Sequence[Record],
    ) -> None:
        self._transactions += 1
        await self._may_hold(BEGUN, len(records))
        counts: Counter[str] = Counter()
        for record in records:
            counts.update(words((record.value or b"").decode()))
        for word, occurrences in counts.items():
            await transaction.enqueue(
                self._job.counts_topic, str(occurrences).encode(), key=word.encode()
            )
        await producer.flush()
        await self._may_hold(PRODUCED, len(records))
        await transaction.commit_offsets(consumer)
        await self._may_hold(OFFSETS, len(records))
        self._may_abort()

    async def _may_hold(self, phase: str, lines: int) -> None:
        orders = self._orders
        if orders is None or orders.hold_after is None or orders.hold_phase != phase:
            return
        if self._lines + lines > orders.hold_after:
            self._tell("holding", detail=phase)
            await asyncio.get_running_loop().create_future()

    def _may_abort(self) -> None:
        orders = self._orders
        if orders is None or orders.abort_from is None or self._transactions < orders.abort_from:
            return
        self._orders = None
        raise AbortedOnPurposeError("on purpose")

    def _tell(
        self,
        kind: str,
        *,
        lines: int = 0,
        partitions: Sequence[int] = (),
        generation: int = 0,
        detail: str = "",
    ) -> None:
        self._report(Event(self._job.name, kind, lines, list(partitions), generation, detail))


async def _main(job: Job) -> None:
    """Work until standard input ends; say why if that is impossible."""

    def report(event: Event) -> None:
        print(json.dumps(asdict(event)), flush=True)

    worker = Worker(job, report)
    run = asyncio.create_task(worker.run())
    obey = asyncio.create_task(_obey(worker))
    await asyncio.wait({run, obey}, return_when=asyncio.FIRST_COMPLETED)
    for task in (run, obey):
        task.cancel()
    await asyncio.wait({run, obey})
    if not run.cancelled() and (error := run.exception()) is not None:
        report(Event(job.name, "failed", detail=f"{type(error).__name__}: {error}"))


async def _obey(worker: Worker) -> None:
    """Pass the parent's orders on; returns when it has closed our standard input, or died."""
    async for lines in waiting.lines(sys.stdin.fileno(), longest=2**20):
        for line in lines:
            worker.begin(Orders(**json.loads(line)))


if __name__ == "__main__":
    from kafka_async import run as run_loop

    run_loop(_main(Job(**json.loads(sys.argv[1]))))
