"""Rows, verdicts and the page of results, from given runs."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import page, results
from benchmarks.__main__ import RESULTS
from benchmarks.clients import OURS, RAW
from benchmarks.results import Results, collect
from benchmarks.rows import Row, Sample, Spread, rows_of
from benchmarks.runs import Run, RunLog
from benchmarks.special import results as special
from benchmarks.special.results import Goal, Result
from benchmarks.targets import (
    DEFAULT_TARGETS,
    PYTHON_TARGETS,
    TARGETS,
    Group,
    Target,
    comparisons,
)
from benchmarks.verdicts import Achievement, Outcome, outcomes, special_outcomes, summary
from tests.benchmarks.planted_peer import CASE, runs, trips

CONTEXT = {"cores": "2", "system": "Debian", "broker": "Apache Kafka 4.4.0", "Python": "3.11.7"}
ENQUEUE = "produce 100 B, enqueue"


def outcomes_of(measured: list[Run], what: str, group: Group = Group.MAIN) -> list[Outcome]:
    """Return the outcomes of the targets with a title."""
    reached = outcomes(TARGETS, rows_of(measured))
    return [one for one in reached if (one.what, one.group) == (what, group.value)]


def against_aiokafka(measured: list[Run]) -> Outcome:
    [outcome] = [one for one in outcomes_of(measured, ENQUEUE) if one.against == "aiokafka"]
    return outcome


def log_of(folder: Path, *measured: Run) -> RunLog:
    run_log = RunLog(folder / "runs.jsonl", dict(CONTEXT), resume=False)
    for run in measured:
        run_log.add(run)
    return run_log


# -- rows -----------------------------------------------------------------------------------------


def test_row_has_medians_and_ratio_to_ours() -> None:
    ours, theirs = rows_of([*runs("aiokafka", [4.0, 8.0, 8.0]), *runs(OURS, [1.0, 2.0, 4.0])])
    assert ours.rate == Spread(4_000, 2_000, 8_000)
    assert (ours.ratio, theirs.ratio) == (1.0, 4.0)
    assert theirs.cpu_us == Spread(500, 250, 500)
    assert (theirs.rounds, theirs.records) == (3, 8_000)
    assert theirs.samples[2] == Sample(1_000, 500)
    ours, theirs = rows_of([*trips(OURS, [100.0, 120.0, 500.0]), *trips("aiokafka", [240.0])])
    assert ours.latency["p50"] == Spread(120.0, 100.0, 500.0)
    assert theirs.ratio == 2.0


def test_limit_is_raw_socket_of_same_case() -> None:
    both = [*runs(OURS, [2.0]), *runs(RAW, [1.0], way="send_batch")]
    assert [row.of_limit for row in rows_of(both)] == [0.5, 1.0]
    assert [row.of_limit for row in rows_of(runs(OURS, [2.0]))] == [None]


# -- verdicts -------------------------------------------------------------------------------------


def test_targets_are_met_not_met_or_open() -> None:
    measured = [*runs(OURS, [1.0, 1.0]), *runs("aiokafka", [8.0, 9.0])]
    measured += runs("confluent", [1.9, 1.9])
    found = outcomes_of(measured, ENQUEUE)
    assert [(one.against, one.reached, one.verdict) for one in found] == [
        ("Java tool", "not measured", "open"),
        ("confluent-kafka, callbacks", "not measured", "open"),
        ("confluent-kafka", "1.90x", "not met"),
        ("aiokafka", "8.47x", "met"),
    ]
    assert summary(found) == "1 met, 1 not met, 2 open."


@pytest.mark.parametrize(
    ("ours", "theirs", "by_round", "verdict"),
    [
        # Medians of 8.0 and 1.0: 8 times as fast, which is the target, in all rounds or not.
        ([1.0, 1.0, 1.0], [8.0, 8.0, 9.0], "8.00 (8.00 - 9.00)", "met"),
        ([1.0, 1.0, 1.0], [7.0, 8.0, 9.0], "8.00 (7.00 - 9.00)", "met, within noise"),
        ([1.0, 1.0, 1.0], [7.0, 7.5, 9.0], "7.50 (7.00 - 9.00)", "not met, within noise"),
        ([1.0, 1.0, 1.0], [6.0, 7.0, 7.5], "7.00 (6.00 - 7.50)", "not met"),
        # Both are slow in the same round, which the medians do not show.
        ([1.0, 9.0, 1.0], [8.5, 76.5, 8.5], "8.50 (8.50 - 8.50)", "met"),
        ([1.0], [9.0], "9.00 (9.00 - 9.00)", "met, one round"),
    ],
)
def test_verdict_mentions_rounds_that_contradict_it(
    ours: list[float], theirs: list[float], by_round: str, verdict: str
) -> None:
    outcome = against_aiokafka([*runs(OURS, ours), *runs("aiokafka", theirs)])
    assert (outcome.by_round, outcome.verdict) == (by_round, verdict)


def test_compares_only_rounds_of_both_clients() -> None:
    first, _, third = runs("aiokafka", [9.0, 1.0, 9.0])
    outcome = against_aiokafka([*runs(OURS, [1.0, 1.0, 1.0]), first, third])
    assert outcome.by_round == "9.00 (9.00 - 9.00)"


@pytest.mark.parametrize(
    ("goal", "by_round", "verdict"),
    [
        (Goal("surely", 1.0, 2.0, "ms", low=0.5, high=1.5), "(0.5 - 1.5)", "met"),
        (Goal("hardly", 1.0, 2.0, "ms", low=0.5, high=2.5), "(0.5 - 2.5)", "met, within noise"),
        (Goal("not at all", 1.0, 2.0, "x", True, 0.5, 1.5), "(0.5 - 1.5)", "not met"),
        (Goal("nearly", 1.0, 2.0, "x", True, 0.5, 2.0), "(0.5 - 2)", "not met, within noise"),
        (Goal.of("once", [1.0], 2.0, "ms"), "(1 - 1)", "met, one round"),
        (Goal.of("rounds", [0.7, 0.4, 0.6], 0.5, "s"), "(0.4 - 0.7)", "not met, within noise"),
        (Goal("the highest", 1.0, 2.0, "ms"), "", "met"),
    ],
)
def test_verdict_of_special_goal_considers_rounds(goal: Goal, by_round: str, verdict: str) -> None:
    [found] = special_outcomes({"idle": Result("idle", "idle", "", [], [goal]).plain()}, ["idle"])
    assert (found.by_round, found.verdict) == (by_round, verdict)


# -- the page -------------------------------------------------------------------------------------


@pytest.fixture
def found(tmp_path: Path) -> Results:
    run_log = log_of(
        tmp_path,
        *runs(OURS, [1.0, 2.0]),
        *runs("aiokafka", [8.0]),
        *runs(RAW, [0.5], way="send_batch"),
        *trips(OURS, [110.0]),
        Run(CASE, "kafka_python", "enqueue", 1, error="exit code 1: it\nbroke"),
    )
    row = special.Row.of("kafka_async", [0.01, 0.01, 0.02], "%", what="producer")
    goal = Goal("a producer", 0.01, 0.02, "%", low=0.01, high=0.03)
    idle = Result("idle", "idle, 3 brokers", "theirs over ours", [row], [goal])
    run_log.add_special("idle", idle.plain())
    run_log.add_special("memory", {"case": "memory", "error": "it took longer than 300 s"})
    return collect(run_log, {"Java tool": "install Java 17 or newer"}, tuned=True)


def checked_in(name: str) -> Results:
    document = json.loads((RESULTS / f"{name}.json").read_text())
    document["rows"] = [
        Row(
            **row
            | {figure: Spread(**row[figure]) for figure in ("rate", "cpu_us")}
            | {"latency": {name: Spread(**each) for name, each in row["latency"].items()}}
            | {"samples": {int(at): Sample(**each) for at, each in row["samples"].items()}}
        )
        for row in document["rows"]
    ]
    document["outcomes"] = [Outcome(**each) for each in document["outcomes"]]
    document["achievements"] = [Achievement(**each) for each in document["achievements"]]
    return Results(**document)


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("bench", TARGETS),
        ("bench_defaults", [*DEFAULT_TARGETS, *comparisons(tuned=False)]),
        ("bench_pythons", PYTHON_TARGETS),
        ("bench_tls", TARGETS),
    ],
)
def test_checked_in_results_have_their_page_and_verdicts(
    name: str, targets: Sequence[Target]
) -> None:
    found = checked_in(name)
    assert page.markdown(found) == (RESULTS / f"{name}.md").read_text()
    judged = [replace(one, case="") for one in outcomes(targets, found.rows)]
    of_targets = {(one.group, one.what, one.wanted) for one in judged}
    recorded = [replace(one, case="") for one in found.outcomes]
    recorded = [one for one in recorded if (one.group, one.what, one.wanted) in of_targets]
    assert recorded
    assert [one for one in recorded if one not in judged] == []


def test_writes_json_page_and_chart(found: Results, tmp_path: Path) -> None:
    results.write(found, "bench", tmp_path / "results")
    document = json.loads((tmp_path / "results" / "bench.json").read_text())
    assert document["rows"][0]["rate"] == {"median": 6_000, "low": 4_000, "high": 8_000}
    assert (tmp_path / "results" / "bench.md").read_text() == page.markdown(found)
    picture = (tmp_path / "results" / "bench.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert 1_200 <= width <= 1_600
    assert 300 <= height <= 1_600
