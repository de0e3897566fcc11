"""Rounds of runs: order, checks of records, failures, the run log and the remaining time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import rounds
from benchmarks.cases import CASES, Case, Contender
from benchmarks.clients import PEERS, PLAIN
from benchmarks.payload import WrongResultError
from benchmarks.peers.task import Figures, Task
from benchmarks.progress import Progress
from benchmarks.rounds import CaseRunner, order, remaining
from benchmarks.runs import Run, RunLog
from kafka_async.embedded import run_in_thread
from tests.benchmarks.planted_peer import planted

CONTEXT = {"cores": "2"}
PRODUCE = Case("produce-100", "produce", "produce", (Contender("planted", "enqueue"),))
CONSUME = Case("consume-100", "consume", "consume", (Contender("planted", "poll"),))
FIGURES = Figures(2.0, 1.0, 1_000, latency_us={"p50": 3.0}, peak_mb=40.0)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with run_in_thread(brokers=1) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def run_log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "runs.jsonl", CONTEXT, resume=False)


def measure(case: Case, bootstrap: str, run_log: RunLog, count: int = 1) -> None:
    progress = Progress(remaining(case, case.contenders, count, run_log))
    CaseRunner(case, bootstrap, run_log, progress, scale=0.01).run(case.contenders, count)


def refuse(peer: str, task: Task) -> Figures:
    """Stand for the process of a client that fails."""
    raise rounds.FailedError(f"{peer} was started")


def test_every_second_round_has_reversed_order() -> None:
    contenders = [Contender(name) for name in "abc"]
    first, second, third = (order(contenders, number) for number in (1, 2, 3))
    assert (first, second, third) == (contenders, contenders[::-1], contenders)


@pytest.mark.parametrize(
    ("what", "case", "message"),
    [
        ("loses a record", PRODUCE, r"produce-100: planted \(enqueue\) sent 1000 records"),
        ("invents values", PRODUCE, r"produce-100: planted \(enqueue\) sent 1000 records"),
        ("reads too few", CONSUME, r"consume-100: planted \(poll\) read 999 records"),
        ("reads other values", CONSUME, r"consume-100: planted \(poll\) read 1000 records"),
    ],
)
def test_wrong_client_ends_benchmark(
    what: str,
    case: Case,
    message: str,
    bootstrap: str,
    run_log: RunLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PEERS, "planted", planted(what))
    with pytest.raises(WrongResultError, match=message):
        measure(case, bootstrap, run_log)
    assert run_log.runs == []


@pytest.mark.parametrize(
    ("what", "error"),
    [("crashes", "exit code 1: it broke"), ("hangs", "it took longer than 2 s")],
)
def test_failing_client_is_excluded_from_rest_of_case(
    what: str, error: str, bootstrap: str, run_log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, "planted", planted(what))
    launch = rounds.launch

    def launch_briefly(peer: str, task: Task) -> Figures:
        return launch(peer, task, 2.0 if what == "hangs" and peer == "planted" else 60.0)

    monkeypatch.setattr(rounds, "launch", launch_briefly)
    case = replace(PRODUCE, contenders=(*PRODUCE.contenders, Contender(PLAIN, "enqueue")))
    measure(case, bootstrap, run_log, 2)
    assert [(run.peer, run.number, run.error) for run in run_log.runs] == [
        ("planted", 1, error),
        (PLAIN, 1, None),
        (PLAIN, 2, None),
    ]


def test_spreads_start_times_of_parallel_clients(
    bootstrap: str, run_log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []

    def launch(peer: str, task: Task) -> Figures:
        starts.append(task.start)
        return refuse(peer, task)

    monkeypatch.setattr(rounds, "launch", launch)
    case = CASES["round-trip-1"]
    measure(case, bootstrap, run_log)
    first, *_ = starts = sorted(starts)
    count = len(case.contenders)
    assert [start - first for start in starts] == [
        pytest.approx(place / count, abs=1e-3) for place in range(count)
    ]


def test_wrong_parallel_client_ends_others_at_once(
    bootstrap: str, run_log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, "planted", planted("hangs"))
    monkeypatch.setitem(PEERS, "wrong", planted("invents values"))
    contenders = (*PRODUCE.contenders, Contender("wrong", "enqueue"))
    case = replace(PRODUCE, contenders=contenders, together=True, rate=1.0)
    with pytest.raises(WrongResultError, match="wrong"):
        measure(case, bootstrap, run_log)


# -- the run log ----------------------------------------------------------------------------------


def test_resume_repeats_only_failed_and_missing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: str
) -> None:
    path = tmp_path / "runs.jsonl"
    good = Run("produce-100", "planted", "enqueue", 1, FIGURES)
    before = RunLog(path, CONTEXT, resume=False)
    before.add(good)
    before.add(Run("produce-100", PLAIN, "enqueue", 1, error="it broke"))
    before.add_special("idle", {"rows": []})
    before.add_special("memory", {"error": "it broke"})
    with path.open("a") as file:
        file.write('{"run": {"case": "produ')  # truncated by an interruption
    after = RunLog(path, CONTEXT, resume=True)
    assert (after.runs, after.specials) == ([good], {"idle": {"rows": []}})
    monkeypatch.setattr(rounds, "launch", refuse)
    case = replace(PRODUCE, contenders=(*PRODUCE.contenders, Contender(PLAIN, "enqueue")))
    measure(case, bootstrap, after)
    assert [run.error for run in after.runs] == [None, f"{PLAIN} was started"]
    after.add(later := Run("produce-100", PLAIN, "enqueue", 1, FIGURES))
    assert RunLog(path, CONTEXT, resume=True).runs == [good, later]


def test_resumes_only_runs_of_same_machine_and_keeps_their_date(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    RunLog(path, {**CONTEXT, "date": "2026-11-21"}, resume=False)
    with pytest.raises(SystemExit, match=r"differs in its machine or versions \(cores\)"):
        RunLog(path, {"cores": "64"}, resume=True)
    again = RunLog(path, {**CONTEXT, "date": "2026-11-22"}, resume=True)
    assert again.context["date"] == "2026-11-21"


# -- time -----------------------------------------------------------------------------------------
