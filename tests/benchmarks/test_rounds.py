"""Runs are interleaved, checked at the other end, and kept; who is wrong ends the benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rounds
from benchmarks.cases import CASES, Case, Contender
from benchmarks.contenders import PEERS, PLAIN, Peer
from benchmarks.peers.task import Figures, Task
from benchmarks.rounds import Ledger, Run, measure, order
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
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "runs.jsonl", CONTEXT, resume=False)


def test_every_other_round_has_the_reversed_order() -> None:
    contenders = [Contender(name) for name in "abc"]
    first, second, third = (order(contenders, number) for number in (1, 2, 3))
    assert (first, second, third) == (contenders, contenders[::-1], contenders)


@pytest.mark.parametrize("what", ["loses a record", "invents values"])
def test_a_producer_that_is_wrong_ends_the_benchmark(
    what: str, bootstrap: str, plant: Plant, ledger: Ledger
) -> None:
    plant(what)
    with pytest.raises(WrongResultError, match=r"produce-100: planted \(enqueue\) sent 1000 rec"):
        measure(PRODUCE, PRODUCE.contenders, bootstrap, 1, ledger, scale=SCALE)
    assert ledger.runs == []


@pytest.mark.parametrize("what", ["reads too few", "reads other values"])
def test_a_consumer_that_is_wrong_ends_the_benchmark(
    what: str, bootstrap: str, plant: Plant, ledger: Ledger
) -> None:
    plant(what)
    with pytest.raises(WrongResultError, match=r"consume-100: planted \(poll\) read"):
        measure(CONSUME, CONSUME.contenders, bootstrap, 1, ledger, scale=SCALE)
    assert ledger.runs == []


def test_who_counts_only_needs_no_checksum_but_the_right_count(
    bootstrap: str, plant: Plant, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant("reads other values")
    monkeypatch.setitem(PEERS, "planted", replace(PEERS["planted"], counts_only=True))
    measure(CONSUME, CONSUME.contenders, bootstrap, 1, ledger, scale=SCALE)
    assert [run.number for run in ledger.runs] == [rounds.CHECK, 1]


@pytest.mark.parametrize(
    ("what", "error"),
    [("crashes", "exit code 1: it broke"), ("hangs", "it took longer than 2 s")],
)
def test_a_failing_client_is_left_out_and_the_others_continue(
    what: str,
    error: str,
    bootstrap: str,
    plant: Plant,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(what)
    if what == "hangs":
        monkeypatch.setattr(rounds.children, "run", shorter_for_planted(rounds.children.run))
    contenders = (*PRODUCE.contenders, Contender(PLAIN, "enqueue"))
    measure(PRODUCE, contenders, bootstrap, 2, ledger, scale=SCALE)
    assert [(run.peer, run.number, run.error) for run in ledger.runs] == [
        ("planted", 1, error),
        (PLAIN, 1, None),
        (PLAIN, 2, None),
    ]


def shorter_for_planted(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run` with a time limit of 2 s for the planted client alone."""

    def limited(command: list[str], limit: float, environment: Mapping[str, str]) -> Any:
        planted = "KAFKA_ASYNC_PLANTED" in environment
        return run(command, 2.0 if planted else limit, environment)

    return limited


def test_clients_side_by_side_have_their_turns_spread_over_the_time_between_two(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []

    def launch(contender: Contender, task: Task) -> Figures:
        starts.append(task.start)
        raise rounds.FailedError("it broke")

    monkeypatch.setattr(rounds, "launch", launch)
    case = CASES["round-trip-1"]
    with run_in_thread(brokers=1) as cluster:
        measure(case, case.contenders, cluster.bootstrap_servers, 1, ledger, scale=SCALE)
    first, *_ = starts = sorted(starts)
    count = len(case.contenders)
    assert [start - first for start in starts] == [
        pytest.approx(place / count, abs=1e-3) for place in range(count)
    ]


def test_a_wrong_client_among_those_side_by_side_ends_the_others_at_once(
    ledger: Ledger, plant: Plant, bootstrap: str
) -> None:
    plant("hangs")
    case = replace(PRODUCE, contenders=(), together=True, rate=1.0)
    wrong = Contender("wrong", "enqueue")
    with pytest.MonkeyPatch.context() as patch:
        environment = {"KAFKA_ASYNC_PLANTED": "invents values"}
        patch.setitem(PEERS, "wrong", replace(PEERS["planted"], environment=environment))
        patch.setattr(rounds, "TIME_LIMIT", 600.0)
        with pytest.raises(WrongResultError, match="wrong"):
            measure(case, (*PRODUCE.contenders, wrong), bootstrap, 1, ledger, scale=SCALE)


def test_what_was_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: str
) -> None:
    path = tmp_path / "runs.jsonl"
    figures = Figures(2.0, 1.0, 1_000, latency_us={"p50": 3.0}, peak_mb=40.0)
    good = Run("produce-100", "planted", "enqueue", 1, figures)
    bad = Run("produce-100", PLAIN, "enqueue", 1, error="it broke")
    before = Ledger(path, CONTEXT, resume=False)
    before.add(good)
    before.add(bad)
    before.add_special("idle", {"rows": []})
    before.add_special("memory", {"error": "it broke"})
    with path.open("a") as file:
        file.write('{"run": {"case": "produ')  # the benchmark was ended while it wrote
    after = Ledger(path, CONTEXT, resume=True)
    assert (after.runs, after.specials) == ([good], {"idle": {"rows": []}})

    def launch(contender: Contender, *_: object) -> Figures:
        raise rounds.FailedError(f"{contender.peer} was started")

    monkeypatch.setattr(rounds, "launch", launch)
    contenders = (*PRODUCE.contenders, Contender(PLAIN, "enqueue"))
    measure(PRODUCE, contenders, bootstrap, 1, after)
    assert [run.error for run in after.runs] == [None, f"{PLAIN} was started"]
    after.add(later := Run("produce-100", PLAIN, "enqueue", 1, figures))
    again = Ledger(path, CONTEXT, resume=True)
    assert again.runs == [good, later]


def test_runs_of_another_machine_are_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    Ledger(path, CONTEXT, resume=False)
    with pytest.raises(SystemExit, match=r"made on something else \(cores differ\)"):
        Ledger(path, {"cores": "64"}, resume=True)


def test_a_run_that_is_gone_on_with_keeps_the_date_of_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    Ledger(path, {**CONTEXT, "date": "2026-11-21"}, resume=False)
    again = Ledger(path, {**CONTEXT, "date": "2026-11-22"}, resume=True)
    assert again.context["date"] == "2026-11-21"


def test_without_resume_the_runs_before_are_dropped(tmp_path: Path, ledger: Ledger) -> None:
    ledger.add(Run("produce-100", "planted", "enqueue", 1, error="it broke"))
    Ledger(tmp_path / "runs.jsonl", CONTEXT, resume=False)
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"context": CONTEXT}]
