"""The end screen and the figures: what they hold, at any width, in any encoding."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from kafka_async.cli import screen
from kafka_async.cli.demo.report import Report
from kafka_async.cli.demo.result import Plan, Result, Stage
from kafka_async.cli.demo.text import compare


def result(found: dict[str, int]) -> Result:
    expected = {"the": 4585, "äpfel": 12, "of": 1}
    made = Result(
        run_id="0123abcd",
        seed=7,
        backend="embedded",
        topics={"lines": "lines", "word-counts": "word-counts", "top-words": "top-words"},
        lines=8716,
        comparison=compare(expected, found),
        counts=Counter(found),
        aborted_transactions=1,
        killed_workers=1,
        rebalances=4,
        spark="run",
    )
    made.stages = [Stage("count words in transactions", 2.0, 8716), Stage("settle", 0.0)]
    made.wrote = [Path("out/word-counts.parquet")]
    return made


GOOD = {"the": 4585, "äpfel": 12, "of": 1}


def plan(bootstrap: str | None = None, *, keep: bool = False) -> Plan:
    return Plan([], bootstrap, Path("out"), keep, with_spark=True, seed=7, patience=15)


def shown(
    monkeypatch: pytest.MonkeyPatch,
    made: Result,
    asked: Plan,
    *,
    width: int = 80,
    encoding: str = "utf-8",
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding, errors="backslashreplace", newline="\n")
    monkeypatch.setattr(screen, "out", Console(file=file, width=width, highlight=False))
    Report.show(made, asked)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [80, 40])
def test_no_line_of_tables_and_chart_is_too_long(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = shown(monkeypatch, result(GOOD), plan(), width=width).splitlines()
    starts = ("a plain", "1 worker", "next", "wrote")
    sentences = [line for line in lines if line.startswith(starts)]
    assert len(sentences) == 4
    assert max(len(line) for line in lines if line not in sentences) <= width


def test_at_80_columns_no_line_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, result(GOOD), plan()).splitlines()
    assert max(map(len, lines)) <= 80


def test_stages_words_and_both_counts_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(monkeypatch, result(GOOD), plan())
    rows = [line.split() for line in out.splitlines()]
    assert ["count", "words", "in", "transactions", "8,716", "2.00", "4,358"] in rows
    assert ["settle", "0.00"] in rows
    assert ["the", "█" * 44, "4,585"] in rows
    assert ["of", "█", "1"] in rows
    assert "a plain count finds 4,598 words, transactions 4,598: equal" in out
    assert "lost 0, counted twice 0" in out
    assert "1 worker killed, 1 transaction aborted, 4 rebalances of the group" in out
    assert "wrote out/word-counts.parquet" in out


def test_counts_that_differ_are_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(monkeypatch, result({"the": 4584, "of": 3, "äpfel": 12}), plan())
    assert "transactions 4,599: DIFFERENT" in out
    assert "lost 1, counted twice 2" in out


def test_without_unicode_it_is_all_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(monkeypatch, result(GOOD), plan(), encoding="ascii")
    assert out.isascii()
    assert "#" * 44 in out
    assert "\\xe4pfel" in out


def test_a_text_without_words_has_an_empty_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    made = result({})
    made.comparison = compare({}, {})
    assert "0 words, transactions 0: equal" in shown(monkeypatch, made, plan())


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (plan(), "kafka-async demo --bootstrap HOST:PORT"),
        (plan("broker:9092"), "--keep"),
        (
            plan("broker:9092", keep=True),
            "kafka-async consume top-words --bootstrap broker:9092 --offset beginning --exit",
        ),
    ],
)
def test_the_last_line_says_what_to_try_next(
    monkeypatch: pytest.MonkeyPatch, asked: Plan, says: str
) -> None:
    last = shown(monkeypatch, result(GOOD), asked).splitlines()[-1]
    assert last.startswith("next: ")
    assert says in last


def test_the_figures_are_these() -> None:
    figures = json.loads(json.dumps(result(GOOD).as_dict()))
    assert list(figures)[:12] == [
        "lines", "words", "distinct_words", "lost", "duplicated", "aborted_transactions",
        "killed_workers", "rebalances", "seconds", "topics", "backend", "kernel",
    ]  # fmt: skip
    assert figures["lines"] == 8716
    assert figures["words"] == 4598
    assert figures["distinct_words"] == 3
    assert figures["lost"] == figures["duplicated"] == 0
    assert figures["seconds"] == {"count words in transactions": 2.0, "settle": 0.0}
    assert figures["kernel"] in ("c", "python")
    assert (figures["backend"], figures["spark"], figures["seed"]) == ("embedded", "run", 7)
