"""However the demo ends, it says why in one line, and nothing that it started goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_async.cli.demo import run as demo_run
from tests.cli.conftest import Ended
from tests.cli.programs import Program, command_of

# Each waits for real sessions and processes: seconds, on whichever kernel and loop.
pytestmark = pytest.mark.slow

Call = Callable[..., Ended]


@pytest.mark.parametrize("moment", ["1. start", "3. count", "and start", "is killed"])
def test_ctrl_c_ends_everything(moment: str) -> None:
    with Program("demo", "--no-spark") as program:
        program.wait_for(moment)
        program.signal(signal.SIGINT)
        status, out, err = program.end()
        assert program.left() == []
    assert (status, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err


def test_sigterm_ends_everything_too() -> None:
    with Program("demo", "--no-spark") as program:
        program.wait_for("and start")
        program.process.terminate()
        status, _, err = program.end()
        assert program.left() == []
    assert status == 128 + signal.SIGTERM
    assert "Traceback" not in err


@pytest.mark.parametrize("moment", ["3. count", "and start"])
def test_nothing_outlives_a_demo_that_is_killed(moment: str) -> None:
    with Program("demo", "--no-spark") as program:
        program.wait_for(moment)
        program.process.kill()
        program.process.wait()
        assert program.left() == []


def test_a_cluster_that_dies_ends_the_demo() -> None:
    with Program("demo", "--no-spark") as program:
        program.wait_for("and start")
        (cluster,) = [p for p in program.running() if "kafka_async.embedded" in command_of(p)]
        os.kill(cluster, signal.SIGKILL)
        status, _, err = program.end()
        assert program.left() == []
    assert status == 1
    assert err.splitlines()[-1].startswith("error: the embedded cluster has ended with status -9")


def test_what_cannot_be_written_is_said_before_anything_runs(tmp_path: Path, call: Call) -> None:
    (tmp_path / "file").write_text("")
    for arguments, says in [
        (["--json", str(tmp_path)], f"{tmp_path} is a directory: name a file"),
        (["--json", str(tmp_path / "no" / "file")], f"there is no directory {tmp_path / 'no'}"),
        (["--out", str(tmp_path / "file")], "is a file: name a directory"),
        (["--out", str(tmp_path / "file" / "x" / "y")], "is no directory"),
        ([str(tmp_path / "missing.txt")], "there is no such file"),
        (["--keep"], "--keep needs --bootstrap"),
    ]:
        ended = call("demo", *arguments)
        assert ended.status == 1
        assert says in ended.line


def test_a_text_without_lines_is_refused(tmp_path: Path, call: Call) -> None:
    (tmp_path / "empty").write_text("\n \n")
    ended = call("demo", str(tmp_path / "empty"))
    assert (ended.status, ended.line) == (
        1, "error: the text is empty: name files that hold words"
    )  # fmt: skip


def test_a_cluster_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setattr(demo_run, "BROKERS", -1)
    ended = call("demo", "--no-spark")
    assert ended.status == 1
    assert ended.err.splitlines()[-1].startswith("error: the embedded cluster did not start: ")
