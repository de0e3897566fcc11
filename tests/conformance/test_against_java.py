"""Comparison with Kafka's classes: `make conformance` with fewer messages per version."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from kafka_async.protocol import compiler
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.testing.backends.base import BackendUnavailableError
from tools.conformance.java import JavaError, JavaProcess
from tools.conformance.parts import PARTS, Options, load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 10
COUNTS = {"assignors": 100}
"""Other counts by part; 100 is 1,000 groups by each assignor."""


@pytest.fixture(scope="module")
def java(cannot_run: Callable[[str, object], NoReturn]) -> None:
    """Skip the tests, or fail in CI, without Java, its compiler and Kafka's jars."""
    try:
        JavaProcess().close()
    except BackendUnavailableError as error:
        cannot_run("conformance", error)


@pytest.mark.parametrize("part", PARTS)
def test_has_no_difference_from_java(part: str, java: None, seeded: int) -> None:
    result = load(part)(Options(COUNTS.get(part, COUNT), seeded))
    assert result.differences == 0, "\n".join(result.shown)
    assert result.summary


def reset_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make new codecs from the specs that the test changes."""
    for name in ("ENCODERS", "DECODERS", "_PLAIN"):
        monkeypatch.setattr(compiler, name, {})


def test_reports_field_in_wrong_order(java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = HeartbeatRequest.SPEC.fields
    reset_codecs(monkeypatch)
    monkeypatch.setattr(HeartbeatRequest.SPEC, "fields", (fields[1], fields[0], *fields[2:]))
    result = load("messages")(Options(5, 1, ("HeartbeatRequest:0",)))
    assert result.differences > 0
    assert "HeartbeatRequest:0 message" in result.shown[0]


def test_reports_dropped_value(java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    field = next(each for each in ListOffsetsRequest.SPEC.fields if each.name == "isolation_level")
    reset_codecs(monkeypatch)
    monkeypatch.setattr(field, "ignorable", not field.ignorable)
    result = load("refusals")(Options(1, 1, ("ListOffsetsRequest:1",)))
    assert result.differences == 1
    assert "isolation_level" in result.shown[0]


def test_invalid_query_raises_exception_of_java(java: None) -> None:
    with JavaProcess() as process:
        with pytest.raises(JavaError, match="ClassNotFoundException"):
            process.call("versions", message="NoSuchMessage")
        assert process.call("versions", message="EndTxnMarker") == {"lowest": 0, "highest": 0}


def test_error_of_ended_program_has_its_output(java: None) -> None:
    with (
        JavaProcess("NoSuchProgram") as process,
        pytest.raises(JavaError, match=r"status 1.*NoSuchProgram"),
    ):
        process.call("versions", message="EndTxnMarker")
