"""The faults and the report of `make reliability-transactions`."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from tests.reliability.transactions.__main__ import NAME, begin, parse
from tests.reliability.transactions.faults import BROKERS, SECONDS, WORKERS, FaultKind, faults

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_kernel


def test_seed_determines_the_faults() -> None:
    first, second = (list(itertools.islice(faults(7), 40)) for _ in range(2))
    assert first == second
    assert first != list(itertools.islice(faults(8), 40))


def test_each_four_faults_have_every_kind() -> None:
    found = list(itertools.islice(faults(1), 40))
    for at in range(0, 40, 4):
        assert {fault.kind for fault in found[at : at + 4]} == set(FaultKind)


def test_faults_stay_in_their_limits() -> None:
    for fault in itertools.islice(faults(3), 400):
        low, high = SECONDS[fault.kind]
        assert low <= fault.seconds <= high
        last = BROKERS if "broker" in fault.kind.value else WORKERS
        assert 1 <= fault.number <= last
        assert fault.kind.value in str(fault)


def test_interrupted_run_is_continued_with_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.reliability.transactions.__main__.ARTIFACTS", tmp_path)
    report = begin(parse(["--seed", "7", "--runs", "3"]))
    report["runs"].append({"seed": 7, "exact": True})
    (tmp_path / NAME).write_text(json.dumps(report))
    assert begin(parse(["--resume"])) == report
    assert begin(parse(["--seed", "8"]))["runs"] == []
