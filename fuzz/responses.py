"""The target "responses": two bytes select a response and its version, the rest is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz import captured
from fuzz.codecs import DECODERS, decode_plain, functions_of_decoder, select_message, selector
from fuzz.oracle import MESSAGE_FACTOR, check_error_message, check_round_trip, require, same
from fuzz.target import Target, functions_of
from kafka_async.errors import DecodeError
from kafka_async.protocol import wire
from kafka_async.protocol.header import decode_response
from kafka_async.protocol.message import Response
from tests.protocol.samples import class_of, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FunctionType

    from kafka_async.protocol.message import Message

SAMPLES = 2
"""Random messages of each kind in the seeds."""


def run(data: bytes) -> None:
    """Decode an input and check the round trip."""
    message, version = select_message(data)
    check(message, version, data[2:])


def check(kind: type[Message], version: int, data: bytes) -> bool:
    """Check every promise for `data`; return True if it is such a message."""
    plain = decode_plain(kind, version, data)
    try:
        message = kind.decode(data, version)
    except DecodeError as error:
        check_error_message(error, data)
        require(plain is None, f"{kind.__name__} version {version}: only plain Python decodes it")
        return False
    require(
        same(plain, message),
        f"{kind.__name__} version {version}: plain Python decodes something else",
    )
    check_round_trip(message, version)
    return True


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that only decodes."""
    (message, version), body = select_message(data), data[2:]

    def decode() -> object:
        try:
            return message.decode(body, version)
        except DecodeError:
            return None

    return decode


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield frames that Kafka's classes wrote, and random messages of every kind and version."""
    for number, frame in enumerate(captured.frames()):
        kind, version = class_of(frame.message), frame.version
        if frame.bare:
            yield f"java-{number}", selector(kind, version) + frame.raw
        elif issubclass(kind, Response):
            _, message = decode_response(frame.raw[4:], kind, version)
            yield f"java-{number}", selector(kind, version) + message.encode(version)
    for kind, version in DECODERS:
        for seed in range(SAMPLES):
            body = sample(kind, version, seed).encode(version)
            yield f"{kind.__name__}-{version}-{seed}", selector(kind, version) + body


def functions() -> Iterable[FunctionType]:
    """Yield the generated decoders and the primitives that they call."""
    yield from functions_of(wire)
    for message, version in DECODERS:
        yield from functions_of_decoder(message, version)


TARGET = Target(run, subject, len, seeds, functions, 16 * 1024, MESSAGE_FACTOR)
