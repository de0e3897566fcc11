"""The Spark job of the demo: its requirements, its process and its result.

Spark runs in a child process: its log goes to a file, and its standard output carries JSON lines.
Spark takes some seconds to start, so it starts before the words are counted. Its standard input
gets the connection, which may contain secrets and is therefore not an argument, and a second line
when all words are counted.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

from kafka_async.cli.demo.child_process import child_process
from kafka_async.cli.terminal import plural
from kafka_async.errors import KafkaError
from kafka_async.foundation.arguments import missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.cli.connection_options import ConnectionOptions
    from kafka_async.cli.demo.child_process import ChildProcess

PIPELINE: Final = "word-totals.toml"
CHECKPOINT: Final = "checkpoint"
LOG: Final = "spark.log"

SILENCE_TIMEOUT: Final = 180.0
"""Seconds without output from Spark after which the demo fails."""


@dataclass(frozen=True)
class SparkJob:
    """Holds the parameters of the job; `out` is an absolute path."""

    name: str
    counts_topic: str
    totals_topic: str
    ledger_topic: str
    out: str


@dataclass(frozen=True)
class SparkEvent:
    """An event of the job: started, batch, stopped or ended.

    Attributes:
        kind: The event.
        seconds: Time since the start of the process.
        batches: Number of batches so far.
        rows: Number of rows read so far.
    """

    kind: str
    seconds: float
    batches: int
    rows: int

    def describe(self) -> str:
        """Return a message for the user."""
        if self.kind == "started":
            return f"Spark has started, {self.seconds:.1f} s"
        if self.kind == "batch":
            return f"Spark has summed {plural(self.rows, 'count')}, batch {self.batches}"
        if self.kind == "stopped":
            return "the stream is interrupted, and started again from its checkpoint"
        return "Spark has read all counts"


def missing_requirement() -> str | None:
    """Return how to install the first missing requirement of Spark, or None."""
    return missing_java() or missing_pyspark()


def missing_java() -> str | None:
    """Return how to install Java, or None if it is installed."""
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
    """Return how to install pyspark, or None if it is installed."""
    importlib.invalidate_caches()
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return missing_extra("Spark", "spark")
    return None


class SparkProcess:
    """Runs the job in a child process, which is stopped at the end of a `with` block."""

    def __init__(
        self, job: SparkJob, connection: ConnectionOptions, show: Callable[[str], None]
    ) -> None:
        self._job = job
        self._connection = connection
        self._show = show
        self._stack = AsyncExitStack()
        self._process: ChildProcess | None = None
        self._reading: asyncio.Task[SparkEvent | None] | None = None
        self._heard = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._stack.aclose()

    @property
    def log(self) -> Path:
        """File of Spark's log."""
        return Path(self._job.out, LOG)

    @property
    def pipeline(self) -> Path:
        """File of the pipeline."""
        return Path(self._job.out, PIPELINE)

    async def start(self) -> None:
        """Start Spark; do not wait until it is ready."""
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
                environment={
                    "PYSPARK_PYTHON": sys.executable,
                    "TMPDIR": scratch,
                    "XDG_STATE_HOME": scratch,
                },
            )
        )
        self._process.write(self._connection.to_json())
        self._reading = asyncio.create_task(self._read_events(self._process))

    async def finish(self) -> SparkEvent:
        """Let the stream read the remaining records, and return its last event.

        Raise KafkaError with the cause of a failure and the path of the log.
        """
        assert self._process is not None
        assert self._reading is not None
        self._process.write("finish")
        await self._wait_for_end(self._reading)
        last, status = self._reading.result(), await self._process.wait()
        if status != 0 or last is None:
            reason = failure_reason(self.log, status)
            raise KafkaError(f"the Spark job failed: {reason}; see {self.log}")
        return last

    async def _wait_for_end(self, reading: asyncio.Task[SparkEvent | None]) -> None:
        while not reading.done():
            self._heard.clear()
            heard = asyncio.create_task(self._heard.wait())
            done, _ = await asyncio.wait(
                {reading, heard}, timeout=SILENCE_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
            heard.cancel()
            if not done:
                raise KafkaError(
                    f"Spark printed nothing for {SILENCE_TIMEOUT:.0f} s and was stopped: "
                    f"see {self.log}"
                )

    async def _read_events(self, process: ChildProcess) -> SparkEvent | None:
        """Show the events until the output ends, and return the last one."""
        event: SparkEvent | None = None
        async for line in process.lines():
            if line.startswith("{"):
                event = SparkEvent(**json.loads(line))
                self._heard.set()
                self._show(event.describe())
        return event


def failure_reason(log: Path, status: int) -> str:
    """Return the last line with an error in a log, or the exit status."""
    errors = [
        line.strip()
        for line in log.read_text("utf-8", "replace").splitlines()
        if not line.startswith((" ", "\t")) and ("Error: " in line or "Exception: " in line)
    ]
    return errors[-1][:300] if errors else f"it ended with status {status}"
