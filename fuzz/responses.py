"""Every response's decoder, in every version: two bytes choose it, the rest is the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz import captured
from fuzz.codecs import DECODERS, choice, chosen, decoded_plainly, decoder_functions
from fuzz.oracle import MESSAGE_FACTOR, comes_back, promise, refused_in_few_words, same
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
"""Random messages of each kind among the seeds."""


def run(data: bytes) -> None:
    """Decode; what decodes must come back."""
    message, version = chosen(data)
    check(message, version, data[2:])


def check(kind: type[Message], version: int, data: bytes) -> bool:
    """Whether `data` is such a message; every promise is held against it either way."""
    plain = decoded_plainly(kind, version, data)
    try:
        message = kind.decode(data, version)
    except DecodeError as error:
        refused_in_few_words(error, data)
        promise(plain is None, f"{kind.__name__} version {version}: only plain Python decodes it")
        return False
    promise(
        same(plain, message),
        f"{kind.__name__} version {version}: plain Python decodes something else",
    )
    comes_back(message, version)
    return True


def subject(data: bytes) -> Callable[[], object]:
    """Decoding alone."""
    (message, version), body = chosen(data), data[2:]

    def decode() -> object:
        try:
            return message.decode(body, version)
        except DecodeError:
            return None

    return decode


def seeds() -> Iterator[tuple[str, bytes]]:
    """Frames that Kafka's classes wrote, and random messages of every kind and version."""
    for number, frame in enumerate(captured.frames()):
        kind, version = class_of(frame.message), frame.version
        if frame.bare:
            yield f"java-{number}", choice(kind, version) + frame.raw
        elif issubclass(kind, Response):
            _, message = decode_response(frame.raw[4:], kind, version)
            yield f"java-{number}", choice(kind, version) + message.encode(version)
    for kind, version in DECODERS:
        for seed in range(SAMPLES):
            body = sample(kind, version, seed).encode(version)
            yield f"{kind.__name__}-{version}-{seed}", choice(kind, version) + body


def functions() -> Iterable[FunctionType]:
    """The generated decoders, and the primitives that they call."""
    yield from functions_of(wire)
    yield from decoder_functions()


TARGET = Target("responses", run, subject, len, seeds, functions, 16 * 1024, MESSAGE_FACTOR)
