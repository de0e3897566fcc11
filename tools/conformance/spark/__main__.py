"""Compares reads, streams and writes with Spark's own Kafka connector.

python -m tools.conformance.spark [--backend NAME] [--only TEXT ...]

Both connectors run in one session of Spark, in the newest version that the connector exists for,
which is installed on first use. Prints a line per case. The exit status is 1 if there is a
difference, and 2 if a requirement is missing (1 with CI=true).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_async.testing.backends import BackendUnavailableError, create_backend
from kafka_async.testing.environment import in_ci
from tools import sparks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.conformance.spark.compare import Comparison, Runner

MODULE = "tools.conformance.spark"


def main(arguments: Sequence[str]) -> int:
    """Run the cases; return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--backend", default="apache", help="apache or embedded")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of cases")
    options = parser.parse_args(arguments)
    try:
        status = sparks.run_again_with(sparks.CONNECTOR_VERSION, MODULE, arguments)
        return _compare_all(options.backend, options.only) if status is None else status
    except (BackendUnavailableError, sparks.SparkUnavailableError) as error:
        print(f"not run: {error}")
        return 1 if in_ci() else 2


def _compare_all(backend: str, only: Sequence[str]) -> int:
    from tools.conformance.spark.compare import Runner
    from tools.conformance.spark.topics import BROKER_PROPERTIES, topics

    options = {"brokers": 1, "auto_create_topics": False, "properties": BROKER_PROPERTIES}
    counts = {True: 0, False: 0}
    with (
        tempfile.TemporaryDirectory() as directory,
        create_backend(backend, options) as cluster,  # pyright: ignore[reportArgumentType]
        topics(cluster.bootstrap_servers, compacts=backend.startswith("apache")),
    ):
        session = sparks.open_session_with_connector(
            spark_sql_shuffle_partitions="2", spark_sql_session_timeZone="UTC"
        )
        try:
            runner = Runner(session, cluster.bootstrap_servers, Path(directory))
            print(f"Spark {session.version}, {cluster.name}", flush=True)
            for name, run in _cases(runner):
                if only and not any(text in name for text in only):
                    continue
                result = run()
                counts[result.difference is None] += 1
                mark = "same" if result.difference is None else "DIFFERENT"
                print(f"{name:48} {mark:9} {result.difference or result.summary}", flush=True)
        finally:
            session.stop()
    total = sum(counts.values())
    print(
        f"{'failed' if counts[False] else 'passed'}: {counts[True]} of {total} cases are the same"
    )
    return int(counts[False] > 0 or not total)


def _cases(runner: Runner) -> Iterator[tuple[str, Callable[[], Comparison]]]:
    from tools.conformance.spark.cases import BATCHES, STREAM_WRITES, STREAMS, WRITES

    for batch in BATCHES:
        yield f"batch: {batch.name}", lambda batch=batch: runner.batch(batch)
    for write in WRITES:
        yield f"write: {write.name}", lambda write=write: runner.write(write)
    for stream in STREAMS:
        yield f"stream: {stream.name}", lambda stream=stream: runner.stream(stream)
    for sink in STREAM_WRITES:
        yield f"stream write: {sink.name}", lambda sink=sink: runner.stream_write(sink)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
