"""The special case of fairness, with few records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.special import fairness, processes
from benchmarks.wire_cases import WrongResultError
from kafka_async.embedded import run_in_thread


def test_measures_longest_iteration_of_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "RECORDS", 1000)
    monkeypatch.setattr(fairness, "CASES", (fairness.CASES[0], fairness.CASES[-1]))
    monkeypatch.setattr(fairness, "CLIENTS", {"kafka_async": "kafka_async_peer"})
    with run_in_thread() as cluster:
        result = fairness.measure(cluster.bootstrap_servers, 1)
    json.dumps(result)
    assert [row["what"] for row in result["rows"]] == ["a record a call", "record by record"]
    assert all(row["median"] > 0 for row in result["rows"])
    (goal,) = result["goals"]
    assert goal["figure"] == max(row["median"] for row in result["rows"])


def test_refuses_result_with_too_few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(*_: object) -> list[dict[str, Any]]:
        return [{"ms": 1.0, "records": 999, "settings": {}}]

    monkeypatch.setattr(processes, "finish", finish)
    monkeypatch.setattr(processes, "start", finish)
    with run_in_thread() as cluster, pytest.raises(WrongResultError, match="999 of 1000 records"):
        fairness.run_client("kafka_async", cluster.bootstrap_servers, fairness.CASES[0], 1000)
