"""Aggregation of runs, and the page of results."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from benchmarks import chart, result_files
from benchmarks.clients import OURS, RAW
from benchmarks.peers.task import Figures
from benchmarks.report import Row, Sample, Spread, rows
from benchmarks.result_files import Results, collect, markdown
from benchmarks.rounds import CHECK, Run, RunLog
from benchmarks.special import results as special
from benchmarks.targets import DEFAULT_TARGETS
from tests.benchmarks.planted_runs import CASE, runs, trips


def test_ratio_compares_medians() -> None:
    ours, theirs = rows([*runs("aiokafka", [4.0, 8.0, 8.0]), *runs(OURS, [1.0, 2.0, 4.0])])
    assert ours.rate == Spread(4_000, 2_000, 8_000)
    assert (ours.ratio, theirs.ratio) == (1.0, 4.0)
    assert theirs.cpu_us == Spread(500, 250, 500)
    assert (theirs.rounds, theirs.records) == (3, 8_000)
    assert theirs.samples == {
        1: Sample(2_000, 250),
        2: Sample(1_000, 500),
        3: Sample(1_000, 500),
    }


def test_limit_is_raw_socket_of_same_case() -> None:
    both = [*runs(OURS, [2.0]), *runs(RAW, [1.0], way="send_batch")]
    assert [row.of_limit for row in rows(both)] == [0.5, 1.0]
    assert [row.of_limit for row in rows(runs(OURS, [2.0]))] == [None]


def test_ratio_of_latencies_is_inverse() -> None:
    ours, theirs = rows([*trips(OURS, [100.0, 120.0, 500.0]), *trips("aiokafka", [240.0])])
    assert ours.latency["p50"] == Spread(120.0, 100.0, 500.0)
    assert theirs.ratio == 2.0


def test_ignores_checks_and_failures() -> None:
    check = Run("consume-100", OURS, "poll", CHECK, Figures(9.0, 9.0, 8_000, checksum=1))
    failed = Run("consume-100", OURS, "poll", 2, error="it broke")
    [row] = rows([check, *runs(OURS, [2.0], way="poll", case="consume-100"), failed])
    assert row.rate == Spread(4_000, 4_000, 4_000)


IDLE = special.Result(
    "idle",
    "idle, 3 brokers",
    "theirs over ours",
    [special.Row("kafka_async", 0.01, 0.01, 0.02, "%", 1.0, what="producer")],
    [special.Goal("a producer", 0.01, 0.02, "%", low=0.01, high=0.03)],
).plain()


@pytest.fixture
def report(tmp_path: Path) -> Results:
    context = {"cores": "2", "system": "Debian", "broker": "Apache Kafka 4.4.0", "Python": "3.11.7"}
    run_log = RunLog(tmp_path / "runs.jsonl", context, resume=False)
    for run in [
        *runs(OURS, [1.0, 2.0]),
        *runs("aiokafka", [8.0]),
        *runs("confluent", [1.9]),
        *runs(RAW, [0.5], way="send_batch"),
        *trips(OURS, [110.0]),
        Run(CASE, "kafka_python", "enqueue", 1, error="exit code 1: it\nbroke"),
    ]:
        run_log.add(run)
    run_log.add_special("idle", IDLE)
    run_log.add_special("memory", {"case": "memory", "error": "it took longer than 300 s"})
    return collect(run_log, {"Java tool": "install Java 17 or newer"}, tuned=True)


def test_page_names_missing_clients_and_failed_runs(report: Results) -> None:
    page = markdown(report)
    assert "- Java tool: install Java 17 or newer\n" in page
    assert "- kafka-python enqueue in produce 100 B: exit code 1: it broke\n" in page
    assert "- memory: it took longer than 300 s\n" in page


def test_page_has_verdict_of_each_target(report: Results) -> None:
    lines = [
        line
        for line in markdown(report).splitlines()
        if "| produce 100 B, enq" in line and "x | " in line
    ]
    assert [line.split(" | ")[-1] for line in lines] == [
        "open |",
        "open |",
        "not met, one round |",
        "not met, one round |",
    ]
    assert (
        "| idle, 3 brokers | a producer |  |  | 0.01 % | (0.01 - 0.03) | at most 0.02 % | "
        "met, within noise |\n"
    ) in markdown(report)


def test_special_cases_without_result_are_open(report: Results) -> None:
    page = markdown(report)
    assert (
        "| peak memory at full speed |  |  |  | failed |  | at most 40 MB and the budgets | open |"
    ) in page
    assert "| 5,000 topics produced to |  |  |  | not measured |  | half the speed of " in page


def test_partial_run_has_only_outcomes_of_selected_cases(tmp_path: Path) -> None:
    run_log = RunLog(tmp_path / "runs.jsonl", {"cores": "2", "system": "Debian"}, resume=False)
    for run in [*runs(OURS, [1.0]), *runs("aiokafka", [8.0])]:
        run_log.add(run)
    part = collect(run_log, {}, tuned=True, selected=[CASE, "idle"])
    assert {one.what for one in part.outcomes} == {
        "produce 100 B, enqueue",
        "produce 100 B",
        "idle, 3 brokers",
    }
    assert part.achievements == []


def test_page_compares_with_expected_figures(report: Results) -> None:
    page = markdown(report)
    _, _, table = page.partition("### Expected on a quiet machine\n")
    assert (
        "| produce 100 B, enqueue | 1,000,000 records/s | 6,000 records/s | 4,000 - 8,000 | "
        "not reached |\n"
    ) in table
    assert "| to_arrow() | 5,000,000 records/s | not measured |  | open |\n" in table
    assert "| 10,000 partitions of metadata | 60 ms | not measured |  | open |\n" in table


@pytest.mark.parametrize(
    ("operations", "cells"),
    [(20, "110 | - | -"), (100, "110 | 220 | -"), (1_000, "110 | 220 | 330")],
)
def test_page_omits_percentiles_of_too_few_operations(
    operations: int, cells: str, tmp_path: Path
) -> None:
    run_log = RunLog(tmp_path / "runs.jsonl", {"cores": "2", "system": "Debian"}, resume=False)
    for run in trips(OURS, [110.0], operations):
        run_log.add(run)
    page = markdown(collect(run_log, {}, tuned=True))
    assert f"| kafka_async | {cells} | 110 - 110 | 1.00 |" in page


def test_page_has_line_per_contender_and_options_once(report: Results) -> None:
    page = markdown(report)
    assert (
        "| kafka_async | enqueue | 6,000 | 4,000 - 8,000 | 1.00 | 38% | 93.75 | 0 | 8,000 x 2 |"
    ) in page
    assert "| kafka_async | 110 | 220 | - | 110 - 110 | 1.00 |" in page
    assert "- kafka_async: linger_ms=5 (produce-100)\n" in page
    assert "2 cores, Debian, broker Apache Kafka 4.4.0, Python 3.11.7." in page


def test_clients_with_defaults_have_separate_targets(report: Results, tmp_path: Path) -> None:
    run_log = RunLog(tmp_path / "runs.jsonl", dict(report.context), resume=True)
    page = markdown(collect(run_log, {}, tuned=False))
    reached = {target.case for target in DEFAULT_TARGETS}
    assert reached == {"lone-send", "send-concurrent"}
    assert page.count("| a lone await send(), p50 |") == 2
    assert "produce 100 B, enqueue | Java tool" not in page
    assert "### Without a target: beside the best of the other clients" in page
    assert "### Expected on a quiet machine" in page
    assert "at its defaults, acks=all; 2 rounds at most." in page
    lines = [line for line in page.splitlines() if line.startswith("| produce 100 B |")]
    assert [line.split(" | ")[-2:] for line in lines] == [["no target", "ahead, one round |"]]


def test_page_has_reason_of_each_row_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "REASONS", {"send-concurrent": "each record waits"})
    run_log = RunLog(tmp_path / "runs.jsonl", {"cores": "2", "system": "Debian"}, resume=False)
    measured = [
        *runs(OURS, [2.0], case="send-concurrent", way="send"),
        *runs("aiokafka", [1.0], case="send-concurrent", way="send"),
        *runs(OURS, [2.0], case="produce-1k"),
        *runs("aiokafka", [1.0], case="produce-1k"),
    ]
    for run in measured:
        run_log.add(run)
    page = markdown(collect(run_log, {}, tuned=False))
    assert "Behind, because:" in page
    assert "- 1,000 concurrent await send(), 100 B: each record waits\n" in page
    assert "- produce 1 KiB: no reason is stated" in page
    assert "Behind" not in markdown(collect(run_log, {}, tuned=True))


def test_writes_json_page_and_chart(report: Results, tmp_path: Path) -> None:
    result_files.write(report, "bench", tmp_path / "results")
    document = json.loads((tmp_path / "results" / "bench.json").read_text())
    assert document["rows"][0]["rate"] == {"median": 6_000, "low": 4_000, "high": 8_000}
    assert (tmp_path / "results" / "bench.md").read_text() == markdown(report)
    picture = (tmp_path / "results" / "bench.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert 1_200 <= width <= 1_600
    assert 300 <= height <= 1_600
    assert len(picture) > 20_000


def test_writes_no_chart_without_rows(tmp_path: Path) -> None:
    unseen: list[Row] = rows(runs(OURS, [1.0], case="produce-100-zstd"))
    assert unseen
    assert not chart.draw(unseen, "a machine", tmp_path / "bench.png")
    assert not (tmp_path / "bench.png").exists()
