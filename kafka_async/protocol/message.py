"""Base classes of the generated messages.

A generated class has slots and a `SPEC`; `compiler.py` makes its encoder and decoder per version on
first use. This module turns their errors into `EncodeError` and `DecodeError`.
"""

from __future__ import annotations

from struct import error as StructError
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from kafka_async.errors import DecodeError, EncodeError
from kafka_async.protocol import compiler
from kafka_async.protocol.encode_errors import diagnose
from kafka_async.protocol.spec import VersionedStruct
from kafka_async.protocol.wire import as_buffer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from kafka_async.protocol.wire import BytesLike

__all__ = ["Message", "Request", "Response"]

_BAD_VALUES: Final = (
    StructError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    BufferError,
)

COALESCE_BELOW: Final = 4096
"""Bytes. Buffers smaller than this are cheaper to join than to write one by one."""


class Message(VersionedStruct):
    """Structure with versions, which can be encoded and decoded."""

    __slots__ = ()

    def encode(self, version: int) -> bytes:
        """Encode the message, without a header.

        Raises:
            EncodeError: a value does not fit its field, or is None in a version that does not allow
                it.
            UnsupportedVersionError: the version does not exist, or a field is set that is absent
                from the version and not ignorable.
        """
        return b"".join(self.encode_parts(version))

    def encode_parts(self, version: int) -> list[BytesLike]:
        """Encode the message as buffers to be written in order, without copying records.

        There can be many small buffers; `coalesce` joins them. Raises as `encode`.
        """
        kind = type(self)
        encode = compiler.ENCODERS.get((kind, version)) or compiler.encoder(kind, version)
        try:
            return encode(self)
        except _BAD_VALUES as error:
            reason = diagnose(self, version) or str(error)
            raise EncodeError(f"{type(self).__name__} version {version}: {reason}") from error

    @classmethod
    def decode(cls, buffer: BytesLike, version: int) -> Self:
        """Decode a message without a header.

        Bytes and strings are copied. Records are views of `buffer`, which must not change.

        Raises:
            DecodeError: the bytes are not a valid message, or there are bytes after it.
            UnsupportedVersionError: the version does not exist.
        """
        buffer = as_buffer(buffer)
        message, end = cls.decode_from(buffer, 0, version)
        if end != len(buffer):
            rest = len(buffer) - end
            raise DecodeError(f"{cls.__name__} version {version}: {rest} bytes after the message")
        return message

    @classmethod
    def decode_from(cls, buffer: BytesLike, position: int, version: int) -> tuple[Self, int]:
        """Decode the message at `position`; return it and the position after it.

        Bytes after the message are ignored; otherwise it raises as `decode`.
        """
        decode = compiler.DECODERS.get((cls, version)) or compiler.decoder(cls, version)
        try:
            return decode(buffer if type(buffer) is bytes else as_buffer(buffer), position)
        except (IndexError, StructError) as error:
            raise DecodeError(f"{cls.__name__} version {version}: the bytes end early") from error
        except UnicodeDecodeError as error:
            reason = str(error)
        except ValueError as error:
            raise DecodeError(f"{cls.__name__} version {version}: {error}") from error
        # Raised outside of the `except` block: a UnicodeDecodeError refers to the whole buffer.
        raise DecodeError(f"{cls.__name__} version {version}: {reason}")


class Response(Message):
    """Response to a request."""

    __slots__ = ()

    API_KEY: ClassVar[int]


ResponseT = TypeVar("ResponseT", bound=Response)


class Request(Message, Generic[ResponseT]):
    """Request with the class of its response."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    RESPONSE: type[ResponseT]


def coalesce(parts: Sequence[BytesLike]) -> list[BytesLike]:
    """Join adjacent small buffers; large buffers are not copied."""
    if sum(map(len, parts)) < COALESCE_BELOW:
        return [b"".join(parts)] if parts else []
    out: list[BytesLike] = []
    small: list[BytesLike] = []
    for part in parts:
        if len(part) < COALESCE_BELOW:
            small.append(part)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(part)
    if small:
        out.append(b"".join(small))
    return out
