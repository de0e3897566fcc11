"""The command pipeline, without Spark: its checks, its status and its errors."""

from __future__ import annotations

import io
import os
import re
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kafka_async.cli import pipeline, terminal
from kafka_async.spark.pipeline import Pipeline, PipelineStatus, QueryStatus
from kafka_async.spark.pipeline.definition import define, parse
from kafka_async.spark.pipeline.status import combined_state
from kafka_async.spark.pipeline.status_file import write_status
from tests.cli.conftest import call
from tests.docs.markdown_blocks import PAGES, ROOT, blocks_of
from tests.rows import row

if TYPE_CHECKING:
    from rich.table import Table

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


TOPIC = QueryStatus("topic", "running", 7, 1200, 400.0, 0.25, 12_345, 67_890, 4_560_000)
PARQUET = QueryStatus("parquet")
HEADINGS = [
    ["batch", "state", "state"],
    ["sink", "state", "batch", "rows", "rows/s", "lag", "time", "rows", "MB"],
]
TOPIC_CELLS = ["topic", "running", "7", "1,200", "400", "12,345", "0.25 s", "67,890", "4.6"]
PARQUET_CELLS = ["parquet", "starting", "-", "0", "-", "-", "-", "0", "0.0"]


def status_of(*queries: QueryStatus) -> PipelineStatus:
    return PipelineStatus("copy", combined_state(queries), 42, 1.0, 3662.0, queries)


def console_of(written: io.StringIO, width: int, *, is_terminal: bool = True) -> Console:
    return Console(
        file=written, width=width, force_terminal=is_terminal, color_system=None, highlight=False
    )


def cells(shown: Table, width: int = 80) -> list[list[str]]:
    """Return the cells of each line of a screen, which are at least two spaces apart."""
    written = io.StringIO()
    console_of(written, width).print(shown)
    return cells_of(written.getvalue())


def cells_of(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("width", [80, 200])
def test_screen_shows_all_figures_of_each_query(width: int) -> None:
    title, *headings, _, topic, parquet = cells(pipeline.screen(status_of(TOPIC, PARQUET)), width)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1.0))
    assert title == [f"copy: starting, process 42, 1:01:01 since {since}"]
    assert headings == HEADINGS
    assert topic == TOPIC_CELLS
    assert parquet == PARQUET_CELLS


def test_screen_shows_the_error_of_a_query() -> None:
    failed = QueryStatus("parquet", "failed", error="[broker] is gone")
    title, *_, topic, parquet, error = cells(pipeline.screen(status_of(TOPIC, failed)))
    assert title[0].startswith("copy: failed, ")
    assert topic == TOPIC_CELLS
    assert parquet == ["parquet", "failed", *PARQUET_CELLS[2:]]
    assert error == ["[broker] is gone"]


def test_narrow_screen_breaks_names_and_cuts_no_figure() -> None:
    name = "all-words"
    busy = QueryStatus(name, "running", 1234, 12_345_678, 123_456.0, 12.5, 98_765, 654_321, 10**8)
    lines = cells(pipeline.screen(status_of(busy)))[1 + len(HEADINGS) + 1 :]
    figures = ["1234", "12,345,678", "123,456", "98,765", "12.50 s", "654,321", "100.0"]
    assert lines[0][1:] == ["running", *figures]
    assert len(lines) > 1
    assert "".join(line[0] for line in lines) == name


ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LINE_REMOVED = "\x1b[1A\x1b[2K"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Replace standard error by a terminal; return what it gets."""
    written = io.StringIO()
    monkeypatch.setattr(terminal, "err", console_of(written, 80))
    return written


def copy_to_parquet(file: Path) -> Pipeline:
    text = COPY.replace('name = "copy"', 'name = "copy"\ncheckpoint = "checkpoint"')
    text = text.replace('kind = "console"', 'kind = "parquet"\npath = "words"')
    file.write_text(text, "utf-8")
    return Pipeline.from_toml(file)


def test_terminal_shows_the_last_status_and_removes_it_at_the_end(
    file: Path, written: io.StringIO
) -> None:
    with pipeline.status_display(copy_to_parquet(file)) as show:
        assert "starting Spark" in written.getvalue()
        show(status_of(PARQUET))
        show(status_of(TOPIC))
    last = written.getvalue().rpartition("copy: running, ")[2]
    screen, _, removed = last.rpartition("\n")
    lines = cells_of(ESCAPE_SEQUENCE.sub("", screen))
    assert lines[1:3] == HEADINGS
    assert lines[4] == TOPIC_CELLS
    assert lines[5] == ["Ctrl-C stops it; Spark's log:"]
    assert "".join(line[0] for line in lines[6:]) == str(
        file.parent / "state" / "kafka-async" / "pipelines" / "copy.log"
    )
    assert removed.count(LINE_REMOVED) == screen.count("\n") + 1


def test_terminal_shows_lines_beside_the_rows_of_a_console_sink(
    file: Path, written: io.StringIO
) -> None:
    with pipeline.status_display(Pipeline.from_toml(file)) as show:
        show(status_of(PARQUET))
        show(status_of(TOPIC))
        show(status_of(TOPIC))
        show(status_of(replace(TOPIC, state="stopped")))
    figures = "batch 7, 1,200 rows, 400 rows/s, lag 12,345, 0.25 s"
    assert written.getvalue().splitlines() == [
        "parquet: starting",
        f"topic: running, {figures}",
        f"topic: stopped, {figures}",
    ]


def test_log_has_lines_without_a_terminal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(terminal, "err", console_of(written, 80, is_terminal=False))
    with pipeline.status_display(copy_to_parquet(file)) as show:
        show(status_of(PARQUET))
    assert written.getvalue() == "parquet: starting\n"


def test_watches_a_pipeline_until_its_end(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = replace(TOPIC, state="stopped", rows=3400)
    reported = iter([status_of(PARQUET), status_of(TOPIC), status_of(stopped)])
    monkeypatch.setattr(pipeline, "WATCH_INTERVAL", 0)

    def read(_: Pipeline) -> PipelineStatus:
        return next(reported)

    monkeypatch.setattr(Pipeline, "status", read)
    written = io.StringIO()
    monkeypatch.setattr(terminal, "out", console_of(written, 80))
    assert call("pipeline", "status", str(file), "--watch").status == 0
    screens = ESCAPE_SEQUENCE.sub("", written.getvalue()).split("copy: ")[1:]
    assert [cells_of(screen)[4] for screen in screens[:3]] == [
        PARQUET_CELLS,
        TOPIC_CELLS,
        ["topic", "stopped", "7", "3,400", *TOPIC_CELLS[4:]],
    ]


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


def test_definitions_in_the_documentation_are_valid() -> None:
    for page in PAGES:
        with row(page):
            for block in blocks_of(page):
                if block.language == "toml":
                    definition = define(parse(tomllib.loads(block.body)))
                    Pipeline(**vars(definition)).validate()


def test_example_is_valid() -> None:
    Pipeline.from_toml(ROOT / "examples" / "word_count.toml").validate()
