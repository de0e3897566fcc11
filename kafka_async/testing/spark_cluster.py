"""Runs a standalone Spark cluster: a master and workers as processes on this machine.

    python -m kafka_async.testing.spark_cluster --workers 2

prints the master's URL and runs until Ctrl-C. All processes listen on 127.0.0.1, and none outlives
the process that started them. Spark comes from the pip package pyspark.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jars import cache_directory
from kafka_async.testing.backends.jvm import find_java
from kafka_async.testing.backends.runs import Run

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

START_TIMEOUT: Final = 60.0
"""Seconds for a process to be ready."""
POLL_INTERVAL: Final = 0.1
HEAP: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options of master and workers, which run no tasks themselves."""

ENVIRONMENT: Final = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
"""Variables that Spark's scripts set; workers select executors by the Scala version."""


class SparkCluster:
    """Controls a running cluster.

    Attributes:
        master: URL for `SparkSession.builder.master`.
        directory: Directory of the logs, removed at the end.
    """

    def __init__(
        self, run: Run, *, cores: int, memory: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = run.directory
        self._marker = run.marker
        self._cores = cores
        self._memory = memory
        self._environment = {**os.environ, **(environment or {}), **ENVIRONMENT}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        _, self.master = self._start(
            "master",
            *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
            *("--port", "0", "--webui-port", "0"),
            ready=r"Starting Spark master at (spark://\S+)",
        )

    def add_worker(self, host: str = "127.0.0.1") -> None:
        """Start a worker and wait until the master has registered it.

        Args:
            host: The worker's address. Spark runs no speculative attempt on the host of the first
                attempt.
        """
        number = len(self._workers)
        worker, _ = self._start(
            f"worker-{number}",
            *("org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0"),
            *("--cores", str(self._cores), "--memory", self._memory),
            *("--work-dir", str(self.directory / f"work-{number}"), self.master),
            ready="(Successfully registered with master)",
        )
        self._workers.append(worker)

    def executors(self, number: int) -> list[Path]:
        """Return the directories of a worker's executors."""
        return sorted(self.directory.glob(f"work-{number}/*/*"))

    def kill_worker(self, number: int) -> None:
        """Kill a worker as by kill -9; its executors end with it."""
        self._workers[number].kill()
        self._workers[number].wait()

    def close(self) -> None:
        """Wait for the processes that the end of the run has killed."""
        for process in self._processes:
            process.wait()

    def _start(self, name: str, *arguments: str, ready: str) -> tuple[subprocess.Popen[bytes], str]:
        """Start a JVM; return it and the group's match of `ready` in its log."""
        log = self.directory / f"{name}.log"
        home = _spark_home()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *(find_java().command, *HEAP, self._marker, "-cp", f"{home}/jars/*"),
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self._environment, "SPARK_HOME": str(home)},
                start_new_session=True,
            )
        self._processes.append(process)
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            text = log.read_text("utf-8", "replace")
            found = re.search(ready, text)
            if found is not None:
                return process, found[1]
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                last = text.strip().splitlines()[-1:]
                raise BackendUnavailableError(f"the {name} of Spark did not start: {last}")
            time.sleep(POLL_INTERVAL)


@contextmanager
def spark_cluster(
    workers: int = 2,
    *,
    cores: int = 1,
    memory: str = "1g",
    environment: Mapping[str, str] | None = None,
) -> Generator[SparkCluster]:
    """Run a standalone cluster until the block ends.

    Args:
        workers: Number of workers.
        cores: Cores of each worker.
        memory: Memory of each worker for executors, in Spark's notation.
        environment: Variables of workers and executors, in addition to this process's. To Spark and
            Python, an empty value equals an unset variable.

    Raises:
        BackendUnavailableError: pyspark or Java is missing, or a process does not start.
    """
    run = Run.open(cache_directory() / "runs")
    cluster: SparkCluster | None = None
    try:
        cluster = SparkCluster(run, cores=cores, memory=memory, environment=environment)
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        run.close()
        if cluster is not None:
            cluster.close()


def _spark_home() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise BackendUnavailableError("pyspark is missing: pip install pyspark")
    return Path(found.origin).parent


def main() -> None:
    """Run a cluster until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="number of workers (default: 2)")
    parser.add_argument("--cores", type=int, default=1, help="cores of each worker (default: 1)")
    parser.add_argument("--memory", default="1g", help="memory of each worker (default: 1g)")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop.set())
    with spark_cluster(options.workers, cores=options.cores, memory=options.memory) as cluster:
        sys.stdout.write(f"{cluster.master}\n")
        sys.stdout.flush()
        stop.wait()


if __name__ == "__main__":
    main()
