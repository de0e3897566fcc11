"""Rounds of runs: order, checks of records, failures and the run log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rounds
from benchmarks.cases import CASES, Case, Contender
from benchmarks.clients import PEERS, PLAIN, Peer
from benchmarks.peers.task import Figures, Task
from benchmarks.rounds import Run, RunLog, measure, order
from benchmarks.topics import WrongResultError
from kafka_async.embedded import run_in_thread

CONTEXT = {"cores": "2"}
PRODUCE = Case("produce-100", "produce", "produce", "produce", (Contender("planted", "enqueue"),))
CONSUME = Case("consume-100", "consume", "consume", "consume", (Contender("planted", "poll"),))
SCALE = 0.01

Plant = Callable[[str], None]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with run_in_thread(brokers=1) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    def planted(what: str) -> None:
        environment = {"KAFKA_ASYNC_PLANTED": what}
        speeds = {"enqueue": 100.0, "poll": 100.0}
        module = "tests.benchmarks.planted_peer"
        peer = Peer("planted", "Planted", module, speeds=speeds, environment=environment)
        monkeypatch.setitem(PEERS, "planted", peer)

    return planted


@pytest.fixture
def run_log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "runs.jsonl", CONTEXT, resume=False)


def test_every_second_round_has_reversed_order() -> None:
    contenders = [Contender(name) for name in "abc"]
    first, second, third = (order(contenders, number) for number in (1, 2, 3))
    assert (first, second, third) == (contenders, contenders[::-1], contenders)


@pytest.mark.parametrize("what", ["loses a record", "invents values"])
def test_wrong_producer_ends_benchmark(
    what: str, bootstrap: str, plant: Plant, run_log: RunLog
) -> None:
    plant(what)
    with pytest.raises(WrongResultError, match=r"produce-100: planted \(enqueue\) sent 1000 rec"):
        measure(PRODUCE, PRODUCE.contenders, bootstrap, 1, run_log, scale=SCALE)
    assert run_log.runs == []


@pytest.mark.parametrize("what", ["reads too few", "reads other values"])
def test_wrong_consumer_ends_benchmark(
    what: str, bootstrap: str, plant: Plant, run_log: RunLog
) -> None:
    plant(what)
    with pytest.raises(WrongResultError, match=r"consume-100: planted \(poll\) read"):
        measure(CONSUME, CONSUME.contenders, bootstrap, 1, run_log, scale=SCALE)
    assert run_log.runs == []


def test_peer_that_only_counts_needs_no_checksum(
    bootstrap: str, plant: Plant, run_log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant("reads other values")
    monkeypatch.setitem(PEERS, "planted", replace(PEERS["planted"], counts_only=True))
    measure(CONSUME, CONSUME.contenders, bootstrap, 1, run_log, scale=SCALE)
    assert [run.number for run in run_log.runs] == [rounds.CHECK, 1]


@pytest.mark.parametrize(
    ("what", "error"),
    [("crashes", "exit code 1: it broke"), ("hangs", "it took longer than 2 s")],
)
def test_failing_client_is_excluded_from_rest_of_case(
    what: str,
    error: str,
    bootstrap: str,
    plant: Plant,
    run_log: RunLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(what)
    if what == "hangs":
        monkeypatch.setattr(
            rounds.child_processes, "run", shorter_for_planted(rounds.child_processes.run)
        )
    contenders = (*PRODUCE.contenders, Contender(PLAIN, "enqueue"))
    measure(PRODUCE, contenders, bootstrap, 2, run_log, scale=SCALE)
    assert [(run.peer, run.number, run.error) for run in run_log.runs] == [
        ("planted", 1, error),
        (PLAIN, 1, None),
        (PLAIN, 2, None),
    ]


def shorter_for_planted(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run` with a time limit of 2 s for the planted client only."""

    def limited(command: list[str], limit: float, environment: Mapping[str, str]) -> Any:
        planted = "KAFKA_ASYNC_PLANTED" in environment
        return run(command, 2.0 if planted else limit, environment)

    return limited


def test_spreads_start_times_of_parallel_clients(
    run_log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []

    def launch(contender: Contender, task: Task) -> Figures:
        starts.append(task.start)
        raise rounds.FailedError("it broke")

    monkeypatch.setattr(rounds, "launch", launch)
    case = CASES["round-trip-1"]
    with run_in_thread(brokers=1) as cluster:
        measure(case, case.contenders, cluster.bootstrap_servers, 1, run_log, scale=SCALE)
    first, *_ = starts = sorted(starts)
    count = len(case.contenders)
    assert [start - first for start in starts] == [
        pytest.approx(place / count, abs=1e-3) for place in range(count)
    ]


def test_wrong_parallel_client_ends_others_at_once(
    run_log: RunLog, plant: Plant, bootstrap: str
) -> None:
    plant("hangs")
    case = replace(PRODUCE, contenders=(), together=True, rate=1.0)
    wrong = Contender("wrong", "enqueue")
    with pytest.MonkeyPatch.context() as patch:
        environment = {"KAFKA_ASYNC_PLANTED": "invents values"}
        patch.setitem(PEERS, "wrong", replace(PEERS["planted"], environment=environment))
        patch.setattr(rounds, "TIME_LIMIT", 600.0)
        with pytest.raises(WrongResultError, match="wrong"):
            measure(case, (*PRODUCE.contenders, wrong), bootstrap, 1, run_log, scale=SCALE)


def test_resume_repeats_only_failed_and_missing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: str
) -> None:
    path = tmp_path / "runs.jsonl"
    figures = Figures(2.0, 1.0, 1_000, latency_us={"p50": 3.0}, peak_mb=40.0)
    good = Run("produce-100", "planted", "enqueue", 1, figures)
    bad = Run("produce-100", PLAIN, "enqueue", 1, error="it broke")
    before = RunLog(path, CONTEXT, resume=False)
    before.add(good)
    before.add(bad)
    before.add_special("idle", {"rows": []})
    before.add_special("memory", {"error": "it broke"})
    with path.open("a") as file:
        file.write('{"run": {"case": "produ')  # truncated by an interruption
    after = RunLog(path, CONTEXT, resume=True)
    assert (after.runs, after.specials) == ([good], {"idle": {"rows": []}})

    def launch(contender: Contender, *_: object) -> Figures:
        raise rounds.FailedError(f"{contender.peer} was started")

    monkeypatch.setattr(rounds, "launch", launch)
    contenders = (*PRODUCE.contenders, Contender(PLAIN, "enqueue"))
    measure(PRODUCE, contenders, bootstrap, 1, after)
    assert [run.error for run in after.runs] == [None, f"{PLAIN} was started"]
    after.add(later := Run("produce-100", PLAIN, "enqueue", 1, figures))
    again = RunLog(path, CONTEXT, resume=True)
    assert again.runs == [good, later]


def test_refuses_to_resume_runs_of_other_machine(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    RunLog(path, CONTEXT, resume=False)
    with pytest.raises(SystemExit, match=r"differs in its machine or versions \(cores\)"):
        RunLog(path, {"cores": "64"}, resume=True)


def test_resumed_run_keeps_its_date(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    RunLog(path, {**CONTEXT, "date": "2026-11-21"}, resume=False)
    again = RunLog(path, {**CONTEXT, "date": "2026-11-22"}, resume=True)
    assert again.context["date"] == "2026-11-21"


def test_drops_earlier_runs_without_resume(tmp_path: Path, run_log: RunLog) -> None:
    run_log.add(Run("produce-100", "planted", "enqueue", 1, error="it broke"))
    RunLog(tmp_path / "runs.jsonl", CONTEXT, resume=False)
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"context": CONTEXT}]
