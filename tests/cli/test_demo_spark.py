"""Whether Spark can run here, how pyspark is installed, and what a failed job is blamed on."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_async.cli.demo import spark
from kafka_async.cli.demo.result import Result
from kafka_async.testing.backends import jvm
from kafka_async.testing.backends.base import BackendUnavailableError


class Listener:
    """A teller that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def stage(self, title: str, total: int | None) -> None:
        self.told.append(title)

    def advance(self, done: int) -> None:
        self.told.append(str(done))

    def say(self, line: str) -> None:
        self.told.append(line)

    @contextmanager
    def aside(self) -> Generator[None]:
        self.told.append("(aside")
        yield
        self.told.append(")")


def result() -> Result:
    return Result("0123abcd", seed=1, backend="embedded", topics={}, lines=1)


def without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", never)


def never(name: str) -> object:
    return None


def always(name: str) -> object:
    return name


def with_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "find_java", lambda: jvm.Java("java", "17"))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (BackendUnavailableError("install Java 17 or newer: java is 11"), "java is 11"),
        (PermissionError(13, "Permission denied", "java"), "Java does not run: "),
    ],
)
def test_java_that_will_not_do_comes_before_pyspark(
    monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    def find() -> None:
        raise error

    monkeypatch.setattr(jvm, "find_java", find)
    without_pyspark(monkeypatch)
    lacking = spark.lacking()
    assert lacking is not None
    assert says in lacking


def test_pyspark_that_is_missing_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    with_java(monkeypatch)
    without_pyspark(monkeypatch)
    assert spark.lacking() == "pyspark is missing: pip install pyspark pyarrow"


def test_with_both_nothing_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    with_java(monkeypatch)
    monkeypatch.setattr(importlib.util, "find_spec", always)
    assert spark.lacking() is None


def test_pyspark_is_installed_aside_when_a_command_for_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with_java(monkeypatch)
    without_pyspark(monkeypatch)
    monkeypatch.setenv(spark.INSTALL, "echo from the installer")
    listener = Listener()
    made = result()
    lacking = asyncio.run(spark.make_ready(listener, made))
    assert lacking is not None  # the command has installed nothing
    assert listener.told == [
        "install pyspark", "a download of about 450 MB, once", "(aside", ")"
    ]  # fmt: skip
    assert capfd.readouterr() == ("", "from the installer\n")
    assert [stage.name for stage in made.stages] == ["install pyspark"]


def test_pyspark_is_not_installed_where_it_could_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> None:
        raise BackendUnavailableError("install Java 17 or newer")

    monkeypatch.setattr(jvm, "find_java", find)
    without_pyspark(monkeypatch)
    monkeypatch.setenv(spark.INSTALL, "exit 1")
    listener = Listener()
    lacking = asyncio.run(spark.make_ready(listener, result()))
    assert lacking is not None
    assert lacking.startswith("install Java 17 or newer")
    assert listener.told == []


def test_an_interrupted_installation_ends(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def interrupt() -> None:
        # The command opens the fifo, which lets us go on, and would read it for ever.
        installing = asyncio.create_task(spark.install(f"exec cat {fifo} > /dev/null"))
        writer = await asyncio.to_thread(fifo.open, "wb", 0)
        installing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await installing
        with pytest.raises(BrokenPipeError):
            writer.write(b"nobody reads")
        with writer:
            pass

    asyncio.run(interrupt())


@pytest.mark.parametrize(
    ("log", "blamed"),
    [
        (
            "26/01/01 WARN x\nTraceback:\n  File\nValueError: first\n"
            "pyspark.errors.AnalysisException: [PATH_ALREADY_EXISTS] Path\n\tat java\n",
            "pyspark.errors.AnalysisException: [PATH_ALREADY_EXISTS] Path",
        ),
        ("nothing of the kind\n", "it ended with status 3"),
        ("", "it ended with status 3"),
    ],
)
def test_the_last_error_of_the_log_is_the_cause(tmp_path: Path, log: str, blamed: str) -> None:
    path = tmp_path / "spark.log"
    path.write_text(log)
    assert spark.cause(path, 3) == blamed
