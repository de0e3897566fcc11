"""Encodes and decodes frames: a size, a header, and a request or a response.

Flexible versions use the newer header (request header 2, response header 1), other versions the
older one (request header 1, response header 0). There are two exceptions. An ApiVersions response
always has response header 0, because a broker that does not support the requested version must
still be able to respond (KIP-511). Version 0 of ControlledShutdown, which Kafka has removed, has
request header 0, without a client id. Also because of KIP-511, the client id has a two-byte length
in every request header, flexible or not.
"""

from __future__ import annotations

from functools import cache, lru_cache
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
    "leading_throttle_time_ms",
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
    """Header of a request; the response repeats the correlation id."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(key: int, version: int) -> int:
    """Return the header version of the requests of an API version.

    An unknown version is treated as a later one. Raises UnsupportedVersionError for an unknown API.
    """
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if api.lookup(key).is_flexible(version) else 1


@lru_cache(256)
def response_header_version(key: int, version: int) -> int:
    """Return the header version of responses; raises as `request_header_version`."""
    if key == _API_VERSIONS:
        return 0
    return 1 if api.lookup(key).is_flexible(version) else 0


# -- client side ----------------------------------------------------------------------------------


def encode_request(
    request: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> list[BytesLike]:
    """Return a request as a frame with its size, in buffers; raises as `Message.encode`."""
    body = request.encode_parts(version)
    key = request.API_KEY
    tail = _request_tail(key, version, client_id)
    size = _FIXED.size + len(tail) + sum(map(len, body))
    head = _SIZED.pack(size, key, version, correlation_id)
    return coalesce([head, tail, *body])


def response_correlation_id(buffer: BytesLike) -> int:
    """Return the correlation id of a frame without its size; raise DecodeError if it is short."""
    try:
        return _SIZE.unpack_from(buffer)[0]
    except StructError as error:
        raise DecodeError(f"a response of {len(buffer)} bytes has no header") from error


def decode_response(
    buffer: BytesLike, response: type[ResponseT], version: int
) -> tuple[int, ResponseT]:
    """Return the correlation id and the response of a frame; raise as `decode_response_body`."""
    return response_correlation_id(buffer), decode_response_body(buffer, response, version)


def leading_throttle_time_ms(
    buffer: BytesLike, response: type[Response], version: int
) -> int | None:
    """Return the throttle time of a response without decoding the response.

    Return None if it is not the response's first field in that version, or the frame is too short.
    """
    if not _begins_with_throttle_time(response, version):
        return None
    start = _SIZE.size
    if response_header_version(response.API_KEY, version):
        if buffer[start : start + 1] != b"\0":  # tagged header fields, which no broker sends
            return None
        start += 1
    if len(buffer) < start + _SIZE.size:
        return None
    throttle: int = _SIZE.unpack_from(buffer, start)[0]
    return throttle


@cache
def _begins_with_throttle_time(response: type[Response], version: int) -> bool:
    field = next(iter(response.SPEC.untagged_fields(version)), None)
    return field is not None and field.name == "throttle_time_ms"


def decode_response_body(buffer: BytesLike, response: type[ResponseT], version: int) -> ResponseT:
    """Decode the response of a frame without its size; raises as `Message.decode`."""
    start = _SIZE.size
    if response_header_version(response.API_KEY, version):
        # Fast path: brokers send no tagged fields in the header, so the section is one zero byte.
        start = start + 1 if buffer[start : start + 1] == b"\0" else _skip_tags(buffer, start)
    message, end = response.decode_from(buffer, start, version)
    if end != len(buffer):
        raise _too_long(buffer, end, response, version)
    return message


# -- server side ----------------------------------------------------------------------------------


def decode_request(buffer: BytesLike) -> tuple[RequestHeader, Request[Any]]:
    """Return the header and the request of a frame without its size.

    Bytes after the end of the request are ignored, as in Kafka's brokers: some versions of
    librdkafka send such bytes.

    Raises DecodeError if they are invalid, and UnsupportedVersionError for an unknown API or
    version: `decode_request_header` still decodes the header, so that a server can respond.
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
    """Return the header of a request, and the position of the body in the frame without its size.

    An unknown version is treated like a later version of the API, because a broker must be able to
    respond to an ApiVersions request of any later version.
    """
    try:
        key, version, correlation_id = _FIXED.unpack_from(buffer)
        header_version = request_header_version(key, version)
        client_id, end = None, _FIXED.size
        if header_version:
            client_id, end = _read_client_id(buffer, end)
    except (StructError, ValueError) as error:
        raise DecodeError(f"no request header: {error}") from error
    if header_version == 2:
        end = _skip_tags(buffer, end)
    return RequestHeader(key, version, correlation_id, client_id), end


def encode_response(response: Response, version: int, correlation_id: int) -> list[BytesLike]:
    """Return a response as a frame with its size, in buffers; raises as `Message.encode`."""
    body = response.encode_parts(version)
    tags = b"\0" if response_header_version(response.API_KEY, version) else b""
    size = _SIZE.size + len(tags) + sum(map(len, body))
    return coalesce([_SIZE.pack(size), _SIZE.pack(correlation_id), tags, *body])


# -- parts of a header ----------------------------------------------------------------------------


@lru_cache(256)
def _request_tail(key: int, version: int, client_id: str | None) -> bytes:
    """Encode the client id and the tagged section, the constant part of a client's headers."""
    tail = _write_client_id(client_id)
    return tail + b"\0" if request_header_version(key, version) == 2 else tail


def _write_client_id(client_id: str | None) -> bytes:
    if client_id is None:
        return _LENGTH.pack(-1)
    try:
        encoded = client_id.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"client_id {client_id!r} is not valid Unicode") from error
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
        reason = str(error)
    # Raised outside of the `except` block, because a UnicodeDecodeError refers to the whole buffer.
    raise ValueError(reason)


def _skip_tags(buffer: BytesLike, position: int) -> int:
    """Return the position after the tagged section; Kafka defines no tagged fields of headers."""
    try:
        return skip_tags(buffer, position)
    except (IndexError, ValueError) as error:
        raise DecodeError(f"the header's tagged fields are invalid: {error}") from error


def _too_long(buffer: BytesLike, end: int, kind: type[Message], version: int) -> DecodeError:
    rest = len(buffer) - end
    return DecodeError(f"{kind.__name__} version {version}: {rest} bytes after the message")
