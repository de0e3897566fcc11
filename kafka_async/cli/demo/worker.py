"""A transactional worker: consumes lines, counts words, commits counts and offsets atomically.

The error handling is the example of KIP-1050, with one action per category: after an abortable
error the worker seeks to the committed offsets, after an application-recoverable one it restarts
producer and consumer, and an error in the configuration ends it.

`python -m kafka_async.cli.demo.worker JSON` runs a worker as a process. It reads JSON lines on
standard input: its connection, which may have secrets and so is no argument, then its instructions,
which let it start. It ends when standard input ends. It reports events as JSON lines on standard
output. Instructed to hold, it stops inside a transaction, reports "holding"
and waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from kafka_async import Consumer, Producer
from kafka_async.cli import background_io
from kafka_async.cli.connection import Connection
from kafka_async.cli.demo.words import split_words
from kafka_async.config import ConsumerConfig, ProducerConfig
from kafka_async.errors import InvalidConfigurationError, KafkaError, TransactionAbortableError
from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from kafka_async import Record, TopicPartition, Transaction

# Phases of a transaction in which a worker can hold: nothing written, counts written, offsets too.
BEGUN, PRODUCED, OFFSETS = "begun", "produced", "offsets"
PHASES: Final = (BEGUN, PRODUCED, OFFSETS)

RESTART_DELAY: Final = 1.0
"""Seconds."""


@dataclass(frozen=True)
class Job:
    """Holds what a worker needs to join the group."""

    name: str
    lines_topic: str
    counts_topic: str
    group: str
    transactional_id: str
    lines_per_transaction: int = 100


@dataclass(frozen=True)
class Instructions:
    """Tells a worker when to abort a transaction and when to hold.

    Attributes:
        abort_from: Number of the transaction, from 1, that it aborts on purpose.
        hold_after: Number of lines; it holds in the transaction that exceeds it.
        hold_phase: Phase of the transaction in which it holds.
    """

    abort_from: int | None = None
    hold_after: int | None = None
    hold_phase: str = BEGUN


@dataclass(frozen=True)
class Event:
    """Reports what a worker did: assigned, committed, aborted, holding, restarted or failed."""

    worker: str
    kind: str
    lines: int = 0
    partitions: list[int] = field(default_factory=list[int])
    generation: int = 0
    detail: str = ""


class DeliberateAbortError(Exception):
    """Aborts a transaction to show that none of its records remain."""


class Worker:
    """Runs a producer and a consumer, and replaces both after an application-recoverable error."""

    def __init__(self, job: Job, connection: Connection, report: Callable[[Event], None]) -> None:
        self._job = job
        self._connection = connection
        self._report = report
        self._lines = 0
        self._transactions = 0
        self._instructions: Instructions | None = None
        self._instructed = asyncio.Event()

    def begin(self, instructions: Instructions) -> None:
        """Start working; until then the worker has only joined the group."""
        self._instructions = instructions
        self._instructed.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                async with self._producer() as producer, self._consumer() as consumer:
                    await self._work(producer, consumer)
            except InvalidConfigurationError:
                raise
            except KafkaError as error:
                # Application-recoverable (KIP-1050): close both and restart from the committed
                # offsets.
                detail = f"{type(error).__name__}: {error}"
                self._report(Event(self._job.name, "restarted", detail=detail))
                await asyncio.sleep(RESTART_DELAY)

    def _producer(self) -> Producer:
        config = self._connection.config(
            ProducerConfig,
            client_id=self._job.name,
            transactional_id=self._job.transactional_id,
            transaction_timeout_ms=10_000,
            linger_ms=0,
        )
        return Producer(config=config)

    def _consumer(self) -> Consumer:
        config = self._connection.config(
            ConsumerConfig,
            client_id=self._job.name,
            group_id=self._job.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        consumer = Consumer(config=config, topics=[self._job.lines_topic])

        def assigned(_: Iterable[TopicPartition]) -> None:
            partitions = sorted(tp.partition for tp in consumer.assignment())
            generation = consumer.group_metadata().generation_id
            self._report(
                Event(self._job.name, "assigned", partitions=partitions, generation=generation)
            )

        consumer.on_assigned(assigned)
        return consumer

    async def _work(self, producer: Producer, consumer: Consumer) -> None:
        await self._instructed.wait()
        while True:
            records = await consumer.poll(max_records=self._job.lines_per_transaction, timeout=1.0)
            if not records:
                continue
            try:
                async with producer.transaction() as transaction:
                    await self._count(transaction, producer, consumer, records)
            except (TransactionAbortableError, DeliberateAbortError) as error:
                await consumer.seek_to_committed()
                self._report(Event(self._job.name, "aborted", detail=str(error)))
            else:
                self._lines += len(records)
                self._report(Event(self._job.name, "committed", lines=len(records)))

    async def _count(
        self,
        transaction: Transaction,
        producer: Producer,
        consumer: Consumer,
        records: Sequence[Record],
    ) -> None:
        self._transactions += 1
        await self._hold_if_instructed(BEGUN, len(records))
        counts: Counter[str] = Counter()
        for record in records:
            counts.update(split_words((record.value or b"").decode()))
        for word, occurrences in counts.items():
            await transaction.enqueue(
                self._job.counts_topic, str(occurrences).encode(), key=word.encode()
            )
        await producer.flush()
        await self._hold_if_instructed(PRODUCED, len(records))
        await transaction.commit_offsets(consumer)
        await self._hold_if_instructed(OFFSETS, len(records))
        self._abort_if_instructed()

    async def _hold_if_instructed(self, phase: str, lines: int) -> None:
        its = self._instructions
        if its is None or its.hold_after is None or its.hold_phase != phase:
            return
        if self._lines + lines > its.hold_after:
            self._report(Event(self._job.name, "holding", detail=phase))
            await asyncio.get_running_loop().create_future()

    def _abort_if_instructed(self) -> None:
        its = self._instructions
        if its is None or its.abort_from is None or self._transactions < its.abort_from:
            return
        self._instructions = None
        raise DeliberateAbortError("on purpose")


async def _main(job: Job) -> None:
    """Work until standard input ends; report "failed" after an error."""

    def report(event: Event) -> None:
        print(json.dumps(asdict(event)), flush=True)

    lines = _lines_of_input()
    connection = await anext(lines, None)
    if connection is None:
        return
    worker = Worker(job, Connection.from_json(connection), report)
    run = asyncio.create_task(worker.run())
    read = asyncio.create_task(_read_instructions(worker, lines))
    await asyncio.wait({run, read}, return_when=asyncio.FIRST_COMPLETED)
    for task in (run, read):
        task.cancel()
    await asyncio.wait({run, read})
    if not run.cancelled() and (error := run.exception()) is not None:
        report(Event(job.name, "failed", detail=f"{type(error).__name__}: {error}"))


async def _lines_of_input() -> AsyncGenerator[Secret]:
    async for lines in background_io.read_lines(sys.stdin.fileno(), max_bytes=2**20):
        for line in map(bytes.decode, lines):
            yield Secret(line)


async def _read_instructions(worker: Worker, lines: AsyncGenerator[Secret]) -> None:
    """Start the worker when its instructions arrive; return when standard input ends."""
    async for line in lines:
        worker.begin(Instructions(**json.loads(line.reveal())))


if __name__ == "__main__":
    from kafka_async import run as run_loop

    run_loop(_main(Job(**json.loads(sys.argv[1]))))
