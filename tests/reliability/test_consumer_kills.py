"""Killed consumers get their record again; the run is `make reliability-consumer-kills`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.reliability.consumer_kills import Run, fault_of, main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_kernel


@pytest.mark.parametrize(
    ("killed_at", "offsets", "fault"),
    [
        (None, [4, 5], None),
        (3, [3, 4], None),
        (3, [1, 2, 3], None),
        (3, [4, 5], r"killed at offset 3, continued with [4, 5]"),
        (3, [1, 2], r"killed at offset 3, continued with [1, 2]"),
        (3, [1, 3], r"not in order: [1, 3]"),
    ],
)
def test_record_in_progress_must_come_again(
    killed_at: int | None, offsets: list[int], fault: str | None
) -> None:
    assert fault_of(killed_at, offsets) == fault


def test_verdict_counts_what_came_again() -> None:
    assert Run(1, 10).verdict(10).startswith("passed: the record in progress came again 10 of 10")
    assert Run(1, 10, ["lost"]).verdict(10).startswith("FAILED")
    assert Run(1, 9).verdict(10).startswith("FAILED")


@pytest.mark.slow
def test_killed_processes_get_the_record_in_progress_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kills.json"
    arguments = ["--processes", "1", "--seed", "7", "--file", str(file)]
    assert main([*arguments, "--kills", "2"]) == 0
    assert main([*arguments, "--kills", "2", "--resume"]) == 0
    assert json.loads(file.read_text()) == {"seed": 7, "kills": 2, "faults": []}
    output = capsys.readouterr().out
    assert "seed 7, 2 of 2 kills are done" in output
    assert "passed: the record in progress came again 2 of 2 times" in output
