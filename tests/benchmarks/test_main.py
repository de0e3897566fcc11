"""`python -m benchmarks` with few records on the embedded cluster."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import rounds, special
from benchmarks.cases import CASES
from benchmarks.clients import JAVA, OURS, PEERS, PLAIN, PYTHONS, THIS_PYTHON, Peer, on_python
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


def test_failed_special_case_exits_with_1_and_others_continue(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(special.importlib, "import_module", fail)
    assert program.main([*arguments, "--only", "metadata,assignor"]) == 1
    reason = "ImportError: no benchmarks.special."
    assert read(tmp_path)["failed"] == {
        "metadata": f"{reason}metadata",
        "assignor": f"{reason}assignor",
    }


def test_python_versions_have_separate_table(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch, FIGURES)
    mine = on_python(OURS, THIS_PYTHON)
    arguments += ["--pythons", "--peers", mine, "--only", "pythons-round-trip"]
    assert program.main(arguments) == 0
    assert launched.clients == [("round_trip", mine)]
    document = read(tmp_path, "bench_pythons_part")
    assert document["rows"][0]["peer"] == mine
    assert platform.python_version() in document["context"]["Python"].split(", ")
    assert {row["case"] for row in document["outcomes"]} == {"pythons-round-trip"}


def test_cases_over_tls_have_separate_table(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    assert program.main([*arguments, "--tls", "--peers", PLAIN]) == 1
    assert launched.clients == [*[("produce", PLAIN)] * 2, *[("consume", PLAIN)] * 2]
    document = read(tmp_path, "bench_tls_part")
    over_tls = {case.name: case.title for case in CASES.values() if case.tls}
    assert set(document["failed"]) == {
        f"{PEERS[PLAIN].title} {CASES[name].contenders[1].way} in {title}"
        for name, title in over_tls.items()
    }
    titles = {one["what"].removesuffix(", best peer") for one in document["outcomes"]}
    assert titles == set(over_tls.values())


def test_tables_have_different_clients(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["--pythons", "--defaults"])
    assert "not allowed with argument" in capsys.readouterr().err
    options = program.parse(["--pythons"])
    assert {PEERS[name].python for name in options.peers} == {"", *PYTHONS}
    assert {name for name in options.peers if not PEERS[name].python} == {JAVA}
    assert not any(PEERS[name].python for name in program.parse([]).peers)


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


def test_peer_without_module_is_missing() -> None:
    module = "benchmarks.peers.no_such_peer"
    assert Peer("a", "A", module).missing() == f"there is no module {module}"


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


@pytest.mark.parametrize(
    "chosen",
    [
        ["--only", "round-trip,produce-100", "--peers", f"{PLAIN},aiokafka"],
        ["--only", "round-trip", "produce-100", "--peers", PLAIN, "aiokafka"],
        ["--only", "round-trip", "--only=produce-100", "--peers", f"{PLAIN},", "aiokafka,"],
    ],
)
def test_accepts_names_with_commas_and_spaces(chosen: list[str]) -> None:
    options = program.parse(chosen)
    assert (options.only, options.peers) == (["round-trip", "produce-100"], [PLAIN, "aiokafka"])
