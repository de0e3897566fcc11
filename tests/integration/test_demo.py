"""The demo, as a newcomer runs it: on every kind of cluster, with Spark and without."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin
from tests.cli.programs import Program, command_of

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

FIGURES = {
    "lines", "words", "distinct_words", "lost", "duplicated", "aborted_transactions",
    "killed_workers", "rebalances", "seconds", "topics", "backend", "kernel", "spark", "seed",
}  # fmt: skip
LIMIT = 240


def finished(program: Program, figures: Path) -> tuple[dict[str, Any], str]:
    """Wait for the end of a run that must be right; its figures, and its end screen."""
    status, out, err = program.end(within=LIMIT)
    assert status == 0, f"{err}\n{out}"
    assert program.left() == []
    found = json.loads(figures.read_text())
    assert found.keys() == FIGURES
    assert (found["lost"], found["duplicated"]) == (0, 0)
    return found, out


def topics_and_groups(servers: str) -> list[str]:
    async def ask() -> list[str]:
        async with Admin(servers) as admin:
            return sorted([*await admin.list_topics(), *await admin.list_groups()])

    return asyncio.run(ask())


def delete_topics(servers: str, topics: list[str]) -> None:
    async def delete() -> None:
        async with Admin(servers) as admin:
            await admin.delete_topics(topics)

    asyncio.run(delete())


def test_it_counts_right_and_removes_what_it_made_unless_told_to_keep_it(
    kafka_cluster: ClusterHandle, tmp_path: Path
) -> None:
    """Two at once: the whole text, and a small one to be kept."""
    servers = kafka_cluster.bootstrap_servers
    text, removed, kept = (tmp_path / name for name in ("text", "removed.json", "kept.json"))
    text.write_text("to be or not to be\n" * 20)
    options = ["--no-spark", "--bootstrap", servers, "--json"]
    with (
        Program("demo", *options, str(removed)) as first,
        Program("demo", str(text), "--keep", *options, str(kept)) as second,
    ):
        all_of_it, out = finished(first, removed)
        small, out_of_kept = finished(second, kept)
    try:
        check_figures(all_of_it, servers)
        assert f"a plain count finds {all_of_it['words']:,} words" in out
        names = "\n".join([*topics_and_groups(servers)])
        assert run_id(all_of_it) not in names
        assert names.count(run_id(small)) == 4  # three topics and a group
        check_top_words(small["topics"]["top-words"], out_of_kept)
    finally:
        delete_topics(servers, list(small["topics"].values()))


def check_figures(found: dict[str, Any], servers: str) -> None:
    assert found["lines"] > 5_000
    assert found["words"] > 50_000
    assert found["killed_workers"] == 1
    assert found["aborted_transactions"] >= 1
    assert found["rebalances"] >= 2
    assert found["backend"] == servers
    assert "left out: --no-spark" in found["spark"]


def run_id(found: dict[str, Any]) -> str:
    (word,) = {name.removeprefix(f"{key}-") for key, name in found["topics"].items()}
    return word


def check_top_words(topic: str, out: str) -> None:
    """The last line of the screen is a command that shows them."""
    words = out.splitlines()[-1].removeprefix("next: kafka-async ").split()
    assert words[:2] == ["consume", topic]
    with Program(*words) as reader:
        status, records, _ = reader.end()
    assert status == 0
    rows = [json.loads(line) for line in records.splitlines()]
    expected = {"to": "40", "be": "40", "or": "20", "not": "20"}
    assert {row["key"]: row["value"] for row in rows} == expected


def test_ctrl_c_leaves_nothing_on_the_cluster(kafka_cluster: ClusterHandle) -> None:
    servers = kafka_cluster.bootstrap_servers
    before = topics_and_groups(servers)
    with Program("demo", "--no-spark", "--bootstrap", servers) as program:
        program.wait_for("is killed")
        program.signal(signal.SIGINT)
        status, _, err = program.end(within=LIMIT)
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
def test_small_texts_are_counted_too(tmp_path: Path) -> None:
    """All at once, since they mostly wait for the killed worker's session to end."""
    running: dict[str, Program] = {}
    try:
        for name, text in TEXTS.items():
            (tmp_path / name).write_text(text)
            figures = str(tmp_path / f"{name}.json")
            running[name] = Program(
                "demo", str(tmp_path / name), "--no-spark", "--json", figures, "--seed", "1"
            )
        for name, program in running.items():
            found, _ = finished(program, tmp_path / f"{name}.json")
            assert found["lines"] == TEXTS[name].count("\n"), name
            if found["lines"] >= 10:
                assert found["killed_workers"] == 1, name
                assert found["aborted_transactions"] >= 1, name
    finally:
        for program in running.values():
            program.__exit__()


@pytest.mark.spark
def test_with_spark_it_counts_right_and_writes_parquet(tmp_path: Path) -> None:
    figures, out = tmp_path / "figures.json", tmp_path / "out"
    with Program("demo", "--json", str(figures), "--out", str(out)) as program:
        found, screen = finished(program, figures)
    (directory,) = out.iterdir()
    assert sorted(path.name for path in directory.iterdir()) == ["spark.log", "word-counts.parquet"]
    assert f"wrote {directory / 'word-counts.parquet'}" in screen.replace("\n", "")
    assert found["spark"] == "run"
    assert "read and aggregate in Spark" in found["seconds"]
    assert "WARN" not in screen


@pytest.mark.slow
@pytest.mark.spark
def test_spark_ends_with_the_demo(tmp_path: Path) -> None:
    """By Ctrl-C and by kill -9; both at once, since most of it is waiting."""
    with (
        Program("demo", "--out", str(tmp_path / "1")) as interrupted,
        Program("demo", "--out", str(tmp_path / "2")) as killed,
    ):
        for program in (interrupted, killed):
            program.wait_for("Spark has started")
            assert any("java" in command_of(pid) for pid in program.running())
        interrupted.signal(signal.SIGINT)
        killed.process.kill()
        assert interrupted.end(within=LIMIT)[0] == 130
        assert killed.end(within=LIMIT)[0] == -signal.SIGKILL
        assert interrupted.left() == []
        assert killed.left() == []


@pytest.mark.slow
@pytest.mark.spark
def test_a_spark_that_does_not_start_is_told_in_one_line(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("to be or not to be\n")
    words = {"PYSPARK_SUBMIT_ARGS": "--no-such-option pyspark-shell"}
    with Program("demo", str(text), "--out", str(tmp_path), environment=words) as program:
        status, _, err = program.end(within=LIMIT)
        assert program.left() == []
    assert status == 1
    line = err.splitlines()[-1]
    assert line.startswith("error: the Spark job failed: ")
    assert "JAVA_GATEWAY_EXITED" in line
    assert "spark.log" in line
    assert "Traceback" not in err


@pytest.mark.slow
def test_without_a_java_that_will_do_the_counts_are_right_all_the_same(tmp_path: Path) -> None:
    """None, and one that is too old; both at once."""
    text = tmp_path / "text"
    text.write_text("to be or not to be\n" * 20)
    java = tmp_path / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    says = "import sys; sys.stderr.write('openjdk version \"11.0.2\"')"
    java.write_text(f"#!{sys.executable}\n{says}\n")
    java.chmod(0o755)
    nowhere = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    arguments = ["demo", str(text), "--out", str(tmp_path / "out"), "--json"]
    with (
        Program(*arguments, str(tmp_path / "1"), environment=nowhere) as without,
        Program(
            *arguments, str(tmp_path / "2"), environment={"JAVA_HOME": str(tmp_path / "old")}
        ) as old,
    ):
        found, out = finished(without, tmp_path / "1")
        found_with_old, _ = finished(old, tmp_path / "2")
    assert found["spark"].startswith("left out: install Java 17 or newer")
    assert "install Java 17 or newer" in out
    assert f"{java} is 11" in found_with_old["spark"]
