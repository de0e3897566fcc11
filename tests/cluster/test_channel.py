"""Requests in, answers out, in the order of the connection."""

from __future__ import annotations

import pytest

from kafka_async.cluster.framing import Frame, FrameReader, FrameSizeError, ReceiveBudget
from kafka_async.cluster.in_flight_requests import InFlightRequest, InFlightRequests
from kafka_async.errors import CorrelationIdMismatchError
from kafka_async.protocol.header import decode_request_header
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest


class Talk:
    """A channel whose waiters are names."""

    def __init__(self) -> None:
        reader = FrameReader(1 << 20, ReceiveBudget(1 << 30), lambda _: None)
        self.channel: InFlightRequests[str] = InFlightRequests("me", reader, self.note)
        self.answered: list[tuple[str, bytes]] = []

    def ask(self, name: str) -> int:
        correlation_id, parts = self.channel.encode(HeartbeatRequest(group_id=name), 4)
        header, _ = decode_request_header(b"".join(parts)[4:])
        assert (header.correlation_id, header.client_id) == (correlation_id, "me")
        self.channel.sent(InFlightRequest(correlation_id, header.api_key, 4, name, 0.0, 1.0, 2.0))
        return correlation_id

    def hear(self, data: bytes) -> None:
        room = self.channel.room()
        room[: len(data)] = data
        self.channel.received(len(data))

    def note(self, exchange: InFlightRequest[str], frame: Frame) -> None:
        self.answered.append((exchange.waiter, bytes(frame[4:])))


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body


def test_answers_are_matched_in_the_order_of_the_requests() -> None:
    talk = Talk()
    ids = [talk.ask(name) for name in "abc"]
    assert len(set(ids)) == 3
    assert len(talk.channel.under_way) == 3
    talk.hear(answer(ids[0], b"1") + answer(ids[1], b"2"))
    talk.hear(answer(ids[2], b"3"))
    assert talk.answered == [("a", b"1"), ("b", b"2"), ("c", b"3")]
    assert len(talk.channel.under_way) == 0


@pytest.mark.parametrize("step", [1, 3, 8])
def test_answers_may_dribble(step: int) -> None:
    talk = Talk()
    data = b"".join(answer(talk.ask(name), name.encode()) for name in "abc")
    for start in range(0, len(data), step):
        talk.hear(data[start : start + step])
    assert talk.answered == [("a", b"a"), ("b", b"b"), ("c", b"c")]


def test_a_request_that_nobody_waits_for_keeps_its_place() -> None:
    talk = Talk()
    first, second = talk.ask("cancelled"), talk.ask("waits")
    (tombstone, _) = tuple(talk.channel.under_way)
    tombstone.waiter = "tombstone"
    talk.hear(answer(first) + answer(second, b"x"))
    assert talk.answered == [("tombstone", b""), ("waits", b"x")]


def test_an_answer_out_of_order_breaks_the_connection() -> None:
    talk = Talk()
    talk.ask("a")
    second = talk.ask("b")
    with pytest.raises(CorrelationIdMismatchError, match="an answer to request 1 came; 0 is due"):
        talk.hear(answer(second))


def test_an_answer_to_nothing_breaks_the_connection() -> None:
    with pytest.raises(CorrelationIdMismatchError, match="an answer came to no request"):
        Talk().hear(answer(77))


def test_what_came_before_the_nonsense_is_still_delivered() -> None:
    talk = Talk()
    first = talk.ask("a")
    talk.ask("b")
    with pytest.raises(CorrelationIdMismatchError):
        talk.hear(answer(first, b"1") + answer(99))
    assert talk.answered == [("a", b"1")]


def test_a_frame_too_short_for_a_header_breaks_the_connection() -> None:
    talk = Talk()
    talk.ask("a")
    with pytest.raises(FrameSizeError):
        talk.hear(b"\x00\x00\x00\x02ab")


def test_the_beginning_of_an_answer_to_nothing_breaks_the_connection() -> None:
    with pytest.raises(CorrelationIdMismatchError, match="bytes came that answer no request"):
        Talk().hear(b"\x00")
    talk = Talk()
    first = talk.ask("a")
    with pytest.raises(CorrelationIdMismatchError, match="bytes came that answer no request"):
        talk.hear(answer(first, b"1") + b"\x00\x01")
    assert talk.answered == [("a", b"1")]


def test_an_absurd_size_breaks_the_connection() -> None:
    with pytest.raises(FrameSizeError):
        Talk().hear(b"HTTP/1.1 400 Bad Request")


def test_abandoning_gives_back_what_was_under_way_oldest_first() -> None:
    talk = Talk()
    for name in "ab":
        talk.ask(name)
    assert [exchange.waiter for exchange in talk.channel.abandon()] == ["a", "b"]
    assert len(talk.channel.under_way) == 0


def test_correlation_ids_begin_again_after_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_async.cluster.in_flight_requests._MAX_CORRELATION_ID", 1)
    talk = Talk()
    assert [talk.ask(name) for name in "abc"] == [0, 1, 0]
