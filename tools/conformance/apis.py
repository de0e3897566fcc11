"""Which messages Kafka has, in which versions, behind which headers; and whole frames.

Every message in the jar is one of ours in the same versions. A frame is its size, the header that
Java says goes with the version (headers are messages, and proved as such), and the body.
"""

from __future__ import annotations

import random
import re
import struct
import zipfile
from typing import TYPE_CHECKING, Any, Final, cast

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
from tools.conformance.judge import Judge, Known, known_question
from tools.conformance.parts import Outcome
from tools.conformance.samples import all_classes, sample, versions
from tools.conformance.trees import byte_difference, difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.protocol.message import Message
    from kafka_async.protocol.wire import BytesLike
    from tools.conformance.parts import Options

CONVERTER: Final = re.compile(r"org/apache/kafka/common/message/(\w+)JsonConverter\.class")
FRAME_SIZE: Final = struct.Struct(">i")


def run(options: Options) -> Outcome:
    """Compare the list of messages, the versions of those asked for, and a frame of each."""
    outcome = Outcome()
    for name in sorted(messages_of_the_jar() ^ {each.__name__ for each in all_classes()}):
        outcome.differ(options, name, "is known to only one of the two")
    asked = [each for each in all_classes() if is_wanted(options, each)]
    frames = 0
    with Judge() as judge:
        for message, known in judge.known(known_question(each, each.__name__) for each in asked):
            for fault in version_faults(message, known):
                outcome.differ(options, message.__name__, fault)
            for version in known.headers:
                frames += 1
                for fault in frame_faults(message, version, known, options.seed):
                    outcome.differ(options, f"{message.__name__}:{version}", fault)
    outcome.summary = f"{len(asked)} kinds of messages, {frames} kinds of frames"
    return outcome


def is_wanted(options: Options, message: type[Message]) -> bool:
    """Whether any version of a message is asked for."""
    wanted = [options.wants(message.__name__, version) for version in versions(message)]
    return any(wanted)


def messages_of_the_jar() -> set[str]:
    """The names of all messages that Kafka has a converter for."""
    directory = jar_directory(api.KAFKA_VERSION)
    with zipfile.ZipFile(directory / f"kafka-clients-{api.KAFKA_VERSION}.jar") as jar:
        found = [CONVERTER.fullmatch(name) for name in jar.namelist()]
    classes = [match[1] for match in found if match]
    return {re.sub(r"(Request|Response|Header)Data$", r"\1", name) for name in classes}


def version_faults(message: type[Message], known: Known) -> Iterator[str]:
    """Whether a message has the same versions, and its API the same key and state."""
    theirs = range(known.lowest, known.highest + 1)
    if versions(message) != theirs:
        yield f"has versions {message.VERSIONS}, Java's {theirs.start}-{theirs.stop - 1}"
    key = message.API_KEY if issubclass(message, Request | Response) else None
    if key != known.key:
        yield f"has key {key}, Java's {known.key}"
    if key is not None and api.lookup(key).versions.max != known.stable:
        yield f"is released up to {api.lookup(key).versions.max}, Java's up to {known.stable}"


def frame_faults(message: type[Message], version: int, known: Known, seed: int) -> Iterator[str]:
    """Whether a frame of a message has Java's header, and is read again with unknown tags in it."""
    rng = random.Random(f"{message.__name__} {version} {seed}")
    body = sample(message, version, seed)
    number = rng.choice((0, 2**31 - 1, -(2**31), rng.randrange(2**31)))
    header, written = headed(body, version, number, rng)
    shape = known.headers[version][isinstance(body, Response)]
    expected = header.encode(shape) + body.encode(version)
    size = FRAME_SIZE.pack(len(expected))
    if fault := byte_difference(b"".join(written), size + expected):
        yield f"the frames, ours and Java's, differ at {fault}"
    if header.FLEXIBLE_FROM is not None and shape >= header.FLEXIBLE_FROM:
        header.unknown_tagged_fields = ((7, b"seven"), (900, b""))
    frame = header.encode(shape) + body.encode(version)
    try:
        read = read_frame(frame, header, body, version)
    except KafkaError as error:
        yield f"we do not read a frame as Java would write it: {error}"
        return
    if fault := difference(read, (number, body)):
        yield f"we read a frame, as Java would write it, as something else at {fault}"


def headed(
    body: Message, version: int, number: int, rng: random.Random
) -> tuple[RequestHeader | ResponseHeader, list[BytesLike]]:
    """The header of a message, and the frame that clients and brokers would write."""
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


def read_frame(
    frame: bytes, header: RequestHeader | ResponseHeader, body: Message, version: int
) -> tuple[int, Message]:
    """The correlation id and the body of a frame, by the functions that clients and brokers use."""
    if isinstance(body, Response):
        return decode_response(frame, type(body), version)
    read, start = decode_request_header(frame)
    assert isinstance(header, RequestHeader)
    expected = (header.request_api_key, version, header.correlation_id, header.client_id)
    if read != expected:
        raise DecodeError(f"the header is read as {read}, not {expected}")
    return read.correlation_id, type(body).decode(frame[start:], version)
