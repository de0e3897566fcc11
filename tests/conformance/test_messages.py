"""What a comparison of one message finds, and how it asks."""

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
from tools.conformance.codecs import CODECS, plain_codec
from tools.conformance.judge import Answer, Judged
from tools.conformance.messages import Case, Tally, question, questions
from tools.conformance.parts import Options
from tools.conformance.trees import tree_of

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

SENT = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
BYTES = SENT.encode(0)
TREE = tree_of(SENT, 0)
AGREED = Judged(None, BYTES, True, TREE)


def case() -> Case:
    return Case(HeartbeatRequest, 0, 3, SENT, TREE, BYTES)


def test_what_both_write_and_read_alike_has_no_fault() -> None:
    assert list(case().faults(AGREED)) == []


@pytest.mark.parametrize(
    ("judged", "fault"),
    [
        (Judged("could not encode: no"), "Java could not encode: no"),
        (
            AGREED._replace(tree={**TREE, "generationId": 8}),
            "Java reads our bytes as something else at .generationId: 7, 8",
        ),
        (
            AGREED._replace(equal=False),
            "Java reads our bytes as a message that does not equal the one from the JSON",
        ),
    ],
)
def test_what_java_makes_of_our_bytes_is_compared(judged: Judged, fault: str) -> None:
    assert list(case().faults(judged)) == [fault]


def test_other_bytes_of_javas_are_found_and_what_we_read_from_them() -> None:
    other = bytearray(BYTES)
    other[4] = 9
    differ, read, *plain = case().faults(AGREED._replace(encoded=bytes(other)))
    assert differ.startswith("the bytes, ours and Java's, differ at byte 4 of 10, 10:")
    assert read == "we read Java's bytes as something else at .generation_id: 7, 589831"
    assert [fault[:8] for fault in plain] == (["the byte", "in plain"] if len(CODECS) == 2 else [])


def test_bytes_of_javas_that_we_cannot_read_are_found() -> None:
    found = list(case().faults(AGREED._replace(encoded=BYTES + b"\0")))
    assert found[1].startswith("we do not read Java's bytes: HeartbeatRequest version 0: 1 bytes")


def test_a_message_that_we_do_not_write_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: HeartbeatRequest, version: int) -> bytes:
        raise EncodeError("it cannot be")

    monkeypatch.setattr(HeartbeatRequest, "encode", refuse)
    asked = question(HeartbeatRequest, 0, 0, seed=1)
    assert list(asked.case.faults(AGREED)) == ["we do not write it: it cannot be"]


def test_a_number_that_is_none_makes_a_message_unequal_to_itself_for_java_too() -> None:
    value = ValueData(key="k", value=float("nan"))
    sent = DescribeClientQuotasResponse(entries=[EntryData(values=[value])])
    tree, body = tree_of(sent, 0), sent.encode(0)
    strange = Case(DescribeClientQuotasResponse, 0, 0, sent, tree, body)
    assert list(strange.faults(Judged(None, body, False, tree_of(sent, 0)))) == []


def test_only_what_is_asked_for_is_compared_and_the_same_seed_asks_the_same() -> None:
    options = Options(4, 9, ("HeartbeatRequest:4", "EndTxnMarker"))
    asked = list(questions(options))
    tally = Tally()
    for each in asked:
        tally.add(each.case)
    assert tally.versions == {("HeartbeatRequest", 4), ("EndTxnMarker", 0)}
    assert str(tally).startswith("8 messages of 2 kinds in 2 versions, ")
    assert [each.wire for each in questions(options)] == [each.wire for each in asked]
    other = Options(4, 10, options.only)
    assert [each.wire for each in questions(other)] != [each.wire for each in asked]


def test_answers_are_read_one_after_the_other() -> None:
    frame = b"\0" + b"\0\0\0\2ab" + b"\1" + b'\0\0\0\x08{"a": 1}' + b"\2" + b"\0\0\0\3why"
    answer = Answer(frame)
    assert answer.judged() == Judged(None, b"ab", True, {"a": 1})
    assert answer.judged() == Judged("why")


def test_the_codec_in_plain_python_is_used_as_long_as_the_block_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    real = compiler.plain_encoder

    def spy(message: type[Message], version: int) -> Any:
        asked.append(version)
        return real(message, version)

    monkeypatch.setattr(compiler, "plain_encoder", spy)
    with plain_codec():
        assert SENT.encode(0) == BYTES
    assert asked == [0]
    assert compiler.encoder is not spy
