"""`python -m benchmarks` with few records on the embedded cluster."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import __main__ as program
from benchmarks import rounds
from benchmarks.clients import (
    JAVA,
    OURS,
    PEERS,
    PLAIN,
    PYTHONS,
    THIS_PYTHON,
    Peer,
    on_python,
)
from benchmarks.peers.task import Figures, Task
from kafka_async.testing.backends.base import Backend, BackendUnavailableError

if TYPE_CHECKING:
    from benchmarks.cases import Contender


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(program, "RESULTS", tmp_path / "results")
    output = ["--output", str(tmp_path)]
    return ["--backend", "embedded", "--scale", "0.002", "--rounds", "1", *output]


def test_measures_writes_and_resumes_selected_cases(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments += ["--peers", PLAIN, "--only", "produce-100", "consume-100-batches", "round-trip"]
    assert program.main(arguments) == 0
    document = json.loads((tmp_path / "bench_part.json").read_text())
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
    assert json.loads((tmp_path / "bench_part.json").read_text()) == document


def test_interrupt_keeps_results(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = iter([Figures(1.0, 0.5, 8, latency_us={"p50": 1.0, "p99": 2.0, "p99.9": 3.0})])

    def launch(*_: object) -> Figures:
        try:
            return next(measured)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(rounds, "launch", launch)
    monkeypatch.setattr(rounds.topics, "tally", sent_eight)
    arguments += ["--peers", f"{PLAIN},aiokafka", "--only", "round-trip"]
    assert program.main(arguments) == 1
    assert "interrupted; use --resume to continue" in capsys.readouterr().err
    [row] = json.loads((tmp_path / "bench_part.json").read_text())["rows"]
    assert row["peer"] == PLAIN


async def sent_eight(*_: object) -> rounds.Tally:
    return rounds.Tally(8, 0)


def test_python_versions_have_separate_table(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, str]] = []

    def launch(contender: Contender, task: Task) -> Figures:
        ran.append((contender.peer, task.way))
        return Figures(1.0, 0.5, task.records, latency_us={"p50": 9.0, "p99": 9.0, "p99.9": 9.0})

    monkeypatch.setattr(rounds, "launch", launch)
    monkeypatch.setattr(rounds.topics, "tally", sent_eight)
    mine = on_python(OURS, THIS_PYTHON)
    arguments += ["--pythons", "--peers", mine, "--only", "pythons-round-trip"]
    assert program.main(arguments) == 0
    assert ran == [(mine, "")]
    document = json.loads((tmp_path / "bench_pythons_part.json").read_text())
    assert document["rows"][0]["peer"] == mine
    assert platform.python_version() in document["context"]["Python"].split(", ")
    assert {row["case"] for row in document["outcomes"]} == {"pythons-round-trip"}
    page = (tmp_path / "bench_pythons_part.md").read_text()
    assert f"| kafka_async, Python {THIS_PYTHON} | 9 |" in page


def test_tables_have_different_clients(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["--pythons", "--defaults"])
    assert "not allowed with argument" in capsys.readouterr().err
    options = program.parse(["--pythons"])
    assert {PEERS[name].python for name in options.peers} == {"", *PYTHONS}
    assert {name for name in options.peers if not PEERS[name].python} == {JAVA}
    assert not any(PEERS[name].python for name in program.parse([]).peers)


def test_wrong_result_exits_with_1(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def launch(*_: object) -> Figures:
        return Figures(1.0, 0.5, 1_000)

    monkeypatch.setattr(rounds, "launch", launch)
    assert program.main([*arguments, "--peers", PLAIN, "--only", "produce-100"]) == 1
    assert f"wrong result: produce-100: {PLAIN} (enqueue) sent 1000" in capsys.readouterr().err
    assert json.loads((tmp_path / "bench_part.json").read_text())["rows"] == []


def missing() -> str:
    raise BackendUnavailableError("install it")


@pytest.mark.parametrize("step", ["requires", "prepare"])
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
    assert Peer("a", "A", "benchmarks.peers.no_such_peer").missing() == (
        "there is no module benchmarks.peers.no_such_peer"
    )


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--rounds", "0", "at least 1 round"),
        ("--rounds", "-1", "at least 1 round"),
        ("--scale", "0", "above 0"),
        ("--backend", "foo", "no Kafka backend 'foo'"),
    ],
)
def test_refuses_invalid_options(
    option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main([f"{option}={value}"])
    assert words in capsys.readouterr().err


def test_failed_client_exits_with_1(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(*_: object) -> Figures:
        raise rounds.FailedError("it broke")

    monkeypatch.setattr(rounds, "launch", launch)
    assert program.main([*arguments, "--peers", PLAIN, "--only", "produce-100"]) == 1
    assert capsys.readouterr().err.endswith(f"failed: {PLAIN} in produce-100\n")


def test_error_without_broker_says_what_to_do(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(*_: object) -> Backend:
        raise BackendUnavailableError("install Java 17 or newer")

    monkeypatch.setattr(program, "_measure_cases", measure)
    assert program.main([*arguments, "--peers", PLAIN, "--only", "produce-100"]) == 1
    assert "no broker: install Java 17 or newer; or --backend embedded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            ["--peers", f"{OURS},pykafka"],
            "--peers: there is no peer pykafka; there are kafka_async,",
        ),
        (["--peers", OURS, "pykafka"], "--peers: there is no peer pykafka; there are kafka_async,"),
        (["--only", "produce-100,idle,nothing"], "--only: there is no case nothing; there are "),
    ],
)
def test_refuses_unknown_name(
    option: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(option)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "chosen",
    [
        ["--only", "round-trip,produce-100", "--peers", f"{PLAIN},aiokafka"],
        ["--only", "round-trip", "produce-100", "--peers", PLAIN, "aiokafka"],
        ["--only", "round-trip", "--only=produce-100", "--peers", f"{PLAIN},", "aiokafka,"],
    ],
)
def test_accepts_names_with_commas_and_spaces(
    chosen: list[str],
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    launched: list[tuple[str, str]] = []

    def launch(contender: Contender, task: Task) -> Figures:
        launched.append((task.kind, contender.peer))
        raise rounds.FailedError("it broke")

    monkeypatch.setattr(rounds, "launch", launch)
    assert program.main([*arguments, *chosen]) == 1
    kinds = ("produce", "round_trip")
    assert launched == [(kind, peer) for kind in kinds for peer in (PLAIN, "aiokafka")]
    assert "[case 2 of 2, round 1 of 1, about " in capsys.readouterr().err
