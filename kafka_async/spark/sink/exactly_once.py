"""Writes rows exactly once: a transaction per task, and a ledger that decides which ones count.

Guarantees of the Data Source API (from the source of pyspark 4.0 to 4.2, and tested with 4.2):

- The writer is built and pickled on the driver's host once per job, before any task. The pickled
streaming writer is not used there again: a new writer is built for `commit` and `abort`. The plan
therefore travels with the tasks and comes back in their messages. - A task's `write` ends before
Spark's commit coordinator chooses one attempt per partition. Attempts that are not chosen, or are
killed, get no call; `abort` is called once per failed job, even if `commit` raised. - Tasks get the
query and the epoch from local properties, and the driver gets the epoch in `commit`. When the
driver plans, the query is unknown.

So each attempt writes in a transaction that it prepares, that is, flushes and leaves open. The
driver receives the prepared transactions of the chosen attempts, writes them to the ledger (the
decision), and commits them. `ledger.py` defines the ledger's records, `sink_driver.py` implements
the steps below.

Plan, before any task of a job:

1. Lock: InitProducerId for the transactional id "SINK:ledger". Writes of earlier drivers fail. 2.
Read the ledger to its end. 3. Raise ProducerFencedError, once, if another driver has planned since
this driver did. 4. If an epoch is open, its commit was decided and its driver was killed: commit
its transactions. 5. Raise TornEpochError if an epoch is torn. 6. Write the head with the next plan
number. Attempts and commits of earlier plans are refused. 7. Fence the transactional ids of earlier
plans that have, or may begin, a transaction.

An attempt writes nothing if its epoch is committed. Otherwise it sends InitProducerId for
"SINK:SLOT:PARTITION:ATTEMPT", where SLOT is the plan's number modulo 16, reads the head, and raises
unless its plan is the last one and undecided. Then it writes, flushes and prepares. An attempt
without rows has no producer.

Commit, after Spark has chosen the attempts:

1. Lock and read. Return if the epoch is committed; raise ProducerFencedError for an older plan. 2.
Refuse if more than half of the transaction time-out has passed since the plan. 3. Refuse unless
every transaction is open, with its producer id and epoch (DescribeTransactions). 4. Decide: write
an entry per transaction, and the head with the open epoch. 5. Commit the transactions: EndTxn with
their producer id and epoch, all at once. 6. Write the verdict: the epoch is committed, and its
entries are deleted. 7. Fence the plan's attempts that have, or may begin, a transaction. An attempt
that sent InitProducerId earlier is fenced; a later one finds in the ledger that the plan is
decided.

State after a driver is killed, and the action of the next plan:

| Killed | Ledger | Transactions | Next plan |
|---|---|---|---|
| before the decision | undecided plan | open | fences them |
| while it was written | the row before or the next one | open | as there |
| before the verdict | open epoch, entries | open or committed | commits them |
| the same, all have timed out | open epoch, entries | aborted | deletes the entries |
| the same, some have timed out | open epoch, entries | some aborted | raises TornEpochError |
| after the verdict | committed epoch | lost attempts may be open | fences these |

Spark repeats the epoch in each case. Its tasks write nothing if it is committed, and all rows if no
part of it is. A torn epoch raises until it is repaired.

EndTxn may be repeated from any process: the coordinator responds as before until a producer uses
the transactional id again (tested with Kafka 4.4, 4.3 and 3.9). After that, or after a time-out,
the error does not show the outcome. The outcome is then read from the log: a fetch at the
transaction's first record returns the aborted transactions.

Locking the ledger can interrupt another driver, which then repeats its step from the ledger's new
content. The plan numbers in the ledger decide which driver wins, not the order of requests at the
coordinator.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter

from kafka_async import blocking
from kafka_async.errors import IllegalStateError, ProducerFencedError
from kafka_async.spark.sink.ledger import (
    ACTION_PREFIX,
    WRITE_PREFIX,
    transactional_id,
)
from kafka_async.spark.sink.sink_cluster import open_cluster
from kafka_async.spark.sink.sink_driver import Plan, SinkDriver
from kafka_async.spark.sink.stream_writer import (
    StreamArrowWriter,
    arrow_batches,
    gives_arrow_batches,
)
from kafka_async.spark.sink.writer import TaskCommitMessage, send_batches
from kafka_async.spark.worker_heap import note_use

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    import pyarrow
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

    from kafka_async.spark.sink.sink_options import SinkOptions
    from kafka_async.types import PreparedTransaction

    T = TypeVar("T")

QUERY_PROPERTY: Final = "sql.streaming.queryId"
EPOCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass
class PreparedMessage(TaskCommitMessage):
    """Passes a task's prepared transaction to the driver; None if the task wrote nothing."""

    plan: Plan
    query: str
    epoch: int
    partition: int
    transaction: PreparedTransaction | None


class _Tasks:
    """Writes the rows of a task in a transaction."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._plan: Plan | None = None

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> PreparedMessage:
        """Write the rows, and leave the transaction open for the driver."""
        from pyspark import TaskContext

        note_use()
        plan, context = self._plan, TaskContext.get()
        if plan is None or context is None:
            raise IllegalStateError(
                "an exactly-once write runs in a Spark task, after its planning"
            )
        query, epoch = _query_and_epoch(plan, context)
        partition, attempt = context.partitionId(), context.attemptNumber()
        if plan.writes_nothing(query, epoch, partition):
            for _ in iterator:
                pass
            return PreparedMessage(0, plan, query, epoch, partition, None)
        batches = (rows for rows in iterator if rows.num_rows)
        first = next(batches, None)
        if first is None:
            return PreparedMessage(0, plan, query, epoch, partition, None)
        options = self._options
        name = transactional_id(options.sink_id, plan.number, partition, attempt)
        config = options.config(transactional_id=name)
        with blocking.Producer(config=config) as producer:
            self._check_plan(plan)
            with producer.transaction() as transaction:
                written = send_batches(
                    transaction, itertools.chain([first], batches), options.topic
                )
                prepared = transaction.prepare()
        return PreparedMessage(written, plan, query, epoch, partition, prepared)

    def _check_plan(self, plan: Plan) -> None:
        """Raise unless the plan is the last one, and undecided.

        The transactional id is already initialized: a driver that decides after this check finds
        and fences it.
        """
        options = self._options

        async def read_head() -> bool:
            async with open_cluster(
                options.config(), options.sink_id, options.ledger_topic
            ) as cluster:
                return (await cluster.read()).head.may_write(plan.number)

        if not blocking.run(read_head):
            raise ProducerFencedError(
                f"sink {options.sink_id}: the batch is decided, or another driver has planned "
                "since: this attempt writes nothing"
            )


class _Driver(_Tasks):
    """Plans, commits and gives up jobs, on the driver."""

    def plan_query(self, query: str | None) -> None:
        """Plan a job; see `SinkDriver.plan`."""
        driver = driver_identity() if query is None else ""
        options = self._options

        async def plan(cluster: Any, it: SinkDriver) -> Plan:
            await cluster.check(options.transaction_timeout_ms)
            return await it.plan(driver, query)

        self._plan = self._with_driver(plan)

    def commit_messages(self, messages: Sequence[PreparedMessage]) -> None:
        """Commit the epoch that the messages belong to."""
        if not messages:
            return  # A job without tasks has written nothing and has no open transaction.
        plan, query, epoch = messages[0].plan, messages[0].query, messages[0].epoch
        transactions = {
            row.partition: row.transaction for row in messages if row.transaction is not None
        }
        if plan.writes_nothing(query, epoch, -1):
            return
        self._with_driver(lambda _, it: it.commit(plan, query, epoch, transactions))

    def give_up(self, plan: Plan | None) -> None:
        """Abort the transactions of a failed job.

        Without a task's message the plan is unknown; it is then this driver's last plan.
        """
        driver = driver_identity()
        self._with_driver(lambda _, it: it.give_up(plan, driver))

    def _with_driver(self, call: Callable[[Any, SinkDriver], Awaitable[T]]) -> T:
        options = self._options

        async def connected() -> T:
            async with open_cluster(
                options.config(), options.sink_id, options.ledger_topic
            ) as cluster:
                timeout = options.transaction_timeout_ms / 1000
                return await call(
                    cluster, SinkDriver(cluster, options.sink_id, timeout, time.monotonic)
                )

        return blocking.run(connected)


class ExactlyOnceWriter(_Driver, DataSourceArrowWriter):
    """Writes a batch exactly once. Planned in the constructor, on the driver, before any task."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        write_id = options.write_id
        self.plan_query(
            f"{ACTION_PREFIX}{uuid.uuid4()}" if write_id is None else f"{WRITE_PREFIX}{write_id}"
        )

    def commit(self, messages: Any) -> None:
        """Commit the transactions of all tasks."""
        self.commit_messages(_given(messages))

    def abort(self, messages: Any) -> None:
        """Abort the transactions of all tasks unless their commit was decided."""
        self.give_up(self._plan)


class ExactlyOnceStreamWriter(_Driver, StreamArrowWriter):
    """Writes each epoch of a streaming query exactly once.

    Spark pickles one instance for the tasks, and builds another for `commit` or `abort`. Planning
    therefore happens in pickling.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options)
        self._schema = schema

    def __getstate__(self) -> dict[str, Any]:
        if self._plan is None:
            self.plan_query(None)
        return dict(self.__dict__)

    def commit(self, messages: Any, batchId: int) -> None:  # Spark's name.
        """Commit the transactions of all tasks."""
        self.commit_messages(_given(messages))

    def abort(self, messages: Any, batchId: int) -> None:  # Spark's name.
        """Abort the transactions of all tasks unless their commit was decided."""
        given = _given(messages)
        self.give_up(given[0].plan if given else None)


class ExactlyOnceRowStreamWriter(ExactlyOnceStreamWriter):
    """Converts rows to Arrow for Spark 4.0, which passes no Arrow batches to streaming writers."""

    def write(self, iterator: Iterator[Row]) -> PreparedMessage:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write the rows, and leave the transaction open for the driver."""
        return super().write(arrow_batches(iterator, self._schema))


def exactly_once_stream_writer(options: SinkOptions, schema: StructType) -> ExactlyOnceStreamWriter:
    """Return a writer for the rows or Arrow batches of this Spark version."""
    writer = ExactlyOnceStreamWriter if gives_arrow_batches() else ExactlyOnceRowStreamWriter
    return writer(options, schema)


def driver_identity() -> str:
    """Return an identity of the driver's JVM: host, process id, and start time if known.

    Spark's Python processes on the driver are children of the JVM, or of its daemon.
    """
    pid = os.getppid()
    for _ in range(4):
        status = _process(pid)
        if status is None or status["name"] == "java" or int(status["parent"]) <= 1:
            break
        pid = int(status["parent"])
    status = _process(pid)
    started = "" if status is None else status["started"]
    return f"{socket.gethostname()}/{pid}/{started}"


def _process(pid: int) -> Mapping[str, str] | None:
    """Return name, parent and start time of a process, or None without /proc."""
    with suppress(OSError, ValueError):
        text = Path(f"/proc/{pid}/stat").read_text()
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        return {"name": name, "parent": fields[1], "started": fields[19]}
    return None


def _query_and_epoch(plan: Plan, context: Any) -> tuple[str, int]:
    if plan.query is not None:
        return plan.query, 0
    query, epoch = (context.getLocalProperty(name) for name in (QUERY_PROPERTY, EPOCH_PROPERTY))
    if query is None or epoch is None:
        raise IllegalStateError(
            f"Spark has not set the local properties {QUERY_PROPERTY} and {EPOCH_PROPERTY}: "
            "exactlyOnce needs micro-batches of a streaming query"
        )
    return query, int(epoch)


def _given(messages: Any) -> list[PreparedMessage]:
    return [message for message in messages if message is not None]
