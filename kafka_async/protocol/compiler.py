"""Makes the encoder and the decoder of a message in a version, on first use.

In plain Python they are generated functions (`encoder_source.py`, `decoder_source.py`) of
straight-line code: without tests for the version and without a call per field, with nested
structures unrolled and runs of fixed-width fields joined into one `struct` call. The source is
registered in `linecache` for tracebacks; `python -m kafka_async.protocol FetchResponse 16` prints
it.

With the compiled kernel, compiled code walks a table (`layouts.py`) instead, which is many times
faster. It handles only valid messages: on any error, the plain Python function is made and run on
the same input. Plain Python is therefore the specification, and the only source of error messages.
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
    from kafka_async.protocol.spec import VersionedStruct
    from kafka_async.protocol.wire import BytesLike

    Encoder: TypeAlias = Callable[[Any], list[BytesLike]]
    Decoder: TypeAlias = Callable[[BytesLike, int], tuple[Any, int]]

_COMPILED: Final = compiled_codec()

_FALLBACK_ERRORS: Final = (ValueError, TypeError, BufferError, OverflowError)
"""Errors of the compiled codec after which the plain Python function handles the message."""

# Hot paths read these dictionaries directly, and call `encoder` or `decoder` for a missing key.
ENCODERS: Final[dict[tuple[type[VersionedStruct], int], Encoder]] = {}
DECODERS: Final[dict[tuple[type[VersionedStruct], int], Decoder]] = {}
_PLAIN: Final[dict[tuple[type[Source], type[VersionedStruct], int], Any]] = {}

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
            "invalid_length",
            "as_buffer",
            "as_buffers",
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


def encoder(message: type[VersionedStruct], version: int) -> Encoder:
    """Return the function that encodes a message, as a list of buffers."""
    if (message, version) not in ENCODERS:
        if _can_use_layout(message):
            _add_compiled(message, version)
        else:
            ENCODERS[message, version] = plain_encoder(message, version)
    return ENCODERS[message, version]


def decoder(message: type[VersionedStruct], version: int) -> Decoder:
    """Return the function that decodes a message at a position, and returns the position after."""
    if (message, version) not in DECODERS:
        if _can_use_layout(message):
            _add_compiled(message, version)
        else:
            DECODERS[message, version] = plain_decoder(message, version)
    return DECODERS[message, version]


def plain_encoder(message: type[VersionedStruct], version: int) -> Encoder:
    """Return the encoder in plain Python, with either kernel."""
    return _plain(EncoderSource, message, version)


def plain_decoder(message: type[VersionedStruct], version: int) -> Decoder:
    """Return the decoder in plain Python, with either kernel."""
    return _plain(DecoderSource, message, version)


def _can_use_layout(message: type[VersionedStruct]) -> bool:
    """Return True if the compiled codec can handle the class.

    Subclasses of messages are excluded: they may replace slots with properties or override
    attribute access.
    """
    return bool(_COMPILED) and "SPEC" in vars(message)


def _add_compiled(message: type[VersionedStruct], version: int) -> None:
    """Make the compiled encoder and decoder, which share a table."""
    _require(message, version)
    layout = layout_of(_COMPILED.Layout, message, version)
    ENCODERS[message, version] = _compiled_encoder(layout, message, version)
    DECODERS[message, version] = _compiled_decoder(layout, message, version)


def _compiled_encoder(layout: Layout, message: type[VersionedStruct], version: int) -> Encoder:
    compiled = layout.encode

    def encode(value: Any) -> list[BytesLike]:
        try:
            return compiled(value)
        except _FALLBACK_ERRORS:
            pass
        return plain_encoder(message, version)(value)

    return encode


def _compiled_decoder(layout: Layout, message: type[VersionedStruct], version: int) -> Decoder:
    compiled = layout.decode

    def decode(buffer: BytesLike, position: int) -> tuple[Any, int]:
        try:
            return compiled(buffer, position)
        except _FALLBACK_ERRORS:
            pass
        return plain_decoder(message, version)(buffer, position)

    return decode


def source_of(message: type[VersionedStruct], version: int) -> str:
    """Return the Python source of the encoder and the decoder."""
    _require(message, version)
    return "\n\n".join(writer(message, version).text() for writer in (EncoderSource, DecoderSource))


def _plain(writer: type[Source], message: type[VersionedStruct], version: int) -> Any:
    found = _PLAIN.get((writer, message, version))
    if found is None:
        found = _PLAIN[writer, message, version] = _execute(writer, message, version)
    return found


def _execute(writer: type[Source], message: type[VersionedStruct], version: int) -> Any:
    _require(message, version)
    source = writer(message, version)
    text = source.text()
    file = f"<kafka_async.protocol {source.name}>"
    namespace = {**_NAMES, **source.names}
    exec(compile(text, file, "exec"), namespace)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return namespace[source.name]


def _require(message: type[VersionedStruct], version: int) -> None:
    if not message.VERSIONS.contains(version):
        raise UnsupportedVersionError(
            f"{message.__name__} has no version {version}, only {message.VERSIONS}"
        )
