"""Control messages and replies."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator.control import (
    CancelMessage,
    ControlMessageError,
    PauseMessage,
    RunMessage,
    job_reply,
    parse_message,
    reply,
)
from kafka_async.spark.orchestrator.job_ledger import JobState

RUN: dict[str, Any] = {
    "type": "run",
    "id": "1",
    "job": "count",
    "ranges": {"in": {"0": [0, 5]}},
    "params": {"a": 1},
    "tag": "t",
    "pool": "p",
    "timeout": 3,
    "reply_topic": "r",
}


def parse(**fields: object) -> Any:
    return parse_message(json.dumps(fields).encode(), {"count"})


def test_run_message_becomes_a_job() -> None:
    message = parse(**RUN)
    assert isinstance(message, RunMessage)
    job = message.record
    assert (job.job_id, job.job, job.scope, job.state) == ("1", "count", "count", JobState.ACCEPTED)
    assert job.ranges == (OffsetRange("in", 0, 0, 5),)
    assert (job.params, job.tag, job.pool, job.timeout) == ({"a": 1}, "t", "p", 3)


def test_backfill_has_a_separate_scope() -> None:
    message = parse(**{**RUN, "type": "backfill"})
    assert isinstance(message, RunMessage)
    assert (message.record.job, message.record.scope) == ("count", "count@1")


def test_parses_the_other_messages() -> None:
    assert parse(type="cancel", id="2", tag="t") == CancelMessage("2", "t", None)
    assert parse(type="pause", id="3") == PauseMessage("3", True, None)
    assert parse(type="resume", id="4", reply_topic="r") == PauseMessage("4", False, "r")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"type": "rum"}, "type 'rum' is not one of run, backfill"),
        ({"job": "other"}, "no job 'other': registered are count"),
        ({"job": None}, "field job"),
        ({"ranges": {"in": [1]}}, "ranges are not valid"),
        ({"type": "backfill", "ranges": {}}, "needs ranges"),
        ({"params": []}, "field params"),
        ({"tag": "a,b"}, "comma"),
        ({"timeout": 0}, "field timeout"),
        ({"timeout": True}, "field timeout"),
        ({"retries": 1}, "no field retries"),
    ],
)
def test_error_names_the_field_and_can_be_replied_to(
    changed: dict[str, object], problem: str
) -> None:
    with pytest.raises(ControlMessageError, match=problem) as caught:
        parse(**{**RUN, **changed})
    assert (caught.value.message_id, caught.value.reply_topic) == ("1", "r")


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"{}", b'{"id": 1}', b"\xff"])
def test_refuses_bytes_that_are_no_message(value: bytes | None) -> None:
    with pytest.raises(ControlMessageError):
        parse_message(value, {"count"})


def test_replies_report_the_state() -> None:
    record = parse(**RUN).record

    def document(**fields: Any) -> object:
        found = job_reply(replace(record, **fields))
        assert found is not None
        assert (found.topic, found.key) == ("r", b"1")
        return json.loads(found.value or b"")

    assert document() == {"id": "1", "status": "accepted", "job": "count"}
    assert document(state=JobState.SUCCEEDED, value=7, dead_letters=1) == {
        "id": "1", "status": "succeeded", "job": "count", "value": 7, "dead_letters": 1
    }  # fmt: skip
    assert document(state=JobState.FAILED, error="E: x") == {
        "id": "1", "status": "failed", "job": "count", "error": "E: x"
    }  # fmt: skip
    assert reply(None, "1", "done") is None
