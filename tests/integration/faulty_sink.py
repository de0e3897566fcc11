"""The data source `kafka_async_faulty`: the exactly-once sink, with a fault that an option names.

| Option fault | Effect |
|---|---|
| `kill-task` | the Python worker of each task's first attempt is killed after its flush |
| `slow-task` | the first attempt of partition 0 does not end after its flush |
| `check-ledger` | a task fails if an epoch is open in the ledger when the task starts |
| `kill-driver` | the driver is killed after the decision and its first commit |
| `fail-commit` | `commit` raises after the decision |
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_async import blocking
from kafka_async.spark import KafkaDataSource
from kafka_async.spark.sink.exactly_once import ExactlyOnceStreamWriter, ExactlyOnceWriter
from kafka_async.spark.sink.sink_cluster import KafkaSinkCluster, open_cluster
from kafka_async.spark.sink.sink_options import sink_options
from kafka_async.spark.sink.stream_writer import arrow_batches, gives_arrow_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from pyspark.sql.types import StructType

    from kafka_async.spark.sink.exactly_once import PreparedMessage
    from kafka_async.spark.sink.ledger import Outcome
    from kafka_async.spark.sink.sink_options import SinkOptions
    from kafka_async.types import PreparedTransaction

commit = KafkaSinkCluster.commit


class FaultySource(KafkaDataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = dict(options)
        self.fault = given.pop("fault", "")
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "kafka_async_faulty"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return FaultyWriter(self.options, self.fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return FaultyStreamWriter(self.options, self.fault, schema)


class FaultyWriter(ExactlyOnceWriter):
    def __init__(self, options: MutableMapping[str, str], fault: str) -> None:
        self.fault = fault
        super().__init__(sink_options(options))

    def write(self, iterator: Iterator[Any]) -> PreparedMessage:
        return after_flush(super().write(iterator), self.fault)


class FaultyStreamWriter(ExactlyOnceStreamWriter):
    committing = False

    def __init__(self, options: MutableMapping[str, str], fault: str, schema: StructType) -> None:
        self.fault = fault
        self.given = dict(options)
        super().__init__(sink_options(options), schema)

    def write(self, iterator: Iterator[Any]) -> PreparedMessage:
        if self.fault == "check-ledger":
            blocking.run(partial(check_that_no_epoch_is_open, sink_options(self.given)))
        if not gives_arrow_batches():
            iterator = arrow_batches(iterator, self._schema)
        return after_flush(super().write(iterator), self.fault)

    def commit(self, messages: Any, batchId: int) -> None:
        if self.fault == "kill-driver":
            KafkaSinkCluster.commit = kill_driver
        elif self.fault == "fail-commit":
            KafkaSinkCluster.commit = fail
        try:
            super().commit(messages, batchId)
        finally:
            KafkaSinkCluster.commit = commit


def after_flush(message: PreparedMessage, fault: str) -> PreparedMessage:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if fault == "kill-task" and context.attemptNumber() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "slow-task" and context.attemptNumber() == context.partitionId() == 0:
        signal.pause()  # Until Spark kills the worker.
    return message


async def check_that_no_epoch_is_open(options: SinkOptions) -> None:
    """Raise if an epoch is decided and not yet resolved."""
    async with open_cluster(options.config(), options.sink_id, options.ledger_topic) as cluster:
        found = await cluster.read()
    assert found.head.open is None, found.head
    assert not found.entries, found.entries


async def kill_driver(self: KafkaSinkCluster, transaction: PreparedTransaction) -> Outcome:
    """Commit one transaction of the epoch, then kill the JVM and this process."""
    if FaultyStreamWriter.committing:
        await asyncio.Event().wait()
    FaultyStreamWriter.committing = True
    await commit(self, transaction)
    await asyncio.to_thread(kill_jvm)
    raise AssertionError("it was killed")


def kill_jvm() -> None:
    pid = os.getppid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


async def fail(self: KafkaSinkCluster, transaction: PreparedTransaction) -> Outcome:
    raise ZeroDivisionError
