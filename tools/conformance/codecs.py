"""Our codecs for messages: the one in plain Python, and the compiled one where there is one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafka_async.kernel import compiled_codec
from kafka_async.protocol import compiler

if TYPE_CHECKING:
    from collections.abc import Generator

CODECS: Final = ("compiled", "plain") if compiled_codec() else ("plain",)
"""Their names; the first is the one in use."""


@contextmanager
def plain_codec() -> Generator[None]:
    """Messages use the codec in plain Python as long as the `with` block lasts."""
    before = compiler.encoder, compiler.decoder
    encoders, decoders = dict(compiler.ENCODERS), dict(compiler.DECODERS)
    compiler.encoder, compiler.decoder = compiler.plain_encoder, compiler.plain_decoder
    compiler.ENCODERS.clear()  # messages look there first
    compiler.DECODERS.clear()
    try:
        yield
    finally:
        compiler.encoder, compiler.decoder = before
        compiler.ENCODERS.update(encoders)
        compiler.DECODERS.update(decoders)
