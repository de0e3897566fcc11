"""Tests of encoding requests and matching responses to them."""

from __future__ import annotations

import pytest

from kafka_async.cluster.framing import Frame, FrameReader, FrameSizeError, ReceiveBudget
from kafka_async.cluster.in_flight_requests import InFlightRequest, InFlightRequests
from kafka_async.errors import CorrelationIdMismatchError
from kafka_async.protocol.header import decode_request_header
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest


class Wire:
    """Requests in flight whose waiters are names, and the responses that were matched to them."""

    def __init__(self) -> None:
        reader = FrameReader(1 << 20, ReceiveBudget(1 << 30), lambda _: None)
        self.requests: InFlightRequests[str] = InFlightRequests("me", reader, self._on_response)
        self.responses: list[tuple[str, bytes]] = []

    def send(self, name: str) -> int:
        correlation_id, parts = self.requests.encode(HeartbeatRequest(group_id=name), 4)
        header, _ = decode_request_header(b"".join(parts)[4:])
        assert (header.correlation_id, header.client_id) == (correlation_id, "me")
        self.requests.add(InFlightRequest(correlation_id, header.api_key, 4, name, 0.0, 1.0, 2.0))
        return correlation_id

    def receive(self, data: bytes) -> None:
        room = self.requests.room()
        room[: len(data)] = data
        self.requests.received(len(data))

    def _on_response(self, request: InFlightRequest[str], frame: Frame) -> None:
        self.responses.append((request.waiter, bytes(frame[4:])))


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body


def test_matches_responses_in_request_order() -> None:
    wire = Wire()
    ids = [wire.send(name) for name in "abc"]
    assert len(set(ids)) == 3
    assert len(wire.requests.queue) == 3
    wire.receive(response(ids[0], b"1") + response(ids[1], b"2"))
    wire.receive(response(ids[2], b"3"))
    assert wire.responses == [("a", b"1"), ("b", b"2"), ("c", b"3")]
    assert len(wire.requests.queue) == 0


@pytest.mark.parametrize("step", [1, 3, 8])
def test_matches_responses_that_arrive_in_pieces(step: int) -> None:
    wire = Wire()
    data = b"".join(response(wire.send(name), name.encode()) for name in "abc")
    for start in range(0, len(data), step):
        wire.receive(data[start : start + step])
    assert wire.responses == [("a", b"a"), ("b", b"b"), ("c", b"c")]


def test_cancelled_request_keeps_its_place() -> None:
    wire = Wire()
    first, second = wire.send("first"), wire.send("second")
    (request, _) = tuple(wire.requests.queue)
    request.waiter = "cancelled"
    wire.receive(response(first) + response(second, b"x"))
    assert wire.responses == [("cancelled", b""), ("second", b"x")]


def test_raises_for_response_out_of_order() -> None:
    wire = Wire()
    wire.send("a")
    second = wire.send("b")
    with pytest.raises(CorrelationIdMismatchError, match="response to request 1 instead of 0"):
        wire.receive(response(second))


def test_raises_for_response_without_request() -> None:
    with pytest.raises(CorrelationIdMismatchError, match=r"response while no request .*id 77"):
        Wire().receive(response(77))


def test_delivers_responses_before_an_unexpected_one() -> None:
    wire = Wire()
    first = wire.send("a")
    wire.send("b")
    with pytest.raises(CorrelationIdMismatchError):
        wire.receive(response(first, b"1") + response(99))
    assert wire.responses == [("a", b"1")]


def test_raises_for_frame_without_correlation_id() -> None:
    wire = Wire()
    wire.send("a")
    with pytest.raises(FrameSizeError):
        wire.receive(b"\x00\x00\x00\x02ab")


def test_raises_for_beginning_of_response_without_request() -> None:
    with pytest.raises(CorrelationIdMismatchError, match="bytes while no request was in flight"):
        Wire().receive(b"\x00")
    wire = Wire()
    first = wire.send("a")
    with pytest.raises(CorrelationIdMismatchError, match="bytes while no request was in flight"):
        wire.receive(response(first, b"1") + b"\x00\x01")
    assert wire.responses == [("a", b"1")]


def test_raises_for_size_out_of_range() -> None:
    with pytest.raises(FrameSizeError):
        Wire().receive(b"HTTP/1.1 400 Bad Request")


def test_close_returns_requests_in_flight_oldest_first() -> None:
    wire = Wire()
    for name in "ab":
        wire.send(name)
    assert [request.waiter for request in wire.requests.close()] == ["a", "b"]
    assert len(wire.requests.queue) == 0


def test_correlation_ids_wrap_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_async.cluster.in_flight_requests._MAX_CORRELATION_ID", 1)
    wire = Wire()
    assert [wire.send(name) for name in "abc"] == [0, 1, 0]
