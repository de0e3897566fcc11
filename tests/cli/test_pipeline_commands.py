"""The command pipeline, without Spark: its checks, its status and its errors."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from kafka_async.cli import pipeline, terminal
from kafka_async.spark.pipeline import Pipeline, PipelineStatus, QueryStatus
from kafka_async.spark.pipeline.definition import define, parse
from kafka_async.spark.pipeline.status_file import write_status
from tests.cli.conftest import call
from tests.docs.markdown_blocks import PAGES, ROOT, blocks_of

COPY = """
[pipeline]
name = "copy"

[kafka]
kafka.bootstrap.servers = "localhost:9092"

[[source]]
topics = ["lines"]

[[sink]]
kind = "console"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "copy.toml"
    path.write_text(COPY, "utf-8")
    return path


def report(state: str, process_id: int | None = None) -> None:
    query = QueryStatus(
        "console", "failed" if state == "failed" else "running", 7, 1200, 400.0, 0.25, 12_345
    )
    status = PipelineStatus("copy", "running", process_id or os.getpid(), 1.0, 2.0, (query,))
    write_status(PipelineStatus.from_json(status.to_json().replace('"running"', f'"{state}"', 1)))


def test_validates_a_file_without_spark(file: Path) -> None:
    ended = call("pipeline", "validate", str(file), "--no-spark")
    assert (ended.status, ended.out, ended.err) == (0, "", f"{file}: no errors\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'kind = "console"',
            'kind = "consolee"',
            "[[sink]] 1 kind='consolee': did you mean 'console'",
        ),
        ("[kafka]", '[kafka]\nkafka.retires = "1"', "[[source]] lines: "),
        ("[[sink]]", '[[step]]\npython = "no_module:f"\n[[sink]]', "[[step]] step_1: python="),
        ("[[sink]]", '[[step]]\npython = "os:no_function"\n[[sink]]', "no function no_function"),
        ("[pipeline]", "[pipeline", "copy.toml: "),
    ],
)
def test_error_names_the_place(file: Path, old: str, new: str, message: str) -> None:
    file.write_text(COPY.replace(old, new), "utf-8")
    error = call("pipeline", "validate", str(file), "--no-spark").error
    assert error.startswith(f"error: {file}: ")
    assert message in error


def test_names_a_file_that_does_not_exist(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    error = call("pipeline", "validate", str(missing), "--no-spark").error
    assert error == f"error: {missing}: No such file or directory"


def test_imports_functions_from_the_directory_of_the_file(file: Path) -> None:
    file.with_name("steps_beside.py").write_text("def same(views):\n    return views['lines']\n")
    file.write_text(COPY + '\n[[step]]\npython = "steps_beside:same"\n', "utf-8")
    assert call("pipeline", "validate", str(file), "--no-spark").status == 0
    file.write_text(COPY + '\n[[step]]\npython = "steps_beside:other"\n', "utf-8")
    assert "no function other" in call("pipeline", "validate", str(file), "--no-spark").error


def test_shows_the_status_of_a_running_pipeline(file: Path) -> None:
    report("running")
    ended = call("pipeline", "status", str(file))
    assert ended.status == 0
    assert f"copy: running, process {os.getpid()}" in ended.out
    assert "1,200" in ended.out
    assert "12,345" in ended.out
    assert "0.25 s" in ended.out


@pytest.mark.parametrize("state", ["failed", "ended"])
def test_status_of_a_pipeline_that_failed_is_a_failure(file: Path, state: str) -> None:
    report(state)
    ended = call("pipeline", "status", str(file), "--watch")
    assert ended.status == 1
    assert f"copy: {state}" in ended.out


def test_names_a_pipeline_that_was_never_run(file: Path) -> None:
    error = call("pipeline", "status", str(file)).error
    assert "the pipeline copy has not been run on this machine" in error


def test_reports_a_status_that_cannot_be_read(file: Path) -> None:
    report("running")
    state = next(file.parent.rglob("copy.json"))
    state.write_text("{}", "utf-8")
    assert "not the status of a pipeline" in call("pipeline", "status", str(file)).error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "lines=x"], "--input needs --local"),
        (["--local", "--input", "lines"], "--input lines: write TOPIC=FILE"),
        (["--local", "--input", "lines=/no/such"], "/no/such: no such file"),
    ],
)
def test_refuses_wrong_inputs(file: Path, arguments: list[str], message: str) -> None:
    assert message in call("pipeline", "run", str(file), *arguments).error


def test_screen_shows_each_query_and_the_error() -> None:
    queries = (
        QueryStatus("topic", "failed", error="[broker] is gone"),
        QueryStatus("parquet", "stopped", 3, 30, 10.0, 0.5, None, 2, 2_000_000),
    )
    table = pipeline.screen(PipelineStatus("copy", "failed", 1, 1.0, 2.0, queries))
    assert table.row_count == 2
    assert "\\[broker] is gone" in str(table.caption)


def test_log_of_spark_goes_to_a_file_beside_the_screen(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pipeline.log_file(Pipeline.from_toml(file)) as log:
        os.write(2, b"WARN from another process\n")
        terminal.err.print("a table")
    os.write(2, b"after it\n")
    assert log == file.parent / "state" / "kafka-async" / "pipelines" / "copy.log"
    assert log.read_text() == "WARN from another process\n"
    assert capfd.readouterr().err == "a table\nafter it\n"


def test_local_run_keeps_the_configuration_of_the_file(file: Path) -> None:
    file.write_text(COPY + "\n[spark]\nspark.sql.shuffle.partitions = 9\n", "utf-8")
    local = Pipeline.from_toml(file).with_spark(pipeline.LOCAL_SPARK)
    assert local.definition.spark == {
        "spark.sql.shuffle.partitions": "9",
        "spark.ui.enabled": "false",
    }
    assert local.with_trigger("available-now").definition.trigger == "available-now"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_definitions_in_the_documentation_are_valid(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "toml":
            definition = define(parse(tomllib.loads(block.body)))
            Pipeline(**vars(definition)).validate()


def test_example_is_valid() -> None:
    Pipeline.from_toml(ROOT / "examples" / "word_count.toml").validate()
