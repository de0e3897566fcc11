"""The Spark job of the demo: reads committed counts, writes their sums as Parquet and to Kafka.

It runs as a program with two arguments, the job in JSON and a directory for temporary files. It
reads its connection, a JSON line, on standard input, starts Spark, waits for another line, runs,
and reports each stage as a JSON line on standard output. When standard input ends, it kills itself
and its JVM; Spark's Python workers end with the JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_async.cli.connection import Connection
from kafka_async.cli.demo.aggregate import TOP_WORDS
from kafka_async.cli.demo.spark import PARQUET, SparkJob
from kafka_async.secrets import Secret, SecretBytes

# For some seconds of work, fast compilation of slower code saves a third of the CPU time.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


class Stopwatch:
    """Reports each stage with the seconds since the previous one."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start the time of the next stage."""
        self._started = time.perf_counter()

    def report(self, stage: str, message: str) -> None:
        """Report the end of a stage."""
        seconds = time.perf_counter() - self._started
        print(json.dumps({"stage": stage, "done": message, "seconds": seconds}), flush=True)
        self.reset()


def watch_stdin(scratch: str) -> threading.Event:
    """Return an event that a line on standard input sets; kill this process at the input's end."""
    start = threading.Event()

    def read() -> None:
        while os.read(0, 4096):
            start.set()
        # The parent, which normally removes Spark's temporary files, is dead.
        shutil.rmtree(scratch, ignore_errors=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    return start


def create_session(scratch: str) -> SparkSession:
    """Create a local session without a web UI that logs errors only and leaves no files behind."""
    builder: SparkSession.Builder = SparkSession.builder  # type: ignore[assignment]  # classproperty
    spark = (
        builder.master("local[2]")
        .appName("kafka-async demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.local.dir", scratch)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_connection() -> Connection:
    """Return the connection, the first line of standard input."""
    line = SecretBytes(b"")
    while not line.reveal().endswith(b"\n"):
        character = SecretBytes(os.read(0, 1))
        if not character:
            sys.exit("standard input has ended without a connection")
        line = SecretBytes(line.reveal() + character.reveal())
    return Connection.from_json(Secret(line.reveal().decode()))


def options_of(connection: Connection, scratch: str) -> dict[str, str]:
    """Return the options of the data source; write secrets to files that only this user reads."""
    secrets = connection.secrets()
    options = {
        f"kafka.{name}": str(value)
        for name, value in connection.properties.items()
        if name not in secrets
    }
    for name, secret in secrets.items():
        file = Path(scratch, name)
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(secret.reveal(), "utf-8")
        options[f"kafka.{name}_file"] = str(file)
    return options


def read_counts(spark: SparkSession, job: SparkJob, options: dict[str, str]) -> DataFrame:
    """Read the word and the occurrences of every committed record."""
    records = (
        spark.read.format("kafka_async")
        .options(**options)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", job.counts_topic)
        .load()
    )
    return records.select(
        f.col("key").cast("string").alias("word"),
        f.col("value").cast("string").cast("long").alias("occurrences"),
    )


def main(job: SparkJob, scratch: str) -> None:
    """Run the job."""
    options = options_of(read_connection(), scratch)
    start = watch_stdin(scratch)
    stopwatch = Stopwatch()
    spark = create_session(scratch)
    counts = read_counts(
        spark, job, options
    )  # Builds the query, which runs when its result is written.
    stopwatch.report("start Spark", "Spark has started")
    start.wait()
    stopwatch.reset()
    parquet = str(Path(job.out, PARQUET))
    totals = counts.groupBy("word").agg(
        f.sum("occurrences").alias("count"), f.count("*").alias("records")
    )
    totals.write.parquet(parquet)
    stopwatch.report(
        "read and aggregate in Spark", "Spark has read word-counts and written Parquet"
    )
    written = spark.read.schema(totals.schema).parquet(parquet)
    top = written.orderBy(f.desc("count"), "word").limit(TOP_WORDS)
    (
        top.select(f.col("word").alias("key"), f.col("count").cast("string").alias("value"))
        .write.format("kafka_async")
        .options(**options)
        .option("topic", job.top_topic)
        .mode("append")
        .save()
    )
    stopwatch.report("write top-words from Spark", "Spark has written the top words to Kafka")
    spark.stop()


if __name__ == "__main__":
    main(SparkJob(**json.loads(sys.argv[1])), sys.argv[2])
