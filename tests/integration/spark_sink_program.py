"""A Spark driver with a streaming query into the exactly-once sink, for tests that kill it.

python -m tests.integration.spark_sink_program JSON

The JSON object has input (a directory of text files), options and format of the sink, idle (the
query waits for more files), Spark's master and more of its configuration. Each file is an epoch.
The progress is printed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def start_query(spark: Any, given: Mapping[str, Any]) -> Any:
    """Start the query of an object as described above, and return it."""
    rows = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(given["input"])
    writer = rows.repartition(2).writeStream.format(given["format"]).options(**given["options"])
    trigger: dict[str, Any] = (
        {"processingTime": "100 milliseconds"} if given["idle"] else {"availableNow": True}
    )
    return writer.trigger(**trigger).start()


def main() -> None:
    from pyspark.sql import SparkSession

    from tests.integration.faulty_sink import FaultySource

    given: dict[str, Any] = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    spark = (
        builder.master(given["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config(map=given["configuration"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FaultySource)
    query = start_query(spark, given)
    say("started")
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001  # The test looks for its text.
        say(f"failed {error}")
        sys.exit(1)
    say("done")


if __name__ == "__main__":
    main()
