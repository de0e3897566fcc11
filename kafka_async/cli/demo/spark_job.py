"""The Spark job of the demo: a pipeline that sums the counts of each word while they are written.

It runs as a program with two arguments, the job in JSON and a directory for temporary files. It
reads its connection, a JSON line, on standard input, and writes the pipeline's file. The pipeline
runs as a stream until standard input has another line. It is then stopped and restarted from its
checkpoint, to read the remaining records and end. Progress is reported as JSON lines on standard
output. When standard input ends, the program kills itself and its JVM; Spark's Python workers end
with the JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.demo.spark import CHECKPOINT, PIPELINE, SparkEvent, SparkJob
from kafka_async.secrets import Secret, SecretBytes
from kafka_async.spark.pipeline import Pipeline, PipelineStatus
from kafka_async.spark.pipeline.session import create_session

# In a run of a few seconds, the fast JIT compiler alone saves a third of the CPU time.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"

FILE: Final = """\
# The total of each word, from the counts of the transactions: written by kafka-async demo.
#
#     kafka-async pipeline validate FILE

[pipeline]
name = {name}
master = "local[2]"
checkpoint = {checkpoint}
trigger = "1 second"

[kafka]
{kafka}

[[source]]
name = "counts"
topics = [{counts_topic}]

[source.options]
startingOffsets = "earliest"
maxOffsetsPerTrigger = 10_000
kafka.isolation.level = "read_committed"

[[step]]
name = "words"
sql = '''
SELECT CAST(key AS STRING) AS word, CAST(CAST(value AS STRING) AS BIGINT) AS occurrences
FROM counts
'''

[[step]]
name = "totals"
sql = '''
SELECT word AS key, CAST(sum(occurrences) AS STRING) AS value
FROM words GROUP BY word
'''

[[sink]]
kind = "topic"
topic = {totals_topic}
mode = "update"
options = {{ exactlyOnce = true, ledgerTopic = {ledger_topic} }}
"""


class Progress:
    """Reports the batches of both runs of the pipeline."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._rows_before = 0
        self._batch: int | None = None
        self._rows = 0

    def report(self, kind: str) -> None:
        """Report an event with the current figures."""
        seconds = time.perf_counter() - self._begun
        batches = 0 if self._batch is None else self._batch + 1
        event = SparkEvent(kind, seconds, batches, self._rows_before + self._rows)
        print(json.dumps(asdict(event)), flush=True)

    def start_run(self) -> None:
        """Add the next run's rows to the rows counted before."""
        self._rows_before, self._rows = self._rows_before + self._rows, 0

    def update(self, status: PipelineStatus) -> None:
        """Report a completed batch."""
        (query,) = status.queries
        if query.rows > self._rows:
            self._batch, self._rows = query.batch, query.rows
            self.report("batch")


def watch_stdin(scratch: str) -> threading.Event:
    """Return an event that a line on standard input sets; kill this process at the input's end."""
    finish = threading.Event()

    def read() -> None:
        while os.read(0, 4096):
            finish.set()
        # The parent has died, which otherwise removes Spark's temporary files.
        shutil.rmtree(scratch, ignore_errors=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    return finish


def spark_options(scratch: str) -> dict[str, str]:
    """Return options for a session without a web UI that leaves no files behind."""
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": scratch,
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}",
    }


def read_connection() -> ConnectionOptions:
    """Return the connection, the first line of standard input."""
    line = SecretBytes(b"")
    while not line.reveal().endswith(b"\n"):
        character = SecretBytes(os.read(0, 1))
        if not character:
            sys.exit("standard input has ended without a connection")
        line = SecretBytes(line.reveal() + character.reveal())
    return ConnectionOptions.from_json(Secret(line.reveal().decode()))


def options_of(connection: ConnectionOptions, scratch: str) -> dict[str, str]:
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


def pipeline_file(job: SparkJob, options: dict[str, str]) -> str:
    """Return the text of the pipeline's file; a JSON string is also a TOML string."""
    return FILE.format(
        name=json.dumps(job.name),
        checkpoint=json.dumps(str(Path(job.out, CHECKPOINT))),
        kafka="\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items()),
        counts_topic=json.dumps(job.counts_topic),
        totals_topic=json.dumps(job.totals_topic),
        ledger_topic=json.dumps(job.ledger_topic),
    )


def main(job: SparkJob, scratch: str) -> None:
    """Run the job."""
    options = options_of(read_connection(), scratch)
    finish = watch_stdin(scratch)
    progress = Progress()
    file = Path(job.out, PIPELINE)
    file.write_text(pipeline_file(job, options), "utf-8")
    stream = Pipeline.from_toml(file)

    def update(status: PipelineStatus) -> None:
        progress.update(status)
        if finish.is_set():
            stream.stop()

    with create_session(replace(stream.definition, spark=spark_options(scratch))) as spark:
        progress.report("started")
        if not finish.is_set():
            stream.run(spark, on_status=update)
            progress.report("stopped")
        progress.start_run()
        stream.with_trigger("available-now").run(spark, on_status=progress.update)
        progress.report("ended")


if __name__ == "__main__":
    main(SparkJob(**json.loads(sys.argv[1])), sys.argv[2])
