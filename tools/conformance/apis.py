"""Compares the list of messages, their versions and header versions, and whole frames.

We must have every message of the jar in the same versions. A frame is a size, the header version
that Java has for the version (headers are messages, compared by the part `messages`), and the body.
"""

from __future__ import annotations

import random
import re
import struct
import zipfile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafka_async.errors import DecodeError, KafkaError
from kafka_async.protocol import api
from kafka_async.protocol.header import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from kafka_async.protocol.message import Request, Response
from kafka_async.protocol.messages.request_header import RequestHeader
from kafka_async.protocol.messages.response_header import ResponseHeader
from kafka_async.testing.backends.jars import jar_directory
from tools.conformance.java import JavaProcess
from tools.conformance.parts import PartResult
from tools.conformance.samples import all_classes, all_versions, sample, versions
from tools.conformance.trees import byte_difference, difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafka_async.protocol.message import Message
    from kafka_async.protocol.wire import BytesLike
    from tools.conformance.parts import Options

CONVERTER: Final = re.compile(r"org/apache/kafka/common/message/(\w+)JsonConverter\.class")
FRAME_SIZE: Final = struct.Struct(">i")


class MessageVersions(NamedTuple):
    """Java's versions of a class of messages; `headers` has a pair per version from `lowest` on."""

    lowest: int
    highest: int
    key: int | None = None
    stable: int | None = None
    headers: Sequence[Sequence[int]] = ()


def run(options: Options) -> PartResult:
    """Compare the list of messages, the versions of selected messages, and a frame of each."""
    result = PartResult()
    for name in sorted(messages_of_the_jar() ^ {each.__name__ for each in all_classes()}):
        result.add_difference(options, name, "exists on one side only")
    selected = dict.fromkeys(
        message for message, version in all_versions() if options.selects(message.__name__, version)
    )
    frames = 0
    with JavaProcess() as java:
        for message in selected:
            known = MessageVersions(**java.call("versions", message=message.__name__))
            for found in version_differences(message, known):
                result.add_difference(options, message.__name__, found)
            for version, headers in enumerate(known.headers, known.lowest):
                frames += 1
                for found in frame_differences(message, version, headers, options.seed):
                    result.add_difference(options, f"{message.__name__}:{version}", found)
    result.summary = f"{len(selected)} kinds of messages, {frames} kinds of frames"
    return result


def messages_of_the_jar() -> set[str]:
    """Return the names of all messages with a JSON converter in the jar."""
    directory = jar_directory(api.KAFKA_VERSION)
    with zipfile.ZipFile(directory / f"kafka-clients-{api.KAFKA_VERSION}.jar") as jar:
        found = [CONVERTER.fullmatch(name) for name in jar.namelist()]
    classes = [match[1] for match in found if match]
    return {re.sub(r"(Request|Response|Header)Data$", r"\1", name) for name in classes}


def version_differences(message: type[Message], known: MessageVersions) -> Iterator[str]:
    """Compare the versions of a message, and the key and the last stable version of its API."""
    theirs = range(known.lowest, known.highest + 1)
    if versions(message) != theirs:
        yield f"has versions {message.VERSIONS}, Java's {theirs.start}-{theirs.stop - 1}"
    key = message.API_KEY if issubclass(message, Request | Response) else None
    if key != known.key:
        yield f"has key {key}, Java's {known.key}"
    if key is not None and api.lookup(key).versions.max != known.stable:
        yield f"is released up to {api.lookup(key).versions.max}, Java's up to {known.stable}"


def frame_differences(
    message: type[Message], version: int, headers: Sequence[int], seed: int
) -> Iterator[str]:
    """Compare the header version of a frame, and decode a header with unknown tags."""
    rng = random.Random(f"{message.__name__} {version} {seed}")
    body = sample(message, version, seed)
    number = rng.choice((0, 2**31 - 1, -(2**31), rng.randrange(2**31)))
    header, written = encode_frame(body, version, number, rng)
    header_version = headers[isinstance(body, Response)]
    expected = header.encode(header_version) + body.encode(version)
    size = FRAME_SIZE.pack(len(expected))
    if found := byte_difference(b"".join(written), size + expected):
        yield f"the frames, ours and Java's, differ at {found}"
    if header.FLEXIBLE_FROM is not None and header_version >= header.FLEXIBLE_FROM:
        header.unknown_tagged_fields = ((7, b"seven"), (900, b""))
    frame = header.encode(header_version) + body.encode(version)
    try:
        read = decode_frame(frame, header, body, version)
    except KafkaError as error:
        yield f"we refuse a frame as Java would write it: {error}"
        return
    if found := difference(read, (number, body)):
        yield f"we decode a frame, as Java would write it, differently at {found}"


def encode_frame(
    body: Message, version: int, number: int, rng: random.Random
) -> tuple[RequestHeader | ResponseHeader, list[BytesLike]]:
    """Return the header of a message, and the frame that our client or broker code encodes."""
    if isinstance(body, Response):
        return ResponseHeader(correlation_id=number), encode_response(body, version, number)
    request = cast("Request[Any]", body)
    name = rng.choice((None, "", "client", "\U0010ffff" * rng.randrange(1, 8_000)))
    header = RequestHeader(
        request_api_key=request.API_KEY,
        request_api_version=version,
        correlation_id=number,
        client_id=name,
    )
    return header, encode_request(request, version, number, name)


def decode_frame(
    frame: bytes, header: RequestHeader | ResponseHeader, body: Message, version: int
) -> tuple[int, Message]:
    """Decode the correlation id and the body of a frame with our client or broker code."""
    if isinstance(body, Response):
        return decode_response(frame, type(body), version)
    read, start = decode_request_header(frame)
    assert isinstance(header, RequestHeader)
    expected = (header.request_api_key, version, header.correlation_id, header.client_id)
    if read != expected:
        raise DecodeError(f"the header is decoded as {read}, not {expected}")
    return read.correlation_id, type(body).decode(frame[start:], version)
