"""Turns a message's spec, for one version, into a function that encodes it and one that decodes it.

That happens on first use, and once. In plain Python the function is straight-line code: no version
test, no flexible test and no call for a field survives, nested structures are unrolled in place,
runs of fixed-width fields become one `struct` call. The writers are `encoder_source.py` and
`decoder_source.py`; this module runs them, executes what they wrote and keeps it. The source is
registered in `linecache`, so that tracebacks show it, and can be read with
`python -m kafka_async.protocol FetchResponse 16`.

Where the kernel is compiled, a table (`layouts.py`) is walked by compiled code instead, many times
as fast. It decides only on messages without any fault; about all others the function in plain
Python, made when that first happens, has the say. So there is one specification, and one place
that words complaints.
"""

from __future__ import annotations

import linecache
import struct
import uuid
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafka_async.errors import UnsupportedVersionError
from kafka_async.kernel import compiled_codec
from kafka_async.protocol import wire
from kafka_async.protocol.decoder_source import DecoderSource
from kafka_async.protocol.encoder_source import EncoderSource
from kafka_async.protocol.layouts import layout_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.protocol.codec_source import Source
    from kafka_async.protocol.layouts import Layout
    from kafka_async.protocol.message import Message
    from kafka_async.protocol.wire import BytesLike

    Encoder: TypeAlias = Callable[[Any], list[BytesLike]]
    Decoder: TypeAlias = Callable[[BytesLike, int], tuple[Any, int]]

_COMPILED: Final = compiled_codec()

_UNDECIDED: Final = (ValueError, TypeError, BufferError, OverflowError)
"""How the compiled codec says that it leaves a message or a value to plain Python."""

# What is made already, for hot paths to look into before they ask `encoder` and `decoder`.
ENCODERS: Final[dict[tuple[type[Message], int], Encoder]] = {}
DECODERS: Final[dict[tuple[type[Message], int], Decoder]] = {}
_PLAIN: Final[dict[tuple[type[Source], type[Message], int], Any]] = {}

_NAMES: Final[dict[str, object]] = {
    "Struct": struct.Struct,
    "UUID": uuid.UUID,
    "new": object.__new__,
    "pack": struct.pack,
    "unpack_from": struct.unpack_from,
    **{
        name: getattr(wire, name)
        for name in (
            "INT8",
            "MAX_ELEMENTS",
            "MAX_STRING",
            "STRING_LENGTH",
            "UVARINT",
            "ZERO_UUID",
            "bad_length",
            "octets",
            "pieces",
            "read_tag",
            "read_tag_count",
            "read_unknown_tags",
            "read_uvarint",
            "too_large",
            "write_tagged",
        )
    },
    "UnsupportedVersionError": UnsupportedVersionError,
}


def encoder(message: type[Message], version: int) -> Encoder:
    """The function that gives a message's parts, in order.

    Raises:
        UnsupportedVersionError: the message has no such version.
    """
    found = ENCODERS.get((message, version))
    if found is None:
        if _has_layout(message):
            _keep_fast(message, version)
        else:
            ENCODERS[message, version] = plain_encoder(message, version)
        found = ENCODERS[message, version]
    return found


def decoder(message: type[Message], version: int) -> Decoder:
    """The function that reads a message at a position and gives it with the position after it.

    Raises:
        UnsupportedVersionError: the message has no such version.
    """
    found = DECODERS.get((message, version))
    if found is None:
        if _has_layout(message):
            _keep_fast(message, version)
        else:
            DECODERS[message, version] = plain_decoder(message, version)
        found = DECODERS[message, version]
    return found


def plain_encoder(message: type[Message], version: int) -> Encoder:
    """Like `encoder`, the one in plain Python, whatever the kernel."""
    return _plain(EncoderSource, message, version)


def plain_decoder(message: type[Message], version: int) -> Decoder:
    """Like `decoder`, the one in plain Python, whatever the kernel."""
    return _plain(DecoderSource, message, version)


def _has_layout(message: type[Message]) -> bool:
    """Whether a table can be walked: not for classes derived from messages, which do as they like.

    They may have a property in the place of a slot, or their own way to get attributes.
    """
    return bool(_COMPILED) and "SPEC" in vars(message)


def _keep_fast(message: type[Message], version: int) -> None:
    """Make the encoder and the decoder of a message: they share a table."""
    _require(message, version)
    layout = layout_of(_COMPILED.Layout, message, version)
    ENCODERS[message, version] = _fast_encoder(layout, message, version)
    DECODERS[message, version] = _fast_decoder(layout, message, version)


def _fast_encoder(layout: Layout, message: type[Message], version: int) -> Encoder:
    fast = layout.encode

    def encode(value: Any) -> list[BytesLike]:
        try:
            return fast(value)
        except _UNDECIDED:
            pass
        return plain_encoder(message, version)(value)

    return encode


def _fast_decoder(layout: Layout, message: type[Message], version: int) -> Decoder:
    fast = layout.decode

    def decode(buffer: BytesLike, position: int) -> tuple[Any, int]:
        try:
            return fast(buffer, position)
        except _UNDECIDED:
            pass
        return plain_decoder(message, version)(buffer, position)

    return decode


def source_of(message: type[Message], version: int) -> str:
    """The Python text of both functions, for people to read.

    Raises:
        UnsupportedVersionError: the message has no such version.
    """
    _require(message, version)
    return "\n\n".join(writer(message, version).text() for writer in (EncoderSource, DecoderSource))


def _plain(writer: type[Source], message: type[Message], version: int) -> Any:
    found = _PLAIN.get((writer, message, version))
    if found is None:
        found = _PLAIN[writer, message, version] = _executed(writer, message, version)
    return found


def _executed(writer: type[Source], message: type[Message], version: int) -> Any:
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
