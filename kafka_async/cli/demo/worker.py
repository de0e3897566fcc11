"""A transactional worker: consumes lines, counts words, commits counts and offsets atomically.

`kafka_async.app.transactional` handles errors by category (KIP-1050): after an abortable error the
same lines are counted again, after an application-recoverable error with a new producer, and a
configuration error ends the worker.

`python -m kafka_async.cli.demo.worker JSON` runs a worker as a process. It reads JSON lines from
standard input: the connection, which may contain secrets and is therefore not an argument, then the
instructions to start. It reports events as JSON lines on standard output, and ends when standard
input ends. Instructed to hold, it stops inside a transaction, reports "holding" and waits to be
killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kafka_async import Consumer, Producer
from kafka_async.app import transactional
from kafka_async.cli import background_io
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.demo.words import split_words
from kafka_async.config import ConsumerConfig, ProducerConfig
from kafka_async.errors import TransactionAbortableError
from kafka_async.hooks import Hooks, TransactionEnded
from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from kafka_async import Record, TopicPartition, Transaction

# Phases in which a worker can hold: nothing written, counts written, counts and offsets written.
BEGUN, PRODUCED, OFFSETS = "begun", "produced", "offsets"
PHASES: Final = (BEGUN, PRODUCED, OFFSETS)


@dataclass(frozen=True)
class Job:
    """Parameters with which a worker joins the group."""

    name: str
    lines_topic: str
    counts_topic: str
    group: str
    transactional_id: str
    lines_per_transaction: int = 100


@dataclass(frozen=True)
class Instructions:
    """The transaction to abort and the point at which to hold.

    Attributes:
        abort_from: Number, from 1, of the transaction that the worker aborts on purpose.
        hold_after: Number of lines; the worker holds in the transaction that exceeds it.
        hold_phase: Phase of the transaction in which the worker holds.
    """

    abort_from: int | None = None
    hold_after: int | None = None
    hold_phase: str = BEGUN


@dataclass(frozen=True)
class Event:
    """An event of a worker: assigned, committed, aborted, holding, restarted or failed."""

    worker: str
    kind: str
    lines: int = 0
    partitions: list[int] = field(default_factory=list[int])
    generation: int = 0
    detail: str = ""


class Worker:
    """Counts words in transactions."""

    def __init__(
        self, job: Job, connection: ConnectionOptions, report: Callable[[Event], None]
    ) -> None:
        self._job = job
        self._connection = connection
        self._report = report
        self._lines = 0
        self._transactions = 0
        self._lines_in_transaction = 0
        self._aborts_on_purpose = False
        self._producer: Producer | None = None
        self._instructions: Instructions | None = None
        self._instructed = asyncio.Event()

    def begin(self, instructions: Instructions) -> None:
        """Start counting; before this call the worker only joins the group."""
        self._instructions = instructions
        self._instructed.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with self._consumer() as consumer:
            await self._instructed.wait()
            await transactional(
                partial(self._count, consumer),
                consumer=consumer,
                producer_factory=self._make_producer,
            )

    def _make_producer(self) -> Producer:
        if self._producer is not None:
            self._report(Event(self._job.name, "restarted", detail="it has a new producer"))
        config = self._connection.config(
            ProducerConfig,
            client_id=self._job.name,
            transactional_id=self._job.transactional_id,
            transaction_timeout_ms=10_000,
            linger_ms=0,
        )
        hooks = Hooks()
        hooks.listen(TransactionEnded, self._on_transaction_ended)
        self._producer = Producer(config=config, hooks=hooks)
        return self._producer

    def _on_transaction_ended(self, event: TransactionEnded) -> None:
        if event.committed:
            self._lines += self._lines_in_transaction
            self._report(Event(self._job.name, "committed", lines=self._lines_in_transaction))
        else:
            detail = "on purpose" if self._aborts_on_purpose else ""
            self._report(Event(self._job.name, "aborted", detail=detail))
        self._aborts_on_purpose = False

    def _consumer(self) -> Consumer:
        config = self._connection.config(
            ConsumerConfig,
            client_id=self._job.name,
            group_id=self._job.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=self._job.lines_per_transaction,
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

    async def _count(
        self, consumer: Consumer, records: Sequence[Record], transaction: Transaction
    ) -> None:
        assert self._producer is not None
        self._lines_in_transaction = len(records)
        self._transactions += 1
        await self._hold_if_instructed(BEGUN, len(records))
        counts: Counter[str] = Counter()
        for record in records:
            counts.update(split_words((record.value or b"").decode()))
        for word, occurrences in counts.items():
            await transaction.enqueue(
                self._job.counts_topic, str(occurrences).encode(), key=word.encode()
            )
        await self._producer.flush()
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
        self._aborts_on_purpose = True
        raise TransactionAbortableError("on purpose")


async def _main(job: Job) -> None:
    """Work until standard input ends; report "failed" after an error."""

    def report(event: Event) -> None:
        print(json.dumps(asdict(event)), flush=True)

    lines = _lines_of_input()
    connection = await anext(lines, None)
    if connection is None:
        return
    worker = Worker(job, ConnectionOptions.from_json(connection), report)
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
