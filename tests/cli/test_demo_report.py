"""The summary of the demo at any width and in any encoding, and the figures in JSON."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from kafka_async.cli import terminal
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.demo.report import Report
from kafka_async.cli.demo.result import DemoOptions, Result, Stage
from kafka_async.cli.demo.words import compare


def make_result(found: dict[str, int]) -> Result:
    expected = {"the": 4585, "äpfel": 12, "of": 1}
    result = Result(
        run_id="0123abcd",
        seed=7,
        backend="embedded",
        topics={"lines": "lines", "word-counts": "word-counts", "word-totals": "word-totals"},
        lines=8716,
        comparison=compare(expected, found),
        counts=Counter(found),
        aborted_transactions=1,
        killed_workers=1,
        rebalances=4,
        spark="run",
    )
    result.stages = [Stage("count words in transactions", 2.0, 8716), Stage("wait", 0.0)]
    result.written_files = [Path("out/word-totals.toml")]
    return result


EQUAL_COUNTS = {"the": 4585, "äpfel": 12, "of": 1}


def make_plan(bootstrap: str | None = None, *, keep: bool = False) -> DemoOptions:
    connection = ConnectionOptions(
        {} if bootstrap is None else {"bootstrap_servers": bootstrap}, 15
    )
    return DemoOptions([], connection, Path("out"), keep, with_spark=True, seed=7)


def summary(
    monkeypatch: pytest.MonkeyPatch,
    result: Result,
    plan: DemoOptions,
    *,
    width: int = 80,
    encoding: str = "utf-8",
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding, errors="backslashreplace", newline="\n")
    monkeypatch.setattr(terminal, "out", Console(file=file, width=width, highlight=False))
    Report.print_summary(result, plan)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [80, 40])
def test_tables_and_chart_fit_the_width(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    result = make_result(EQUAL_COUNTS)
    lines = summary(monkeypatch, result, make_plan(), width=width).splitlines()
    starts = ("a plain", "1 worker", "next", "wrote")
    sentences = [line for line in lines if line.startswith(starts)]
    assert len(sentences) == 4
    assert max(len(line) for line in lines if line not in sentences) <= width


def test_all_lines_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = summary(monkeypatch, make_result(EQUAL_COUNTS), make_plan()).splitlines()
    assert max(map(len, lines)) <= 80


def test_shows_stages_words_and_both_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    out = summary(monkeypatch, make_result(EQUAL_COUNTS), make_plan())
    rows = [line.split() for line in out.splitlines()]
    assert ["count", "words", "in", "transactions", "8,716", "2.00", "4,358"] in rows
    assert ["wait", "0.00"] in rows
    assert ["the", "█" * 44, "4,585"] in rows
    assert ["of", "█", "1"] in rows
    assert "a plain count finds 4,598 words, transactions 4,598: equal" in out
    assert "lost 0, counted twice 0" in out
    assert "1 worker killed, 1 transaction aborted, 4 rebalances of the group" in out
    assert "wrote out/word-totals.toml" in out


def test_shows_different_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    result = make_result({"the": 4584, "of": 3, "äpfel": 12})
    out = summary(monkeypatch, result, make_plan())
    assert "transactions 4,599: DIFFERENT" in out
    assert "lost 1, counted twice 2" in out


def test_uses_only_ascii_without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    out = summary(monkeypatch, make_result(EQUAL_COUNTS), make_plan(), encoding="ascii")
    assert out.isascii()
    assert "#" * 44 in out
    assert "\\xe4pfel" in out


def test_chart_of_a_text_without_words_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    result = make_result({})
    result.comparison = compare({}, {})
    assert "0 words, transactions 0: equal" in summary(monkeypatch, result, make_plan())


@pytest.mark.parametrize(
    ("plan", "hint"),
    [
        (make_plan(), "kafka-async demo --bootstrap HOST:PORT"),
        (make_plan("broker:9092"), "--keep"),
        (
            make_plan("broker:9092", keep=True),
            "kafka-async consume word-totals --bootstrap broker:9092 --offset beginning --exit",
        ),
    ],
)
def test_last_line_suggests_the_next_step(
    monkeypatch: pytest.MonkeyPatch, plan: DemoOptions, hint: str
) -> None:
    last = summary(monkeypatch, make_result(EQUAL_COUNTS), plan).splitlines()[-1]
    assert last.startswith("next: ")
    assert hint in last


def test_figures_in_json() -> None:
    figures = json.loads(json.dumps(make_result(EQUAL_COUNTS).as_dict()))
    assert list(figures)[:13] == [
        "lines", "words", "distinct_words", "lost", "duplicated", "aborted_transactions",
        "killed_workers", "rebalances", "batches", "seconds", "topics", "backend", "kernel",
    ]  # fmt: skip
    assert figures["lines"] == 8716
    assert figures["words"] == 4598
    assert figures["distinct_words"] == 3
    assert figures["lost"] == figures["duplicated"] == 0
    assert figures["seconds"] == {"count words in transactions": 2.0, "wait": 0.0}
    assert figures["kernel"] in ("c", "python")
    assert (figures["backend"], figures["spark"], figures["seed"]) == ("embedded", "run", 7)
