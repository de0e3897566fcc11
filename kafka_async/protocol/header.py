"""Frames: a size, a header, a body; and which header goes with which version.

Kafka's rule is that flexible versions have the newer header (request 2, response 1) and the others
the older one (request 1, response 0). Two exceptions are written down here and nowhere else: the
response of ApiVersions never has the newer header, because a broker that does not know the version
asked for must still be able to answer (KIP-511); and version 0 of ControlledShutdown, long removed,
had a header without a client id. The client id keeps its two-byte length in every header, for the
same reason as the first.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafka_async.errors import DecodeError, EncodeError, UnsupportedVersionError
from kafka_async.protocol import api
from kafka_async.protocol.message import coalesce
from kafka_async.protocol.wire import MAX_STRING, skip_tags

if TYPE_CHECKING:
    from typing import Any

    from kafka_async.protocol.message import Message, Request, Response
    from kafka_async.protocol.wire import BytesLike

__all__ = [
    "RequestHeader",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "decode_response_body",
    "encode_request",
    "encode_response",
    "request_header_version",
    "response_correlation_id",
    "response_header_version",
]

ResponseT = TypeVar("ResponseT", bound="Response")

_API_VERSIONS: Final = 18
_CONTROLLED_SHUTDOWN: Final = 7

_SIZE: Final = Struct(">i")
_FIXED: Final = Struct(">hhi")
_SIZED: Final = Struct(">ihhi")
_LENGTH: Final = Struct(">h")


class RequestHeader(NamedTuple):
    """What a request says about itself before its body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(key: int, version: int) -> int:
    """The version of the header that a request of API `key` in `version` has.

    Raises:
        UnsupportedVersionError: there is no such API.
    """
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if api.lookup(key).is_flexible(version) else 1


@lru_cache(256)
def response_header_version(key: int, version: int) -> int:
    """The version of the header that a response of API `key` in `version` has.

    Raises:
        UnsupportedVersionError: there is no such API.
    """
    if key == _API_VERSIONS:
        return 0
    return 1 if api.lookup(key).is_flexible(version) else 0


# -- the client's side ----------------------------------------------------------------------------


def encode_request(
    request: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> list[BytesLike]:
    """A whole frame, its size first, as buffers to be written in turn.

    Raises:
        EncodeError: a value does not fit; see `Message.encode`.
        UnsupportedVersionError: the request has no such version, or cannot be said in it.
    """
    body = request.encode_parts(version)
    key = request.API_KEY
    tail = _request_tail(key, version, client_id)
    size = _FIXED.size + len(tail) + sum(map(len, body))
    head = _SIZED.pack(size, key, version, correlation_id)
    return coalesce([head, tail, *body])


def response_correlation_id(buffer: BytesLike) -> int:
    """The number of the request that a frame answers; `buffer` begins after the frame's size.

    Raises:
        DecodeError: the frame is too short to have one.
    """
    try:
        return _SIZE.unpack_from(buffer)[0]
    except StructError as error:
        raise DecodeError(f"a response of {len(buffer)} bytes has no header") from error


def decode_response(
    buffer: BytesLike, response: type[ResponseT], version: int
) -> tuple[int, ResponseT]:
    """The number of the request that a frame answers, and the answer.

    `buffer` begins after the frame's size.

    Raises:
        DecodeError: the bytes are no such response.
        UnsupportedVersionError: the response has no such version.
    """
    return response_correlation_id(buffer), decode_response_body(buffer, response, version)


def decode_response_body(buffer: BytesLike, response: type[ResponseT], version: int) -> ResponseT:
    """The answer in a frame whose number was read before; `buffer` begins after the frame's size.

    Raises:
        DecodeError, UnsupportedVersionError: as `decode_response` does.
    """
    start = _SIZE.size
    if response_header_version(response.API_KEY, version):
        # As good as every header has no tagged field: a zero.
        start = start + 1 if buffer[start : start + 1] == b"\0" else _skip_tags(buffer, start)
    message, end = response.decode_from(buffer, start, version)
    if end != len(buffer):
        raise _too_long(buffer, end, response, version)
    return message


# -- the server's side ----------------------------------------------------------------------------


def decode_request(buffer: BytesLike) -> tuple[RequestHeader, Request[Any]]:
    """Return the header and the request of a frame; `buffer` begins after the size.

    Bytes after the end of the request are ignored, as Kafka's brokers do: some versions of
    librdkafka send more than the request.

    Raises:
        DecodeError: the bytes are no such request.
        UnsupportedVersionError: no such API, or no such stable version of it. The header can still
            be read with `decode_request_header`, so that a server can answer.
    """
    header, start = decode_request_header(buffer)
    found = api.lookup(header.api_key)
    if not found.versions.contains(header.api_version):
        raise UnsupportedVersionError(
            f"{found.name} has no version {header.api_version}, only {found.versions}"
        )
    message, _ = found.request.decode_from(buffer, start, header.api_version)
    return header, message


def decode_request_header(buffer: BytesLike) -> tuple[RequestHeader, int]:
    """The header of a frame and where its body begins; `buffer` begins after the size.

    A version that nobody knows is read like a newer one of its API, as a broker has to in order to
    answer an ApiVersions request from the future.

    Raises:
        DecodeError: the bytes are no header.
        UnsupportedVersionError: there is no such API.
    """
    try:
        key, version, correlation_id = _FIXED.unpack_from(buffer)
        shape = request_header_version(key, version)
        client_id, end = _read_client_id(buffer, _FIXED.size) if shape else (None, _FIXED.size)
    except (StructError, ValueError) as error:
        raise DecodeError(f"no request header: {error}") from error
    if shape == 2:
        end = _skip_tags(buffer, end)
    return RequestHeader(key, version, correlation_id, client_id), end


def encode_response(response: Response, version: int, correlation_id: int) -> list[BytesLike]:
    """A whole frame, its size first, as buffers to be written in turn.

    Raises:
        EncodeError: a value does not fit; see `Message.encode`.
        UnsupportedVersionError: the response has no such version, or cannot be said in it.
    """
    body = response.encode_parts(version)
    tags = b"\0" if response_header_version(response.API_KEY, version) else b""
    size = _SIZE.size + len(tags) + sum(map(len, body))
    return coalesce([_SIZE.pack(size), _SIZE.pack(correlation_id), tags, *body])


# -- pieces ---------------------------------------------------------------------------------------


@lru_cache(256)
def _request_tail(key: int, version: int, client_id: str | None) -> bytes:
    """What a request's header ends with, which every request of a connection repeats."""
    tail = _write_client_id(client_id)
    return tail + b"\0" if request_header_version(key, version) == 2 else tail


def _write_client_id(client_id: str | None) -> bytes:
    if client_id is None:
        return _LENGTH.pack(-1)
    try:
        encoded = client_id.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"client_id {client_id!r} is no Unicode text") from error
    if len(encoded) > MAX_STRING:
        raise EncodeError(f"client_id has {len(encoded)} bytes, {MAX_STRING} are allowed")
    return _LENGTH.pack(len(encoded)) + encoded


def _read_client_id(buffer: BytesLike, position: int) -> tuple[str | None, int]:
    (length,) = _LENGTH.unpack_from(buffer, position)
    start = position + _LENGTH.size
    if length == -1:
        return None, start
    end = start + length
    if length < 0 or end > len(buffer):
        raise ValueError(f"a client id of {length} bytes in {len(buffer) - start}")
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        flaw = str(error)
    raise ValueError(flaw)  # not from the error, which carries the bytes themselves


def _skip_tags(buffer: BytesLike, position: int) -> int:
    """Where a header's tagged section ends; no tagged field of a header means anything yet."""
    try:
        return skip_tags(buffer, position)
    except (IndexError, ValueError) as error:
        raise DecodeError(f"the header's tagged fields make no sense: {error}") from error


def _too_long(buffer: BytesLike, end: int, kind: type[Message], version: int) -> DecodeError:
    rest = len(buffer) - end
    return DecodeError(f"{kind.__name__} version {version}: {rest} bytes after the message")
