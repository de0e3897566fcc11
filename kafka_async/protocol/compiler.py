"""Turns a message's spec, for one version, into a straight-line function; on first use, and once.

No version test, no flexible test and no call for a field survives into the functions: nested
structures are unrolled in place, runs of fixed-width fields become one `struct` call. The writers
are `encoding.py` and `decoding.py`; this module runs them, executes what they wrote and keeps it.
The source is registered in `linecache`, so that tracebacks show it, and can be read with
`python -m kafka_async.protocol FetchResponse 16`.
"""

from __future__ import annotations

import linecache
import struct
import uuid
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafka_async.errors import UnsupportedVersionError
from kafka_async.protocol import wire
from kafka_async.protocol.decoding import DecoderSource
from kafka_async.protocol.encoding import EncoderSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.protocol.message import Message
    from kafka_async.protocol.source import Source
    from kafka_async.protocol.wire import BytesLike

    Encoder: TypeAlias = Callable[[Any, Callable[[BytesLike], None]], None]
    Decoder: TypeAlias = Callable[[BytesLike, int], tuple[Any, int]]

_ENCODERS: Final[dict[tuple[type[Message], int], Encoder]] = {}
_DECODERS: Final[dict[tuple[type[Message], int], Decoder]] = {}

_NAMES: Final[dict[str, object]] = {
    "Struct": struct.Struct,
    "UUID": uuid.UUID,
    "new": object.__new__,
    "pack": struct.pack,
    "unpack_from": struct.unpack_from,
    **{
        name: getattr(wire, name)
        for name in (
            "MAX_ELEMENTS",
            "MAX_STRING",
            "STRING_LENGTH",
            "UVARINT",
            "ZERO_UUID",
            "bad_length",
            "octets",
            "read_tag",
            "read_tag_count",
            "read_unknown_tags",
            "read_uvarint",
            "write_tagged",
        )
    },
    "UnsupportedVersionError": UnsupportedVersionError,
}


def encoder(message: type[Message], version: int) -> Encoder:
    """The function that hands a message's parts, in order, to the callable it is given.

    Raises:
        UnsupportedVersionError: the message has no such version.
    """
    found = _ENCODERS.get((message, version))
    if found is None:
        found = _ENCODERS[message, version] = _compiled(message, version, EncoderSource)
    return found


def decoder(message: type[Message], version: int) -> Decoder:
    """The function that reads a message at a position and gives it with the position after it.

    Raises:
        UnsupportedVersionError: the message has no such version.
    """
    found = _DECODERS.get((message, version))
    if found is None:
        found = _DECODERS[message, version] = _compiled(message, version, DecoderSource)
    return found


def source_of(message: type[Message], version: int) -> str:
    """The Python text of both functions, for people to read.

    Raises:
        UnsupportedVersionError: the message has no such version.
    """
    _require(message, version)
    return "\n\n".join(writer(message, version).text() for writer in (EncoderSource, DecoderSource))


def _compiled(message: type[Message], version: int, writer: type[Source]) -> Any:
    _require(message, version)
    source = writer(message, version)
    text = source.text()
    file = f"<kafka_async.protocol {source.name}>"
    namespace = {**_NAMES, **source.names}
    exec(compile(text, file, "exec"), namespace)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return namespace[source.name]


def _require(message: type[Message], version: int) -> None:
    if not message.VERSIONS.contains(version):
        raise UnsupportedVersionError(
            f"{message.__name__} has no version {version}, only {message.VERSIONS}"
        )
