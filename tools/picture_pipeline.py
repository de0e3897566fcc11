"""Runs the example of a pipeline and draws its screen as docs/images/pipeline.svg.

    python tools/picture_pipeline.py

The picture shows a real run on this machine, while records are written to the topic.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_async import blocking
from kafka_async.cli.pipeline import LOCAL_MASTER, LOCAL_PARTITIONS, LOCAL_SPARK, live_screen
from kafka_async.embedded import run_in_thread
from kafka_async.spark.pipeline import Pipeline
from tools.generated_page import DOCS, ROOT
from tools.svg_screen import write_svg

if TYPE_CHECKING:
    from kafka_async.spark.pipeline import PipelineStatus

PICTURE: Final = DOCS / "images" / "pipeline.svg"
EXAMPLE: Final = ROOT / "examples" / "word_count.toml"
WIDTH: Final = 96
BATCHES: Final = 3
LINES_PER_WRITE: Final = 100
WRITE_INTERVAL: Final = 0.05
"""Seconds."""


def main() -> int:
    """Run the pipeline and write the picture; return the exit status."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_STATE_HOME"] = directory
        status = run(directory)
    if status is None:
        sys.stderr.write("no picture: the pipeline ended without a batch that had a lag\n")
        return 1
    home = Path("~/.local/state/kafka-async/pipelines")
    shown = live_screen(status, home / f"{status.name}.log")
    write_svg(PICTURE, shown, title="kafka-async pipeline run word_count.toml", width=WIDTH)
    return 0


def run(directory: str) -> PipelineStatus | None:
    """Run the pipeline for some batches; return its last status while records were waiting."""
    found: list[PipelineStatus] = []
    with run_in_thread(transaction_state_log_num_partitions=1) as cluster:
        servers = cluster.bootstrap_servers
        for topic in ("lines", "word-counts"):
            cluster.create_topic(topic, LOCAL_PARTITIONS)
        pipeline = Pipeline.from_toml(EXAMPLE).on_cluster(servers, f"{directory}/checkpoint")
        pipeline = pipeline.with_master(LOCAL_MASTER).with_spark(LOCAL_SPARK)
        ended = threading.Event()

        def show(status: PipelineStatus) -> None:
            (query,) = status.queries
            if query.state == "running" and query.lag and query.rows_per_second:
                found.append(status)
            if (query.batch or 0) >= BATCHES:
                pipeline.stop()

        writer = threading.Thread(target=write, args=(servers, ended))
        writer.start()
        try:
            pipeline.run(on_status=show)
        finally:
            ended.set()
            writer.join()
    return found[-1] if found else None


def write(servers: str, ended: threading.Event) -> None:
    """Write the lines of the README to the topic, again and again, until the end."""
    lines = (ROOT / "README.md").read_bytes().splitlines()[:LINES_PER_WRITE]
    with blocking.Producer(servers) as producer:
        while not ended.wait(WRITE_INTERVAL):
            producer.send_many("lines", lines)


if __name__ == "__main__":
    sys.exit(main())
