"""Lists the messages that are read from the network and the generated functions that read them."""

from __future__ import annotations

import struct
from types import FunctionType
from typing import TYPE_CHECKING, Final

from kafka_async.protocol import compiler
from kafka_async.protocol.message import Request, Response
from tests.protocol.samples import all_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.protocol.message import Message


DECODERS: Final = [pair for pair in all_versions() if not issubclass(pair[0], Request)]
"""Every response and every message without an API key, in each of its versions."""

RESPONSES: Final[list[tuple[type[Response], int]]] = [
    (message, version) for message, version in DECODERS if issubclass(message, Response)
]
"""Every response in each of its versions."""


def select_message(data: bytes) -> tuple[type[Message], int]:
    """Return the message and version that the first two bytes of an input select."""
    return DECODERS[int.from_bytes(data[:2], "big") % len(DECODERS)]


def selector(message: type[Message], version: int) -> bytes:
    """Return the two bytes that select this message in this version."""
    return DECODERS.index((message, version)).to_bytes(2, "big")


def functions_of_decoder(message: type[Message], version: int) -> Iterator[FunctionType]:
    """Yield the generated functions that decode a message; large messages have several."""
    entry = compiler.plain_decoder(message, version)
    assert isinstance(entry, FunctionType)
    for value in {id(each): each for each in (entry, *entry.__globals__.values())}.values():
        if isinstance(value, FunctionType) and _is_generated(value):
            yield value


def decode_plain(message: type[Message], version: int, data: bytes) -> Message | None:
    """Decode `data` with the decoder in plain Python; return None if it raises."""
    try:
        made, end = compiler.plain_decoder(message, version)(data, 0)
    except (IndexError, struct.error, ValueError):
        return None
    return made if end == len(data) else None


def _is_generated(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith("<kafka_async.protocol ")
