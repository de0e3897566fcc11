"""Comparison of single messages, and the queries for Java."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import EncodeError
from kafka_async.protocol import compiler
from kafka_async.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntryData,
    ValueData,
)
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from tools.conformance.messages import CODECS, Case, JavaMessage, cases, make_case, plain_codec
from tools.conformance.parts import Options
from tools.conformance.trees import tree_of

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

SENT = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
BYTES = SENT.encode(0)
TREE = tree_of(SENT, 0)
AGREED = JavaMessage(encoded=BYTES, equal=True, tree=TREE)


def case() -> Case:
    return Case(HeartbeatRequest, 0, 3, SENT, TREE, BYTES)


def test_equal_results_have_no_difference() -> None:
    assert list(case().differences(AGREED)) == []


@pytest.mark.parametrize(
    ("java_result", "difference"),
    [
        (JavaMessage("could not encode: no"), "Java could not encode: no"),
        (
            AGREED._replace(tree={**TREE, "generationId": 8}),
            "Java decodes our bytes differently at .generationId: 7, 8",
        ),
        (
            AGREED._replace(equal=False),
            "Java decodes our bytes to a message that does not equal the one from the JSON",
        ),
    ],
)
def test_reports_differences_in_result_of_java(java_result: JavaMessage, difference: str) -> None:
    assert list(case().differences(java_result)) == [difference]


def test_reports_other_bytes_and_decoded_values() -> None:
    other = bytearray(BYTES)
    other[4] = 9
    differ, read, *plain = case().differences(AGREED._replace(encoded=bytes(other)))
    assert differ.startswith("the bytes, ours and Java's, differ at byte 4 of 10, 10:")
    assert read == "we decode Java's bytes differently at .generation_id: 7, 589831"
    assert [each[:8] for each in plain] == (["the byte", "in plain"] if len(CODECS) == 2 else [])


def test_reports_bytes_that_we_refuse() -> None:
    found = list(case().differences(AGREED._replace(encoded=BYTES + b"\0")))
    assert found[1].startswith("we refuse Java's bytes: HeartbeatRequest version 0: 1 bytes")


def test_reports_message_that_we_refuse_to_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: HeartbeatRequest, version: int) -> bytes:
        raise EncodeError("it cannot be")

    monkeypatch.setattr(HeartbeatRequest, "encode", refuse)
    made = make_case(HeartbeatRequest, 0, 0, seed=1)
    assert list(made.differences(AGREED)) == ["we refuse to encode it: it cannot be"]


def test_ignores_inequality_in_java_with_nan() -> None:
    value = ValueData(key="k", value=float("nan"))
    sent = DescribeClientQuotasResponse(entries=[EntryData(values=[value])])
    tree, body = tree_of(sent, 0), sent.encode(0)
    case_with_nan = Case(DescribeClientQuotasResponse, 0, 0, sent, tree, body)
    unequal = JavaMessage(encoded=body, tree=tree_of(sent, 0))
    assert list(case_with_nan.differences(unequal)) == []


def test_queries_selected_messages_reproducibly() -> None:
    only = ("HeartbeatRequest:4", "EndTxnMarker")
    made = [case.query() for case in cases(Options(4, 9, only))]
    queried = [(query["message"], query["version"]) for query in made]
    assert sorted(queried) == [("EndTxnMarker", 0)] * 4 + [("HeartbeatRequest", 4)] * 4
    assert [case.query() for case in cases(Options(4, 9, only))] == made
    assert [case.query() for case in cases(Options(4, 10, only))] != made


def test_plain_codec_applies_within_block(monkeypatch: pytest.MonkeyPatch) -> None:
    versions: list[int] = []
    real = compiler.plain_encoder

    def spy(message: type[Message], version: int) -> Any:
        versions.append(version)
        return real(message, version)

    monkeypatch.setattr(compiler, "plain_encoder", spy)
    with plain_codec():
        assert SENT.encode(0) == BYTES
    assert versions == [0]
    assert compiler.encoder is not spy
