"""`python -m benchmarks` with few records on the embedded cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import rounds
from benchmarks.clients import OURS, PEERS, PLAIN
from benchmarks.payload import WrongResultError
from benchmarks.peers.task import Figures, Task
from kafka_async.testing.backends.base import Backend, BackendUnavailableError

FIGURES = Figures(1.0, 0.5, 8, latency_us={"p50": 9.0, "p99": 9.0, "p99.9": 9.0})


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(program, "RESULTS", tmp_path / "results")
    output = ["--output", str(tmp_path)]
    return ["--backend", "embedded", "--scale", "0.002", "--rounds", "1", *output]


class Launched:
    """Stands for the processes of clients: returns figures, or raises errors, in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *results: Figures | BaseException) -> None:
        self.clients: list[tuple[str, str]] = []
        self._results = iter(results)
        monkeypatch.setattr(rounds, "launch", self.launch)
        monkeypatch.setattr(rounds.topics, "tally", self.tally)

    def launch(self, peer: str, task: Task) -> Figures:
        self.clients.append((task.kind, peer))
        result = next(self._results, rounds.FailedError("it broke"))
        if isinstance(result, Figures):
            return result
        raise result

    async def tally(self, *_: object, **__: object) -> rounds.Tally:
        return rounds.Tally(8, 0)


def read(folder: Path, name: str = "bench_part") -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text())


def test_measures_writes_and_resumes_selected_cases(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments += ["--peers", PLAIN, "--only", "produce-100", "consume-100-batches", "round-trip"]
    assert program.main(arguments) == 0
    document = read(tmp_path)
    measured = [(row["case"], row["way"], row["records"]) for row in document["rows"]]
    assert measured == [
        ("produce-100", "enqueue", 1_000),
        ("consume-100-batches", "batches", 16_000),
        ("consume-100-batches", "arrow", 1_000),
        ("round-trip", "", 8),
    ]
    assert (tmp_path / "bench_part.png").exists()
    assert not (tmp_path / "results").exists()  # only for complete runs

    def start(_: object) -> Backend:
        raise AssertionError("everything was measured")

    monkeypatch.setattr(Backend, "__enter__", start)
    assert program.main([*arguments, "--resume"]) == 0
    assert read(tmp_path) == document


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (KeyboardInterrupt(), "interrupted; use --resume to continue\n"),
        (WrongResultError("aiokafka lost one"), "wrong result: aiokafka lost one\n"),
        (rounds.FailedError("it broke"), "failed: aiokafka in round-trip\n"),
        (BackendUnavailableError("install Java"), "no broker: install Java; or --backend embedded"),
    ],
)
def test_early_end_keeps_results_and_exits_with_1(
    end: BaseException,
    words: str,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Launched(monkeypatch, FIGURES, end)
    arguments += ["--peers", f"{PLAIN},aiokafka", "--only", "round-trip"]
    assert program.main(arguments) == 1
    assert words in capsys.readouterr().err
    [row] = read(tmp_path)["rows"]
    assert row["peer"] == PLAIN


def missing() -> str:
    raise BackendUnavailableError("install it")


@pytest.mark.parametrize("step", ["version", "prepare"])
def test_names_missing_client_and_does_not_start_it(
    step: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes: dict[str, Any] = {step: missing}
    monkeypatch.setitem(PEERS, "aiokafka", replace(PEERS["aiokafka"], **changes))
    assert program.main([*arguments, "--peers", "aiokafka", "--only", "produce-100"]) == 1
    output = capsys.readouterr()
    assert output.err.endswith("nothing was measured\n")
    assert "missing:\n\n- aiokafka: install it\n" in output.out
    assert "round 1" not in output.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rounds=0"], "it is between 1 and 1,000, not 0"),
        (["--scale=0"], "it is between 0.0001 and 100, not 0"),
        (["--backend=foo"], "no Kafka backend 'foo'"),
        (["--peers", f"{OURS},pykafka"], "--peers: there is no peer pykafka; there are kafka_as"),
        (["--peers", OURS, "pykafka"], "--peers: there is no peer pykafka; there are kafka_async,"),
        (["--only", "produce-100,idle,nothing"], "--only: there is no case nothing; there are "),
    ],
)
def test_refuses_invalid_options(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(options)
    assert words in capsys.readouterr().err
