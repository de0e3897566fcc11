"""A Spark driver that copies a topic to another exactly once, for a run that kills it.

python -m tests.reliability.streaming_driver JSON

The JSON object is a `DriverOptions`. The driver prints "ready" once Spark runs. Then the line
"continue" on its standard input starts the query, and "finish" starts it up to the present end of
the input. The driver prints "epoch N" after each epoch with rows, and at its end "done" or "failed"
with the error. It is killed when its standard input ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.programs import ROOT
from tests.reliability.row_check import ROW_SQL

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

MAX_ROWS_PER_EPOCH: Final = 3_000
TRIGGERS: Final[dict[str, Any]] = {
    "continue": {"processingTime": "500 milliseconds"},
    "finish": {"availableNow": True},
}
"""Triggers by the line on the standard input."""
EPOCHS_KEPT: Final = 100_000
POLL_SECONDS: Final = 0.1
FAST_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of the JVMs, which live for a minute: their start counts, not their speed."""


@dataclass(frozen=True)
class DriverOptions:
    """Holds the arguments of a driver.

    Attributes:
        master: Spark's master.
        servers: Bootstrap servers.
        topic: The input topic.
        sink: Options of the sink.
    """

    master: str
    servers: str
    topic: str
    sink: dict[str, str]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def end_with_standard_input() -> None:
    """Kill this process and its JVM once the process that started it is gone."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def prepare_query(options: DriverOptions) -> DataStreamWriter:
    """Start Spark and return a query that is not started."""
    from pyspark.sql import SparkSession

    from tests.reliability.proxied_source import ProxiedSource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    spark = (
        builder.master(options.master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "768m")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.driver.extraJavaOptions", FAST_START)
        .config("spark.executor.extraJavaOptions", FAST_START)
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.streaming.minBatchesToRetain", str(EPOCHS_KEPT))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(ProxiedSource)
    rows = (
        spark.readStream.format("kafka_async")
        .option("kafka.bootstrap.servers", options.servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MAX_ROWS_PER_EPOCH)
        .load()
        .selectExpr(ROW_SQL)
    )
    return rows.writeStream.format("kafka_async_proxied").options(**options.sink)


def main() -> None:
    prepared = prepare_query(DriverOptions(**json.loads(sys.argv[1])))
    say("ready")
    trigger = TRIGGERS[sys.stdin.readline().strip()]
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    query = prepared.trigger(**trigger).start()
    last = -1
    while query.isActive:
        progress: Any = query.lastProgress
        if progress and progress["numInputRows"] and progress["batchId"] > last:
            last = progress["batchId"]
            say(f"epoch {last}")
        time.sleep(POLL_SECONDS)
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001  # The run looks for its text.
        say(f"failed {error}".replace("\n", " "))
        sys.exit(1)
    say("done")


if __name__ == "__main__":
    main()
