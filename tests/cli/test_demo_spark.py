"""The requirements of the Spark job, and the reason of a failure."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kafka_async.cli.demo import spark
from kafka_async.cli.demo.spark_job import pipeline_file
from kafka_async.spark.pipeline import Pipeline
from kafka_async.testing.backends import jvm
from kafka_async.testing.backends.base import BackendUnavailableError


def without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", never)


def never(name: str) -> object:
    return None


def always(name: str) -> object:
    return name


def with_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "find_java", lambda: jvm.Java("java", "17"))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (BackendUnavailableError("install Java 17 or newer: java is 11"), "java is 11"),
        (PermissionError(13, "Permission denied", "java"), "Java does not run: "),
    ],
)
def test_unusable_java_is_reported_before_missing_pyspark(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def find() -> None:
        raise error

    monkeypatch.setattr(jvm, "find_java", find)
    without_pyspark(monkeypatch)
    missing = spark.missing_requirement()
    assert missing is not None
    assert message in missing


def test_missing_pyspark_is_reported_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_java(monkeypatch)
    without_pyspark(monkeypatch)
    missing = spark.missing_requirement()
    assert missing is not None
    assert "the extra spark: pip install '.[spark]' in a checkout" in missing


def test_reports_no_missing_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    with_java(monkeypatch)
    monkeypatch.setattr(importlib.util, "find_spec", always)
    assert spark.missing_requirement() is None


@pytest.mark.parametrize(
    ("log", "reason"),
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
def test_failure_reason_is_the_last_error_of_the_log(tmp_path: Path, log: str, reason: str) -> None:
    path = tmp_path / "spark.log"
    path.write_text(log)
    assert spark.failure_reason(path, 3) == reason


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("started", "Spark has started, 5.2 s"),
        ("batch", "Spark has summed 1,234 counts, batch 3"),
        ("stopped", "the stream is interrupted, and started again from its checkpoint"),
        ("ended", "Spark has read all counts"),
    ],
)
def test_events_of_the_job_are_shown(kind: str, message: str) -> None:
    assert spark.SparkEvent(kind, 5.2, 3, 1234).describe() == message


def test_pipeline_of_the_job_is_valid(tmp_path: Path) -> None:
    job = spark.SparkJob("totals", "counts", "word-totals", 'a "ledger"', str(tmp_path))
    file = tmp_path / "pipeline.toml"
    file.write_text(pipeline_file(job, {"kafka.bootstrap.servers": "localhost:9092"}))
    pipeline = Pipeline.from_toml(file)
    pipeline.validate()
    (sink,) = pipeline.definition.sinks
    options = pipeline.definition.sink_options(sink)
    assert options["sinkId"] == "totals.topic"
    assert options["ledgerTopic"] == 'a "ledger"'
    assert pipeline.definition.checkpoint == f"{tmp_path}/checkpoint"
