"""Kafka's own classes agree with us: `make conformance`, with fewer messages of each version."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_async.protocol import compiler
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.environment import in_ci
from tools.conformance.java import JavaError, JavaProcess, compile_java
from tools.conformance.parts import PARTS, Options, load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 25


@pytest.fixture(scope="module")
def java(record_testsuite_property: Callable[[str, object], None]) -> None:
    """Java, its compiler and Kafka's jars; without them nothing here runs, and in CI it fails."""
    try:
        compile_java("Judge.java")
    except BackendUnavailableError as error:
        record_testsuite_property("not_run", f"conformance ({error})")
        report = pytest.fail if in_ci() else pytest.skip
        report(f"no conformance: {error}")


@pytest.mark.parametrize("part", PARTS)
def test_kafkas_own_classes_agree(part: str, java: None, seeded: int) -> None:
    outcome = load(part)(Options(COUNT, seeded))
    assert outcome.differences == 0, "\n".join(outcome.shown)
    assert outcome.summary


def forget_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let codecs be made anew, of what this test changes."""
    for name in ("ENCODERS", "DECODERS", "_PLAIN"):
        monkeypatch.setattr(compiler, name, {})


def test_a_field_in_the_wrong_place_is_found(java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = HeartbeatRequest.SPEC.fields
    forget_codecs(monkeypatch)
    monkeypatch.setattr(HeartbeatRequest.SPEC, "fields", (fields[1], fields[0], *fields[2:]))
    outcome = load("messages")(Options(5, 1, ("HeartbeatRequest:0",)))
    assert outcome.differences > 0
    assert "HeartbeatRequest:0 message" in outcome.shown[0]


def test_a_value_dropped_that_must_not_be_is_found(
    java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = next(each for each in ListOffsetsRequest.SPEC.fields if each.name == "isolation_level")
    forget_codecs(monkeypatch)
    monkeypatch.setattr(field, "ignorable", not field.ignorable)
    outcome = load("refusals")(Options(1, 1, ("ListOffsetsRequest:1",)))
    assert outcome.differences == 1
    assert "isolation_level" in outcome.shown[0]


def test_a_question_that_makes_no_sense_is_answered_with_what_java_says(java: None) -> None:
    with JavaProcess("Judge", compile_java("Judge.java")) as judge:
        with pytest.raises(JavaError, match="BufferUnderflowException"):
            judge.ask(b"J")
        assert judge.ask(b"") == b""


def test_a_program_that_ends_is_an_error_with_its_last_words(java: None) -> None:
    with (
        JavaProcess("NoSuchProgram", compile_java("Judge.java")) as judge,
        pytest.raises(JavaError, match=r"status 1.*NoSuchProgram"),
    ):
        judge.ask(b"")
