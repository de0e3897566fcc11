"""The demo stops all its processes, and names the reason in one line, however it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kafka_async.cli.demo import run as demo_run
from tests.cli.conftest import call
from tests.cli.programs import Program, command_of

# Each test waits some seconds for real sessions and processes.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("moment", ["1. start", "3. count", "and start", "is killed"])
def test_ctrl_c_stops_all_processes(moment: str) -> None:
    with Program("demo", "--no-spark") as program:
        program.wait_for(moment)
        program.signal(signal.SIGINT)
        status, out, err = program.end()
        assert program.left() == []
    assert (status, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err


def test_sigterm_stops_all_processes() -> None:
    with Program("demo", "--no-spark") as program:
        program.wait_for("and start")
        program.process.terminate()
        status, _, err = program.end()
        assert program.left() == []
    assert status == 128 + signal.SIGTERM
    assert "Traceback" not in err


@pytest.mark.parametrize("moment", ["3. count", "and start"])
def test_sigkill_stops_all_child_processes(moment: str) -> None:
    with Program("demo", "--no-spark") as program:
        program.wait_for(moment)
        program.process.kill()
        program.process.wait()
        assert program.left() == []


def test_stops_when_the_cluster_dies() -> None:
    with Program("demo", "--no-spark") as program:
        program.wait_for("and start")
        (cluster,) = [p for p in program.running() if "kafka_async.embedded" in command_of(p)]
        os.kill(cluster, signal.SIGKILL)
        status, _, err = program.end()
        assert program.left() == []
    assert status == 1
    assert err.splitlines()[-1].startswith("error: the embedded cluster has ended with status -9")


def test_checks_files_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for arguments, message in [
        (["--json", str(tmp_path)], f"{tmp_path} is a directory: name a file"),
        (["--json", str(tmp_path / "no" / "file")], f"there is no directory {tmp_path / 'no'}"),
        (["--out", str(tmp_path / "file")], "is a file: name a directory"),
        (["--out", str(tmp_path / "file" / "x" / "y")], "is not a directory"),
        ([str(tmp_path / "missing.txt")], "no such file"),
        (["--keep"], "--keep needs --bootstrap"),
    ]:
        assert message in call("demo", *arguments).error


def test_refuses_a_text_without_lines(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n \n")
    error = call("demo", str(tmp_path / "empty")).error
    assert error == "error: the text is empty: name files that hold words"


def test_reports_a_cluster_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "BROKERS", -1)
    ended = call("demo", "--no-spark")
    assert ended.status == 1
    assert ended.err.splitlines()[-1].startswith("error: the embedded cluster did not start: ")
