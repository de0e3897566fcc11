"""The Spark half, seen from the demo: whether it can run, installing it, running it, its results.

Spark runs in a process of its own: what it logs goes to a file, and only its JSON lines come here.
It takes some seconds to start, so it is started early, and does nothing until it is told to.
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

from kafka_async.cli.demo.child import child
from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.cli.demo.child import Child
    from kafka_async.cli.demo.result import Result, Teller

PARQUET: Final = "word-counts.parquet"
LOG: Final = "spark.log"

# Set by `make demo`: the command that installs pyspark, which is large, when it is wanted.
INSTALL: Final = "KAFKA_ASYNC_DEMO_INSTALL_SPARK"

# Seconds without a word from Spark after which it is given up.
PATIENCE: Final = 180.0


@dataclass(frozen=True)
class SparkJob:
    """What the job needs to know. `out` is an absolute path."""

    bootstrap: str
    counts_topic: str
    top_topic: str
    out: str


@dataclass
class Outcome:
    """What the job found: seconds by stage, the counts, and how many records they were."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    counts: Counter[str] = field(default_factory=Counter[str])
    records: int = 0


def lacking() -> str | None:
    """What keeps Spark from running, and the cure, in one line; None if nothing does."""
    return lacking_java() or lacking_pyspark()


def lacking_java() -> str | None:
    """The same for Java alone."""
    from kafka_async.testing.backends.base import BackendUnavailableError
    from kafka_async.testing.backends.jvm import find_java

    try:
        find_java()
    except BackendUnavailableError as error:
        return f"{error} (Debian: apt install openjdk-17-jre-headless)"
    except OSError as error:
        return f"Java does not run: {error}"
    return None


def lacking_pyspark() -> str | None:
    """The same for pyspark alone."""
    importlib.invalidate_caches()
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return "pyspark is missing: pip install pyspark pyarrow"
    return None


async def make_ready(teller: Teller, result: Result) -> str | None:
    """Install pyspark if it is all that is missing and may be; what is lacking then."""
    lacking = await asyncio.to_thread(lacking_java)
    if lacking is not None or lacking_pyspark() is None:
        return lacking
    command = os.environ.get(INSTALL)
    if command is not None:
        teller.stage("install pyspark", None)
        teller.say("a download of about 450 MB, once")
        with result.timed("install pyspark"), teller.aside():
            await install(command)
    return lacking_pyspark()


async def install(command: str) -> None:
    """Run the command that installs pyspark; its output goes to standard error."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


class Spark:
    """The job's process. It ends with the block, if not before."""

    def __init__(self, job: SparkJob) -> None:
        self._job = job
        self._stack = AsyncExitStack()
        self._process: Child | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def log(self) -> Path:
        """Where Spark's own lines go."""
        return Path(self._job.out, LOG)

    @property
    def parquet(self) -> Path:
        """Where the counts go."""
        return Path(self._job.out, PARQUET)

    async def start(self) -> None:
        """Have Spark start, if it has not yet; returns at once."""
        if self._process is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            scratch = self._stack.enter_context(
                TemporaryDirectory(prefix="kafka-async-demo-", ignore_cleanup_errors=True)
            )
            self._process = await self._stack.enter_async_context(
                child(
                    "kafka_async.cli.demo.sparkjob",
                    json.dumps(asdict(self._job)),
                    scratch,
                    errors=self.log,
                    environment={"PYSPARK_PYTHON": sys.executable, "TMPDIR": scratch},
                )
            )

    async def run(self, say: Callable[[str], None]) -> Outcome:
        """Run the job; raises KafkaError, with the cause and the log's name, if it fails."""
        await self.start()
        assert self._process is not None
        self._process.write("go")
        outcome = Outcome()
        try:
            await self._follow(self._process, outcome, say)
        except TimeoutError:
            raise KafkaError(
                f"Spark has said nothing for {PATIENCE:.0f} s, and was ended: see {self.log}"
            ) from None
        status = await self._process.ended()
        if status != 0:
            raise KafkaError(f"the Spark job failed: {cause(self.log, status)}; see {self.log}")
        outcome.counts, outcome.records = await asyncio.to_thread(_read, self.parquet)
        return outcome

    @staticmethod
    async def _follow(process: Child, outcome: Outcome, say: Callable[[str], None]) -> None:
        lines = process.lines()
        while True:
            async with asyncio.timeout(PATIENCE):
                line = await anext(lines, None)
            if line is None:
                return
            if line.startswith("{"):
                event = json.loads(line)
                outcome.seconds[event["stage"]] = event["seconds"]
                say(f"{event['done']}, {event['seconds']:.1f} s")


def cause(log: Path, status: int) -> str:
    """The last line of a log that names an error, else the exit status."""
    named = [
        line.strip()
        for line in log.read_text("utf-8", "replace").splitlines()
        if not line.startswith((" ", "\t")) and ("Error: " in line or "Exception: " in line)
    ]
    return named[-1][:300] if named else f"it ended with status {status}"


def _read(parquet: Path) -> tuple[Counter[str], int]:
    """The counts that were written, and of how many records."""
    from pyarrow import parquet as files

    read = cast("Any", files).read_table  # pyarrow is typed in part
    table: dict[str, list[Any]] = read(parquet).to_pydict()
    return Counter(dict(zip(table["word"], table["count"], strict=True))), sum(table["records"])
