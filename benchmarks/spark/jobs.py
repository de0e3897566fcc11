"""The Spark session and the jobs of the benchmark; each job checks its result."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks import topics
from benchmarks.payload import WrongResultError
from benchmarks.spark.goals import CONNECTOR, DISCARDED, ONCE, OURS, READY
from benchmarks.topics import Tally
from tools.sparks import open_session_with_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = {
    OURS: "kafka_async",
    CONNECTOR: "kafka",
    READY: "ready_batches",
    DISCARDED: "discarding_batches",
    ONCE: "kafka_async",
}


@dataclass(frozen=True)
class Workload:
    """Describes the topic that a case reads or copies.

    Attributes:
        bootstrap: Addresses of brokers.
        topic: The topic.
        records: Number of its records.
        size: Bytes of a value.
        since: Time in ms of the records that a filtered read selects; None reads all records.
        selected: Number of records that are read.
    """

    bootstrap: str
    topic: str
    records: int
    size: int
    since: int | None = None
    selected: int = 0


def open_session() -> SparkSession:
    """Return a session on two cores with the connector; its jars are downloaded if missing."""
    session = open_session_with_connector(spark_driver_memory="3g")
    from benchmarks.spark.discarding_batches import DiscardingBatches
    from benchmarks.spark.empty_batches import EmptyBatches
    from benchmarks.spark.ready_batches import ReadyBatches

    # Spark runs sources with other variables in other Python processes. This package changes those
    # of its tasks (`kafka_async.spark.worker_heap`), which must not change what it is compared to.
    variables = session.sparkContext.environment
    variables["BENCHMARK_SOURCES"] = "for comparison"
    session.dataSource.register(ReadyBatches)
    session.dataSource.register(DiscardingBatches)
    session.dataSource.register(EmptyBatches)
    del variables["BENCHMARK_SOURCES"]
    # Only the data source of this package has filters to push.
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    return session


def read(session: SparkSession, client: str, work: Workload) -> None:
    """Count the records of a topic and sum the lengths of their values."""
    frame = _load(session, client, work)
    count = work.records
    if work.since is not None:
        frame = frame.where(f"timestamp >= timestamp_millis({work.since})")
        count = work.selected
    row: Any = frame.selectExpr("count(*) as n", "sum(length(value)) as bytes").collect()[0]
    if (row["n"], row["bytes"]) != (count, count * work.size):
        raise WrongResultError(f"{client} read {row['n']} records of {row['bytes']} bytes")


def copy(session: SparkSession, client: str, work: Workload, target: str) -> None:
    """Copy the values of a topic to another, at least once, or exactly once with ONCE."""
    once = {"exactlyOnce": "true", "sinkId": f"bench-{uuid.uuid4().hex[:12]}"}
    (
        _load(session, client, work)
        .select("value")
        .write.format(FORMATS[client])
        .option("kafka.bootstrap.servers", work.bootstrap)
        .option("topic", target)
        .options(**once if client == ONCE else {})
        .mode("append")
        .save()
    )


def check_copy(client: str, work: Workload, target: str) -> None:
    """Raise WrongResultError unless the copy has the records of the original."""
    found = asyncio.run(topics.tally(work.bootstrap, target))
    if found != Tally.expected(work.records, work.size):
        raise WrongResultError(f"{client} wrote {found.records} records of {work.records}")


def _load(session: SparkSession, client: str, work: Workload) -> DataFrame:
    reader = session.read.format(FORMATS[client])
    if client in (READY, DISCARDED):
        options = {"records": work.records, "size": work.size, "partitions": topics.PARTITIONS}
        options |= {"bootstrap": work.bootstrap, "topic": work.topic}
    else:
        options = {"kafka.bootstrap.servers": work.bootstrap, "subscribe": work.topic}
    return reader.options(**options).load()
