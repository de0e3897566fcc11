"""Frames: a stream cut by both frame readers, and every frame read as request and as response.

The first byte of an input says in what pieces the stream arrives, the next two which response the
frames are also taken for; the rest is the stream, sizes included.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, cast

from fuzz import captured
from fuzz.codecs import RESPONSES, functions_of_decoder, request_functions
from fuzz.oracle import comes_back, promise, refused_in_few_words, same
from fuzz.target import Target, functions_of
from kafka_async.cluster import framing
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

CAP: Final = 1024 * 1024
"""The largest frame that the readers accept here."""

HEAD: Final = 3
"""Bytes of an input before the stream."""

_MANY: Final = 64
"""Pieces that a stream may arrive in, and frames of it that are decoded."""


def run(data: bytes) -> None:
    """Cut the stream, and decode what was cut."""
    if len(data) < HEAD:
        return
    stream = data[HEAD:]
    piece = max(1 + data[0] ** 2, len(stream) // _MANY)
    by_client = _by_client(stream, piece)
    promise(
        by_client == cut(stream, framing.MIN_FRAME_SIZE), "the client's reader cuts other frames"
    )
    frames, refused = cut(stream)
    promise(_by_broker(stream, piece) == (frames, refused), "the broker's cuts other frames")
    response, version = RESPONSES[int.from_bytes(data[1:HEAD], "big") % len(RESPONSES)]
    for frame in frames[:_MANY]:
        check_request(frame)
        check_response(frame, response, version)


def cut(stream: bytes, smallest: int = 0) -> tuple[list[bytes], bool]:
    """The complete frames before the first impossible size, and whether there is such a size."""
    frames: list[bytes] = []
    at = 0
    while len(stream) - at >= 4:
        (size,) = struct.unpack_from(">i", stream, at)
        if not smallest <= size <= CAP:
            return frames, True
        if len(stream) - at - 4 < size:
            break
        frames.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return frames, False


def _by_client(stream: bytes, piece: int) -> tuple[list[bytes], bool]:
    reader = framing.FrameReader(CAP, framing.ReceiveBudget(4 * CAP), _unblocked)
    frames: list[bytes] = []
    try:
        for count in _arriving(reader, stream, piece):
            reader.received(count, lambda frame: frames.append(bytes(frame)))
    except framing.FrameSizeError as error:
        refused_in_few_words(error, stream)
        return _whole(frames, stream, framing.MIN_FRAME_SIZE), True
    return frames, False


def _by_broker(stream: bytes, piece: int) -> tuple[list[bytes], bool]:
    reader = network.RequestFrameReader(CAP)
    frames: list[bytes] = []
    try:
        for count in _arriving(reader, stream, piece):
            frames += map(bytes, reader.received(count))
    except DecodeError as error:
        refused_in_few_words(error, stream)
        return _whole(frames, stream, 0), True
    return frames, False


def _arriving(
    reader: framing.FrameReader | network.RequestFrameReader, stream: bytes, piece: int
) -> Iterator[int]:
    """Put the stream into the reader's room piece by piece; gives the size of each."""
    at = 0
    while at < len(stream):
        room = reader.room()
        promise(room.nbytes, "a reader has no room")
        count = min(piece, room.nbytes, len(stream) - at)
        room[:count] = stream[at : at + count]
        at += count
        yield count


def _whole(frames: list[bytes], stream: bytes, smallest: int) -> list[bytes]:
    """All frames before an impossible size: a reader may give up those that came in its piece."""
    wanted, _ = cut(stream, smallest)
    promise(frames == wanted[: len(frames)], "a reader cuts other frames before it refuses")
    return wanted


def _unblocked(blocked: bool) -> None:
    promise(not blocked, "the reader waits for a budget that is large enough")


# -- what a frame holds ---------------------------------------------------------------------------


def check_request(frame: bytes) -> None:
    """Read a frame as a request; what can be read comes back."""
    try:
        head, start = decode_request_header(frame)
        promise(0 < start <= len(frame), "a header that ends outside its frame")
        read, request = decode_request(frame)
    except (DecodeError, UnsupportedVersionError) as error:
        refused_in_few_words(error, frame)
        return
    promise(read == head, "two readings of one header")
    written = b"".join(
        encode_request(request, head.api_version, head.correlation_id, head.client_id)
    )
    promise(cut(written) == ([written[4:]], False), "a request's frame has another size")
    again = decode_request(written[4:])
    promise(again[0] == head and same(again[1], request), "a request does not come back")


def check_response(frame: bytes, response: type[Response], version: int) -> None:
    """Read a frame as that response; what can be read comes back."""
    try:
        number = response_correlation_id(frame)
        read, message = decode_response(frame, response, version)
    except DecodeError as error:
        refused_in_few_words(error, frame)
        return
    promise(read == number, "two readings of one correlation id")
    written = b"".join(encode_response(message, version, number))
    again = decode_response(written[4:], response, version)
    promise(again[0] == number, "a response's number does not come back")
    comes_back(message, version)


# -- what is measured, and what it begins with ----------------------------------------------------


def subject(data: bytes) -> Callable[[], object]:
    """Cutting the stream as a client does, and decoding each frame as a request."""
    stream = data[HEAD:]

    def read() -> object:
        frames, _ = _by_client(stream, len(stream))
        kept: list[object] = []
        for frame in frames:
            try:
                kept.append(decode_request(frame))
            except (DecodeError, UnsupportedVersionError):
                pass
        return kept

    return read


def seeds() -> Iterator[tuple[str, bytes]]:
    """Frames that Kafka's classes wrote, one at a time and in a row."""
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
    """Both readers, the headers, and the newest version of every request."""
    yield from functions_of(framing, header, wire)
    for value in vars(network.RequestFrameReader).values():
        if callable(value) and hasattr(value, "__code__"):
            yield cast("FunctionType", value)
    yield from request_functions()
    for response, version in RESPONSES[:1]:
        yield from functions_of_decoder(response, version)


TARGET = Target("frames", run, subject, len, seeds, functions, overhead=256 * 1024)
