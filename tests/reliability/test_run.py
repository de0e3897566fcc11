"""Figures of a reliability run."""

from __future__ import annotations

import json
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.reliability import __main__ as program
from tests.reliability.fault_schedule import Goal, Kill
from tests.reliability.row_check import check
from tests.reliability.run import Record, describe, error_name, error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from tests.reliability.row_check import Verdict

pytestmark = pytest.mark.one_kernel


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "[STREAM_FAILED] ... File x.py, kafka_async.errors.ProducerFencedError: another driver",
            "ProducerFencedError",
        ),
        ("PythonError: TornEpochError: sink s", "TornEpochError"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update", "[CONCURRENT_STREAM_LOG_UPDATE]"),
        ("", ""),
    ],
)
def test_finds_the_error_in_the_text_of_spark(text: str, name: str) -> None:
    assert error_name(text).startswith(name)


def test_shows_the_error_without_the_text_around_it() -> None:
    text = "[STREAM_FAILED] ... DataLossError: a ... kafka_async.errors.DataLossError: t-0 at 5"
    assert error_text(text) == "DataLossError: t-0 at 5"
    assert error_text("other") == "other"


def test_only_kills_in_their_time_are_figures() -> None:
    record = Record()
    record.kills = [Kill("driver", 10, True), Kill("broker", 6, False), Kill("driver", 31, True)]
    record.verdicts = [str(check({}, [], []))]
    figures = describe(record, 7)
    assert figures["kills"] == 2
    assert figures["kills by process"] == {"driver": 1, "broker": 1}
    assert figures["kills in a commit"] == 1
    assert figures["epochs"] == 7
    assert figures["verdict"].startswith("0 input records, 0 lost")


def test_record_continues_where_it_was_saved() -> None:
    record = Record(rounds=3, epochs=40, verdicts=["exact"], fenced=1, faults={"kill": 2})
    record.kills = [Kill("driver", 10, True)]
    record.failures = {"DataLossError": 1}
    record.started -= 100
    record.say("begun")
    again = Record.continued(json.loads(json.dumps(record.saved())))
    assert again.seconds >= 100
    again.started = record.started
    assert again == record


class StandInForRun:
    """Does a round and a comparison per call of `run`; the first call is interrupted."""

    calls = 0

    def __init__(self, _: object, master: str, directory: Path, seed: int, record: Record) -> None:
        self.record = record
        self.epochs = record.epochs + 30
        self._log = directory / "drivers.log"
        assert (master, seed) == ("spark://test", 7)

    async def run(self, goal: Goal, deadline: float, part: float, save: Callable[[], None]) -> Any:
        assert (goal, deadline, part) == (Goal.of(600), 1_800, 100)
        type(self).calls += 1
        self.record.rounds += 1
        self.record.epochs = self.epochs
        verdict: Verdict = check(
            {(0, self.record.rounds): b"x"}, [b"0:%d:x" % self.record.rounds], []
        )
        self.record.verdicts.append(str(verdict))
        save()
        self.record.rounds += 5
        if self.calls == 1:
            raise KeyboardInterrupt
        return verdict


def test_interrupted_run_is_continued_after_its_last_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def started(*_: object, **options: object) -> Generator[object]:
        yield SimpleNamespace(name="stand-in", master="spark://test")

    monkeypatch.setattr(program, "ARTIFACTS", tmp_path)
    monkeypatch.setattr(program, "revision", lambda: "1a2b3c4")
    monkeypatch.setattr(program, "create_backend", started)
    monkeypatch.setattr(program, "spark_cluster", started)
    monkeypatch.setattr(program, "Run", StandInForRun)
    monkeypatch.setattr(StandInForRun, "calls", 0)
    file = tmp_path / program.NAME
    assert program.main(["--resume"]) == 1
    arguments = ["--seconds", "600", "--seed", "7", "--part", "100", "--backend", "embedded"]
    with pytest.raises(KeyboardInterrupt):
        program.main(arguments)
    assert json.loads(file.read_text())["progress"]["rounds"] == 1
    assert program.main(["--resume"]) == 0
    result = json.loads(file.read_text())
    assert result["command"] == f"python -m tests.reliability {' '.join(arguments)}"
    assert (result["result"], result["resumed"], result["epochs"]) == ("exact", 1, 60)
    assert result["revision"] == "1a2b3c4"
    assert result["verdict"].count("1 input records, 0 lost") == 2
    assert program.main(["--resume"]) == 1
