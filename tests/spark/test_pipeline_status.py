"""Status of a pipeline, from what Spark reports."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.spark.pipeline.status import (
    PipelineStatus,
    QueryStatus,
    after_report,
    combined_state,
)
from kafka_async.spark.pipeline.status_file import read_status, status_path, write_status

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS: dict[str, Any] = {
    "timestamp": "2026-11-23T20:00:01.000Z",
    "batchId": 3,
    "numInputRows": 200,
    "processedRowsPerSecond": 400.0,
    "durationMs": {"addBatch": 350, "triggerExecution": 500},
    "sources": [
        {
            "endOffset": {"a": {"0": 100, "1": 50}},
            "latestOffset": {"a": {"0": 130, "1": 50}, "b": {"0": 7}},
        },
        {"endOffset": '{"c": {"0": 1}}', "latestOffset": '{"c": {"0": 3}}'},
    ],
    "stateOperators": [
        {"numRowsTotal": 10, "memoryUsedBytes": 1000},
        {"numRowsTotal": 5, "memoryUsedBytes": 500},
    ],
}


def test_status_has_the_figures_of_the_last_batch() -> None:
    assert after_report(QueryStatus("topic", "running", rows=1000), PROGRESS) == QueryStatus(
        name="topic",
        state="running",
        batch=3,
        rows=1200,
        rows_per_second=400.0,
        batch_seconds=0.5,
        lag=30 + 7 + 2,
        state_rows=15,
        state_bytes=1500,
        reported="2026-11-23T20:00:01.000Z",
    )


def test_rows_of_a_report_count_once() -> None:
    status = after_report(QueryStatus("topic"), PROGRESS)
    assert after_report(status, PROGRESS) == status
    idle = {**PROGRESS, "timestamp": "2026-11-23T20:00:11.000Z", "numInputRows": 0}
    assert after_report(status, idle).rows == 200
    later = {**PROGRESS, "timestamp": "2026-11-23T20:00:12.000Z"}
    assert after_report(after_report(status, idle), later).rows == 400


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), None, "NaN"])
def test_a_batch_without_duration_has_no_rate(rate: object) -> None:
    progress = {**PROGRESS, "processedRowsPerSecond": rate}
    assert after_report(QueryStatus("topic"), progress).rows_per_second is None


@pytest.mark.parametrize("offset", [None, "", "not JSON", "[1]", {"a": 1}, {"a": {"0": "x"}}])
def test_sources_without_offsets_have_no_lag(offset: object) -> None:
    sources = [{"endOffset": offset, "latestOffset": offset}]
    assert after_report(QueryStatus("topic"), {**PROGRESS, "sources": sources}).lag is None


def test_a_pipeline_has_the_worst_state_of_its_queries() -> None:
    running, failed = QueryStatus("a", "running"), QueryStatus("b", "failed", error="no broker")
    stopped, starting = QueryStatus("c", "stopped"), QueryStatus("d", "starting")
    assert combined_state((running, failed, stopped)) == "failed"
    assert combined_state((running, starting)) == "starting"
    assert combined_state((running, stopped)) == "running"
    assert combined_state((stopped,)) == "stopped"


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineStatus:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    queries = (QueryStatus("a", "running"), QueryStatus("b", "failed", error="no broker"))
    return PipelineStatus("word-count", "failed", os.getpid(), 1.0, 2.0, queries)


def test_file_holds_the_last_status(status: PipelineStatus) -> None:
    assert read_status("word-count") is None
    write_status(status)
    assert read_status("word-count") == status
    newer = replace(status, updated=3.0)
    write_status(newer)
    assert read_status("word-count") == newer
    assert newer.error == "no broker"
    assert [path.name for path in status_path("word-count").parent.iterdir()] == ["word-count.json"]


def test_a_process_that_is_gone_has_ended(status: PipelineStatus) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    write_status(replace(status, state="running", process_id=child))
    found = read_status("word-count")
    assert found is not None
    assert found.state == "ended"
    write_status(replace(status, state="stopped", process_id=child))
    found = read_status("word-count")
    assert found is not None
    assert found.state == "stopped"


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"name": "x"}), '{"queries": [{"x": 1}]}'])
def test_a_file_with_other_content_is_reported(status: PipelineStatus, text: str) -> None:
    write_status(status)
    status_path("word-count").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"status of a pipeline|Expecting"):
        read_status("word-count")
