"""Our codecs of messages: plain Python, and the compiled one if it is built."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafka_async.kernel import compiled_codec
from kafka_async.protocol import compiler

if TYPE_CHECKING:
    from collections.abc import Generator

CODECS: Final = ("compiled", "plain") if compiled_codec() else ("plain",)
"""Names of the available codecs; messages use the first one."""


@contextmanager
def plain_codec() -> Generator[None]:
    """Make messages use the codec in plain Python within the `with` block."""
    before = compiler.encoder, compiler.decoder
    encoders, decoders = dict(compiler.ENCODERS), dict(compiler.DECODERS)
    compiler.encoder, compiler.decoder = compiler.plain_encoder, compiler.plain_decoder
    compiler.ENCODERS.clear()  # messages read these dictionaries first
    compiler.DECODERS.clear()
    try:
        yield
    finally:
        compiler.encoder, compiler.decoder = before
        compiler.ENCODERS.update(encoders)
        compiler.DECODERS.update(decoders)
