"""Reads and writes topics through Spark Connect, with a local server; prints what it did.

python -m tests.integration.spark_connect_program SERVERS TOPIC COPY DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 500


def main(servers: str, topic: str, copy: str, directory: str) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = cast("Any", SparkSession).builder
    spark = builder.remote("local[2]").getOrCreate()
    try:
        sys.stdout.write(f"{json.dumps(copied(spark, servers, topic, copy, directory))}\n")
    finally:
        spark.stop()


def copied(
    spark: SparkSession, servers: str, topic: str, copy: str, directory: str
) -> dict[str, object]:
    """Write a topic, read it, and copy it with a stream, exactly once."""
    cluster = {"kafka.bootstrap.servers": servers}
    sink = {"exactlyOnce": "true", "sinkId": copy, "checkpointLocation": f"{directory}/checkpoint"}
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("kafka_async").options(**cluster).option("topic", topic)
    writer.mode("append").save()

    read = spark.read.format("kafka_async").options(**cluster, subscribe=topic).load()
    stream = spark.readStream.format("kafka_async").options(**cluster)
    lines = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
    places = lines.selectExpr("CONCAT(partition, ':', offset) AS value")
    copying = places.writeStream.format("kafka_async").options(**cluster, **sink, topic=copy)
    query = copying.queryName("copy").trigger(availableNow=True).start()
    query.awaitTermination()
    return {
        "session": type(spark).__module__,
        "rows": read.count(),
        "failure": str(query.exception()),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
