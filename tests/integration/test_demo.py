"""The demo as a process, on every kind of cluster, with and without Spark."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.spark.pipeline import Pipeline
from tests.cli.programs import Program, command_of

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

FIGURES = {
    "lines", "words", "distinct_words", "lost", "duplicated", "aborted_transactions",
    "killed_workers", "rebalances", "batches", "seconds", "topics", "backend", "kernel",
    "spark", "seed",
}  # fmt: skip
TIMEOUT = 240
"""Seconds."""
INTERRUPTED = "a demo that is interrupted after its worker was killed runs on Apache Kafka"
WHOLE = "a demo that is not interrupted runs on the embedded cluster"


def wait_for_success(program: Program, path: Path) -> tuple[dict[str, Any], str]:
    """Wait for the end of a run that must succeed; return its figures and its summary."""
    status, out, err = program.end(within=TIMEOUT)
    assert status == 0, f"{err}\n{out}"
    assert program.left() == []
    figures = json.loads(path.read_text())
    assert figures.keys() == FIGURES
    assert (figures["lost"], figures["duplicated"]) == (0, 0)
    return figures, out


def topics_and_groups(servers: str) -> list[str]:
    with blocking.Admin(servers) as admin:
        return sorted([*admin.list_topics(), *admin.list_groups()])


@pytest.mark.mainly_on("embedded", reason=INTERRUPTED)
def test_counts_correctly_and_deletes_its_topics_unless_told_to_keep_them(
    kafka_cluster: ClusterHandle, tmp_path: Path
) -> None:
    """Runs the default text and, with --keep, a small one at the same time."""
    servers = kafka_cluster.bootstrap_servers
    text, deleted, kept = (tmp_path / name for name in ("text", "deleted.json", "kept.json"))
    text.write_text("to be or not to be\n" * 20)
    options = ["--no-spark", "--bootstrap", servers, "--json"]
    with (
        Program("demo", *options, str(deleted)) as first,
        Program("demo", str(text), "--keep", *options, str(kept)) as second,
    ):
        default, out = wait_for_success(first, deleted)
        small, out_of_kept = wait_for_success(second, kept)
    try:
        check_figures(default, servers)
        assert f"a plain count finds {default['words']:,} words" in out
        names = "\n".join(topics_and_groups(servers))
        assert run_id(default) not in names
        assert names.count(run_id(small)) == 4  # Three topics and a group.
        check_totals(small["topics"]["word-totals"], out_of_kept)
    finally:
        with blocking.Admin(servers) as admin:
            admin.delete_topics(small["topics"].values())


def check_figures(figures: dict[str, Any], servers: str) -> None:
    assert figures["lines"] > 5_000
    assert figures["words"] > 50_000
    assert figures["killed_workers"] == 1
    assert figures["aborted_transactions"] >= 1
    assert figures["rebalances"] >= 2
    assert figures["batches"] == 0
    assert figures["backend"] == servers
    assert "left out: --no-spark" in figures["spark"]


def run_id(figures: dict[str, Any]) -> str:
    (suffix,) = {name.removeprefix(f"{key}-") for key, name in figures["topics"].items()}
    return suffix


def check_totals(topic: str, out: str) -> None:
    """Run the command in the last line of the summary, which prints the totals."""
    command = out.splitlines()[-1].removeprefix("next: kafka-async ").split()
    assert command[:2] == ["consume", topic]
    with Program(*command) as reader:
        status, records, _ = reader.end()
    assert status == 0
    rows = [json.loads(line) for line in records.splitlines()]
    expected = {"to": "40", "be": "40", "or": "20", "not": "20"}
    assert {row["key"]: row["value"] for row in rows} == expected


@pytest.mark.mainly_on("apache", reason=WHOLE)
def test_ctrl_c_deletes_topics_and_group(kafka_cluster: ClusterHandle) -> None:
    servers = kafka_cluster.bootstrap_servers
    before = topics_and_groups(servers)
    with Program("demo", "--no-spark", "--bootstrap", servers) as program:
        program.wait_for("is killed")
        program.signal(signal.SIGINT)
        status, _, err = program.end(within=TIMEOUT)
        assert program.left() == []
    assert status == 130, err
    assert err.splitlines()[-1] == "interrupted"
    assert topics_and_groups(servers) == before


TEXTS = {
    "one line": "a single line\n",
    "ten lines": "so few words\n" * 10,
    "a hundred lines": "".join(f"line number {n} of these\n" for n in range(100)),
    "one word": "word\n",
    "no word": "1 2 3\n4 5 6\n",
}


@pytest.mark.slow
def test_counts_small_texts(tmp_path: Path) -> None:
    """Runs them at the same time, since they mostly wait for the killed worker's session."""
    running: dict[str, Program] = {}
    try:
        for name, text in TEXTS.items():
            (tmp_path / name).write_text(text)
            figures = str(tmp_path / f"{name}.json")
            running[name] = Program(
                "demo", str(tmp_path / name), "--no-spark", "--json", figures, "--seed", "1"
            )
        for name, program in running.items():
            result, _ = wait_for_success(program, tmp_path / f"{name}.json")
            assert result["lines"] == TEXTS[name].count("\n"), name
            if result["lines"] >= 10:
                assert result["killed_workers"] == 1, name
                assert result["aborted_transactions"] >= 1, name
    finally:
        for program in running.values():
            program.__exit__()


@pytest.mark.mainly_on("embedded", reason=INTERRUPTED)
@pytest.mark.spark
def test_counts_correctly_in_spark_and_keeps_the_pipeline(
    kafka_cluster: ClusterHandle, tmp_path: Path
) -> None:
    """Runs the default text; the stream in Spark is interrupted, and continued."""
    servers = kafka_cluster.bootstrap_servers
    before = topics_and_groups(servers)
    path, out = tmp_path / "figures.json", tmp_path / "out"
    with Program("demo", "--json", str(path), "--out", str(out), "--bootstrap", servers) as program:
        figures, summary = wait_for_success(program, path)
    (directory,) = out.iterdir()
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["checkpoint", "spark.log", "word-totals.toml"]
    assert f"wrote {directory / 'word-totals.toml'}" in summary.replace("\n", "")
    (source,) = Pipeline.from_toml(directory / "word-totals.toml").definition.sources
    assert source.topics == (figures["topics"]["word-counts"],)
    assert figures["spark"] == "run"
    assert figures["batches"] > 1
    assert figures["killed_workers"] == 1
    assert "finish the stream in Spark" in figures["seconds"]
    assert "WARN" not in summary
    assert topics_and_groups(servers) == before


@pytest.mark.slow
@pytest.mark.spark
def test_spark_ends_with_the_demo(tmp_path: Path) -> None:
    """Ends one run by Ctrl-C and another by kill -9, at the same time."""
    with (
        Program("demo", "--out", str(tmp_path / "1")) as interrupted,
        Program("demo", "--out", str(tmp_path / "2")) as killed,
    ):
        for program in (interrupted, killed):
            program.wait_for("Spark has started")
            assert any("java" in command_of(pid) for pid in program.running())
        interrupted.signal(signal.SIGINT)
        killed.process.kill()
        assert interrupted.end(within=TIMEOUT)[0] == 130
        assert killed.end(within=TIMEOUT)[0] == -signal.SIGKILL
        assert interrupted.left() == []
        assert killed.left() == []


@pytest.mark.slow
@pytest.mark.spark
def test_reports_spark_that_does_not_start_in_one_line(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("to be or not to be\n")
    variables = {"PYSPARK_SUBMIT_ARGS": "--no-such-option pyspark-shell"}
    with Program("demo", str(text), "--out", str(tmp_path), environment=variables) as program:
        status, _, err = program.end(within=TIMEOUT)
        assert program.left() == []
    assert status == 1
    line = err.splitlines()[-1]
    assert line.startswith("error: the Spark job failed: ")
    assert "JAVA_GATEWAY_EXITED" in line
    assert "spark.log" in line
    assert "Traceback" not in err


@pytest.mark.slow
def test_counts_correctly_without_a_suitable_java(tmp_path: Path) -> None:
    """Runs one demo without Java and one with an old Java, at the same time."""
    text = tmp_path / "text"
    text.write_text("to be or not to be\n" * 20)
    java = tmp_path / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    code = "import sys; sys.stderr.write('openjdk version \"11.0.2\"')"
    java.write_text(f"#!{sys.executable}\n{code}\n")
    java.chmod(0o755)
    without_java = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    arguments = ["demo", str(text), "--out", str(tmp_path / "out"), "--json"]
    with (
        Program(*arguments, str(tmp_path / "1"), environment=without_java) as without,
        Program(
            *arguments, str(tmp_path / "2"), environment={"JAVA_HOME": str(tmp_path / "old")}
        ) as old,
    ):
        figures, out = wait_for_success(without, tmp_path / "1")
        figures_with_old, _ = wait_for_success(old, tmp_path / "2")
    assert figures["spark"].startswith("left out: install Java 17 or newer")
    assert "install Java 17 or newer" in out
    assert f"{java} is 11" in figures_with_old["spark"]
