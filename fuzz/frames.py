"""The target "frames": both frame readers split a stream; frames are decoded.

The first byte of an input determines the pieces in which the stream arrives. The next two bytes
select the response as which the frames are decoded, besides as a request. The rest is the stream,
sizes included.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, cast

from fuzz import captured
from fuzz.codecs import RESPONSES, functions_of_decoder
from fuzz.oracle import check_error_message, check_round_trip, require, same
from fuzz.target import Target, functions_of
from kafka_async.client.wire import framing
from kafka_async.embedded import network
from kafka_async.errors import DecodeError, UnsupportedVersionError
from kafka_async.protocol import api, header, wire
from kafka_async.protocol.header import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    response_correlation_id,
)
from kafka_async.protocol.message import Request, Response
from tests.protocol.samples import class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FunctionType

MAX_FRAME_SIZE: Final = 1024 * 1024
"""Bytes of the largest frame that the readers accept here."""

PREFIX_SIZE: Final = 3
"""Bytes of an input before the stream."""

MAX_PIECES: Final = 64
"""Maximum pieces in which a stream arrives, and frames of it that are decoded."""


def run(data: bytes) -> None:
    """Split the stream with both readers and decode the frames."""
    if len(data) < PREFIX_SIZE:
        return
    stream = data[PREFIX_SIZE:]
    piece = max(1 + data[0] ** 2, len(stream) // MAX_PIECES)
    by_client = _read_as_client(stream, piece)
    require(
        by_client == split_frames(stream, framing.MIN_FRAME_SIZE),
        "the client's reader returns other frames",
    )
    frames, refused = split_frames(stream)
    require(
        _read_as_broker(stream, piece) == (frames, refused), "the broker's returns other frames"
    )
    response, version = RESPONSES[int.from_bytes(data[1:PREFIX_SIZE], "big") % len(RESPONSES)]
    for frame in frames[:MAX_PIECES]:
        check_request(frame)
        check_response(frame, response, version)


def split_frames(stream: bytes, smallest: int = 0) -> tuple[list[bytes], bool]:
    """Return the frames before the first impossible size, and True if there is such a size."""
    frames: list[bytes] = []
    at = 0
    while len(stream) - at >= 4:
        (size,) = struct.unpack_from(">i", stream, at)
        if not smallest <= size <= MAX_FRAME_SIZE:
            return frames, True
        if len(stream) - at - 4 < size:
            break
        frames.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return frames, False


def _read_as_client(stream: bytes, piece: int) -> tuple[list[bytes], bool]:
    reader = framing.FrameReader(
        MAX_FRAME_SIZE, framing.ReceiveBudget(4 * MAX_FRAME_SIZE), _unblocked
    )
    frames: list[bytes] = []
    try:
        for count in _feed(reader, stream, piece):
            reader.received(count, lambda frame: frames.append(bytes(frame)))
    except framing.FrameSizeError as error:
        check_error_message(error, stream)
        return _check_prefix(frames, stream, framing.MIN_FRAME_SIZE), True
    return frames, False


def _read_as_broker(stream: bytes, piece: int) -> tuple[list[bytes], bool]:
    reader = network.RequestFrameReader(MAX_FRAME_SIZE)
    frames: list[bytes] = []
    try:
        for count in _feed(reader, stream, piece):
            frames += map(bytes, reader.received(count))
    except DecodeError as error:
        check_error_message(error, stream)
        return _check_prefix(frames, stream, 0), True
    return frames, False


def _feed(
    reader: framing.FrameReader | network.RequestFrameReader, stream: bytes, piece: int
) -> Iterator[int]:
    """Copy the stream into the reader's buffer piece by piece; yield the size of each."""
    at = 0
    while at < len(stream):
        room = reader.room()
        require(room.nbytes, "a reader has no room")
        count = min(piece, room.nbytes, len(stream) - at)
        room[:count] = stream[at : at + count]
        at += count
        yield count


def _check_prefix(frames: list[bytes], stream: bytes, smallest: int) -> list[bytes]:
    """Check frames before an impossible size; a reader may drop those of the same piece."""
    wanted, _ = split_frames(stream, smallest)
    require(frames == wanted[: len(frames)], "a reader returns other frames before its error")
    return wanted


def _unblocked(blocked: bool) -> None:
    require(not blocked, "the reader waits for a budget that is large enough")


# -- decoding frames ------------------------------------------------------------------------------


def check_request(frame: bytes) -> None:
    """Decode a frame as a request and check the round trip."""
    try:
        head, start = decode_request_header(frame)
        require(0 < start <= len(frame), "a header that ends outside its frame")
        read, request = decode_request(frame)
    except (DecodeError, UnsupportedVersionError) as error:
        check_error_message(error, frame)
        return
    require(read == head, "two readings of one header")
    written = b"".join(
        encode_request(request, head.api_version, head.correlation_id, head.client_id)
    )
    require(split_frames(written) == ([written[4:]], False), "a request's frame has another size")
    again = decode_request(written[4:])
    require(again[0] == head and same(again[1], request), "a request does not come back")


def check_response(frame: bytes, response: type[Response], version: int) -> None:
    """Decode a frame as a response and check the round trip."""
    try:
        number = response_correlation_id(frame)
        read, message = decode_response(frame, response, version)
    except DecodeError as error:
        check_error_message(error, frame)
        return
    require(read == number, "two readings of one correlation id")
    written = b"".join(encode_response(message, version, number))
    again = decode_response(written[4:], response, version)
    require(again[0] == number, "a response's number does not come back")
    check_round_trip(message, version)


# -- measurement and seeds ------------------------------------------------------------------------


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that splits the stream as a client and decodes each frame as a request."""
    stream = data[PREFIX_SIZE:]

    def read() -> object:
        frames, _ = _read_as_client(stream, len(stream))
        kept: list[object] = []
        for frame in frames:
            try:
                kept.append(decode_request(frame))
            except (DecodeError, UnsupportedVersionError):
                pass
        return kept

    return read


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield frames that Kafka's classes wrote, one by one and all together."""
    requests: list[bytes] = []
    for number, frame in enumerate(captured.frames()):
        if frame.bare:
            continue
        kind = class_of(frame.message)
        if issubclass(kind, Request):
            requests.append(frame.raw)
            kind = api.lookup(cast("type[Request[Any]]", kind).API_KEY).response
        choice = RESPONSES.index((cast("type[Response]", kind), frame.version)).to_bytes(2, "big")
        yield f"java-{number}", b"\xff" + choice + frame.raw
    for piece in (0, 1, 5, 255):
        yield f"row-{piece}", bytes([piece, 0, 0]) + b"".join(requests)
    yield "large", b"\xff\0\0" + struct.pack(">i", 70_000) + bytes(70_000) + requests[0]


def functions() -> Iterable[FunctionType]:
    """Yield the functions of both readers, the headers and every request's newest version."""
    yield from functions_of(framing, header, wire)
    for value in vars(network.RequestFrameReader).values():
        if callable(value) and hasattr(value, "__code__"):
            yield cast("FunctionType", value)
    for each in api.APIS:
        if not each.removed:
            yield from functions_of_decoder(each.request, each.versions.max)
    for response, version in RESPONSES[:1]:
        yield from functions_of_decoder(response, version)


TARGET = Target(run, subject, len, seeds, functions, overhead=256 * 1024)
