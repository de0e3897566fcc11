"""Reads and writes a topic with Spark in all ways that show options, and prints what is shown.

Argument: a directory for Spark's files. Standard input: a JSON object with the topic and the
options of the data source, with which secrets are given in different ways.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def session(directory: str) -> SparkSession:
    builder: Any = SparkSession.builder
    return (
        builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        .config("spark.local.dir", f"{directory}/local")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", f"file://{directory}/events")
        .config("spark.eventLog.rolling.enabled", "false")
        .config("spark.eventLog.compress", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )


def say(*values: object) -> None:
    sys.stdout.write(" ".join(map(str, values)) + "\n")


def show(rows: DataFrame) -> None:
    """Print a query's plans in all forms, and its result."""
    for mode in ("extended", "formatted"):
        rows.explain(mode=mode)
    say("rows:", rows.count(), rows)


def write(rows: DataFrame, topic: str, options: dict[str, str]) -> None:
    chosen = rows.select(f.lit("v").alias("value")).limit(1)
    chosen.write.format("kafka_async").options(topic=topic, **options).mode("append").save()


def main(directory: str) -> None:
    given = json.loads(sys.stdin.readline())
    topic, options = given["topic"], given["options"]
    spark = session(directory)
    write(spark.range(1), topic, given["by variable"])
    write(spark.range(1), topic, given["by file"])
    show(spark.read.format("kafka_async").options(subscribe=topic, **options).load())

    listed = ", ".join(f"`{name}` '{value}'" for name, value in given["for Java"].items())
    sql = cast("Any", spark).sql  # pyspark declares its arguments in part.
    sql(f"CREATE TEMPORARY VIEW v USING kafka_async OPTIONS (subscribe '{topic}', {listed})")
    show(sql("SELECT value FROM v"))
    say(sql("DESCRIBE EXTENDED v").collect())

    def write_batch(rows: DataFrame, batch: int) -> None:
        write(spark.range(1), topic, options)

    query = (
        spark.readStream.format("rate")
        .load()
        .writeStream.foreachBatch(write_batch)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    say("progress:", [progress.json for progress in query.recentProgress])
    query.explain(extended=True)

    wrong = spark.read.format("kafka_async").options(subscribe=topic, **given["wrong"]).load()
    for work in (
        wrong.count,
        lambda: write(spark.range(1), topic, {**options, "kafka.nonsense": "1"}),
        lambda: write(spark.range(1), topic, given["wrong"]),
    ):
        try:
            work()
        except Exception:  # noqa: BLE001  # The errors are searched for secrets.
            say("error:", traceback.format_exc())
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
