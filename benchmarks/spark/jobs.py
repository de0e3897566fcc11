"""The Spark session and the jobs of the benchmark; each job checks its result."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import topics
from benchmarks.payload import WrongResultError
from benchmarks.processes import ROOT
from benchmarks.topics import Tally
from kafka_async.testing.backends.jars import Artifact, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS: Final = "kafka_async"
CONNECTOR: Final = "Spark's connector"
READY: Final = "ready-made Arrow batches"
FORMATS: Final = {OURS: "kafka_async", CONNECTOR: "kafka", READY: "ready_batches"}

SPARK: Final = "4.2.0"
_ALL: Final = ("*:*",)  # Spark has the other dependencies.
# The token provider of 4.2.0 is not in every mirror; that of 4.0.0 works in its place.
ARTIFACTS: Final = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK, _ALL),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", _ALL),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1", _ALL),
    Artifact("org.apache.commons", "commons-pool2", "2.12.0", _ALL),
)


@dataclass(frozen=True)
class Workload:
    """Describes the topic that a case reads or copies."""

    bootstrap: str
    topic: str
    records: int
    size: int


def open_session() -> SparkSession:
    """Return a session on two cores with the connector; its jars are downloaded if missing."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    from pyspark.sql import SparkSession

    jars = ",".join(
        str(path) for path in sorted(Path(resolve(f"spark-{SPARK}", ARTIFACTS)).glob("*.jar"))
    )
    builder: Any = SparkSession.builder
    session: SparkSession = (
        builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    from benchmarks.spark.ready_batches import ReadyBatches

    session.dataSource.register(ReadyBatches)
    return session


def read(session: SparkSession, client: str, work: Workload) -> None:
    """Count the records of a topic and sum the lengths of their values."""
    frame = _load(session, client, work)
    row: Any = frame.selectExpr("count(*) as n", "sum(length(value)) as bytes").collect()[0]
    if (row["n"], row["bytes"]) != (work.records, work.records * work.size):
        raise WrongResultError(f"{client} read {row['n']} records of {row['bytes']} bytes")


def copy(session: SparkSession, client: str, work: Workload, target: str) -> None:
    """Copy the values of a topic to another, at least once."""
    (
        _load(session, client, work)
        .select("value")
        .write.format(FORMATS[client])
        .option("kafka.bootstrap.servers", work.bootstrap)
        .option("topic", target)
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
    if client == READY:
        options = {"records": work.records, "size": work.size, "partitions": topics.PARTITIONS}
    else:
        options = {"kafka.bootstrap.servers": work.bootstrap, "subscribe": work.topic}
    return reader.options(**options).load()
