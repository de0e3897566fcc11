"""The Spark job of the demo: read committed counts, aggregate, write Parquet, write top words back.

Run as a program with the job in JSON and a directory for its temporary files. It starts Spark,
waits for a line on standard input, runs, and reports in JSON lines on standard output. When
standard input ends, so do this process and its JVM, whose Python workers end by themselves then.
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

from kafka_async.cli.demo.aggregate import TOP_WORDS
from kafka_async.cli.demo.spark import PARQUET, SparkJob

# For some seconds of work: code that compiles fast rather than well, in two thirds of the CPU.
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


class Stopwatch:
    """Reports each stage with the seconds since the one before."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Count from now."""
        self._since = time.perf_counter()

    def done(self, stage: str, message: str) -> None:
        """A stage has ended."""
        seconds = time.perf_counter() - self._since
        print(json.dumps({"stage": stage, "done": message, "seconds": seconds}), flush=True)
        self.reset()


def obey(scratch: str) -> threading.Event:
    """An event that a line on standard input sets; its end ends this process and its JVM."""
    told = threading.Event()

    def read() -> None:
        while os.read(0, 4096):
            told.set()
        # Nobody else is left to remove what Spark has put aside; normally the parent does.
        shutil.rmtree(scratch, ignore_errors=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    return told


def session(scratch: str) -> SparkSession:
    """A local session that keeps quiet, opens no port for browsers, and leaves no files behind."""
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
        .config("spark.driver.extraJavaOptions", f"{QUICK} -Djava.io.tmpdir={scratch}")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_counts(spark: SparkSession, job: SparkJob) -> DataFrame:
    """Word and occurrences of every committed record."""
    records = (
        spark.read.format("kafka_async")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", job.counts_topic)
        .load()
    )
    return records.select(
        f.col("key").cast("string").alias("word"),
        f.col("value").cast("string").cast("long").alias("occurrences"),
    )


def main(job: SparkJob, scratch: str) -> None:
    """The whole job."""
    told = obey(scratch)
    watch = Stopwatch()
    spark = session(scratch)
    counts = read_counts(spark, job)  # only planned so far: nothing is read before it is written
    watch.done("start Spark", "Spark has started")
    told.wait()
    watch.reset()
    parquet = str(Path(job.out, PARQUET))
    totals = counts.groupBy("word").agg(
        f.sum("occurrences").alias("count"), f.count("*").alias("records")
    )
    totals.write.parquet(parquet)
    watch.done("read and aggregate in Spark", "Spark has read word-counts and written Parquet")
    written = spark.read.schema(totals.schema).parquet(parquet)
    top = written.orderBy(f.desc("count"), "word").limit(TOP_WORDS)
    (
        top.select(f.col("word").alias("key"), f.col("count").cast("string").alias("value"))
        .write.format("kafka_async")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", job.top_topic)
        .mode("append")
        .save()
    )
    watch.done("write top-words from Spark", "Spark has written the top words to Kafka")
    spark.stop()


if __name__ == "__main__":
    main(SparkJob(**json.loads(sys.argv[1])), sys.argv[2])
