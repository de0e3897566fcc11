"""The Spark job of the demo: its requirements, its process and its result.

Spark runs in a child process: its log goes to a file, and its standard output carries JSON lines.
It takes some seconds to start, so it is started early and waits for a line on standard input. The
line before that is its connection, which may have secrets and so is no argument.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Self, cast

from kafka_async.cli.demo.child_process import child_process
from kafka_async.errors import KafkaError
from kafka_async.extras import missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.cli.connection import Connection
    from kafka_async.cli.demo.child_process import ChildProcess
    from kafka_async.cli.demo.report import Report
    from kafka_async.cli.demo.result import Result

PARQUET: Final = "word-counts.parquet"
LOG: Final = "spark.log"

# Environment variable, set by `make demo`: the command that installs pyspark, which is large.
INSTALL_COMMAND: Final = "KAFKA_ASYNC_DEMO_INSTALL_SPARK"

SILENCE_TIMEOUT: Final = 180.0
"""Seconds without output from Spark after which the demo fails."""


@dataclass(frozen=True)
class SparkJob:
    """Holds the parameters of the job; `out` is an absolute path."""

    counts_topic: str
    top_topic: str
    out: str


@dataclass
class SparkResult:
    """Holds the seconds by stage, the counts by word and the number of records read."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    counts: Counter[str] = field(default_factory=Counter[str])
    records: int = 0


def missing_requirement() -> str | None:
    """Return a line with what Spark lacks and how to install it; None if nothing is missing."""
    return missing_java() or missing_pyspark()


def missing_java() -> str | None:
    """Return a line on how to install Java; None if it is installed."""
    from kafka_async.testing.backends.base import BackendUnavailableError
    from kafka_async.testing.backends.jvm import find_java

    try:
        find_java()
    except BackendUnavailableError as error:
        return f"{error} (Debian: apt install openjdk-17-jre-headless)"
    except OSError as error:
        return f"Java does not run: {error}"
    return None


def missing_pyspark() -> str | None:
    """Return a line on how to install pyspark; None if it is installed."""
    importlib.invalidate_caches()
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return missing_extra("Spark", "spark")
    return None


async def install_if_missing(report: Report, result: Result) -> str | None:
    """Return the missing requirement, after installing pyspark if the environment has a command."""
    missing = await asyncio.to_thread(missing_java)
    if missing is not None or missing_pyspark() is None:
        return missing
    command = os.environ.get(INSTALL_COMMAND)
    if command is not None:
        report.start_stage("install pyspark", None)
        report.show("a download of about 450 MB, once")
        with result.timed("install pyspark"), report.suspend():
            await install(command)
    return missing_pyspark()


async def install(command: str) -> None:
    """Run the command that installs pyspark, with its output on standard error."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


class SparkProcess:
    """Runs the job in a child process, which is stopped at the end of a `with` block."""

    def __init__(self, job: SparkJob, connection: Connection) -> None:
        self._job = job
        self._connection = connection
        self._stack = AsyncExitStack()
        self._process: ChildProcess | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def log(self) -> Path:
        """File of Spark's log."""
        return Path(self._job.out, LOG)

    @property
    def parquet(self) -> Path:
        """Directory of the counts in Parquet."""
        return Path(self._job.out, PARQUET)

    async def start(self) -> None:
        """Start Spark unless it has been started; do not wait until it is ready."""
        if self._process is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            scratch = self._stack.enter_context(
                TemporaryDirectory(prefix="kafka-async-demo-", ignore_cleanup_errors=True)
            )
            self._process = await self._stack.enter_async_context(
                child_process(
                    "kafka_async.cli.demo.spark_job",
                    json.dumps(asdict(self._job)),
                    scratch,
                    errors=self.log,
                    environment={"PYSPARK_PYTHON": sys.executable, "TMPDIR": scratch},
                )
            )
            self._process.write(self._connection.to_json())

    async def run(self, show: Callable[[str], None]) -> SparkResult:
        """Run the job; KafkaError has the cause of a failure and the path of the log."""
        await self.start()
        assert self._process is not None
        self._process.write("go")
        result = SparkResult()
        try:
            await self._read_stages(self._process, result, show)
        except TimeoutError:
            raise KafkaError(
                f"Spark printed nothing for {SILENCE_TIMEOUT:.0f} s and was stopped: see {self.log}"
            ) from None
        status = await self._process.wait()
        if status != 0:
            reason = failure_reason(self.log, status)
            raise KafkaError(f"the Spark job failed: {reason}; see {self.log}")
        result.counts, result.records = await asyncio.to_thread(_read_counts, self.parquet)
        return result

    @staticmethod
    async def _read_stages(
        process: ChildProcess, result: SparkResult, show: Callable[[str], None]
    ) -> None:
        lines = process.lines()
        while True:
            async with asyncio.timeout(SILENCE_TIMEOUT):
                line = await anext(lines, None)
            if line is None:
                return
            if line.startswith("{"):
                event = json.loads(line)
                result.seconds[event["stage"]] = event["seconds"]
                show(f"{event['done']}, {event['seconds']:.1f} s")


def failure_reason(log: Path, status: int) -> str:
    """Return the last line of a log that names an error, or else the exit status."""
    errors = [
        line.strip()
        for line in log.read_text("utf-8", "replace").splitlines()
        if not line.startswith((" ", "\t")) and ("Error: " in line or "Exception: " in line)
    ]
    return errors[-1][:300] if errors else f"it ended with status {status}"


def _read_counts(parquet: Path) -> tuple[Counter[str], int]:
    """Return the counts by word that the job has written, and the number of records they sum."""
    from pyarrow import parquet as files

    read_table = cast("Any", files).read_table  # pyarrow has no types for it.
    table: dict[str, list[Any]] = read_table(parquet).to_pydict()
    return Counter(dict(zip(table["word"], table["count"], strict=True))), sum(table["records"])
