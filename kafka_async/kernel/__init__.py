"""The hot path: appending records to a batch and reading them out of one.

Two implementations of the same functions and classes: `_ckernel`, compiled, and `_pykernel`, plain
Python, which serves where no compiler was at hand at installation. `IMPLEMENTATION` says which one
is in use ("c" or "python"); the environment variable KAFKA_ASYNC_KERNEL forces one, and a forced
one that cannot be loaded is an ImportError.

The compiled kernel has a codec for messages beside it, which `compiled_codec` loads.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final, Literal

from kafka_async.kernel._shared import BinaryColumn, Columns, HeaderColumn, Outcome, Section

__all__ = [
    "IMPLEMENTATION",
    "BinaryColumn",
    "Columns",
    "Delivery",
    "HeaderColumn",
    "NextRecord",
    "OpenBatch",
    "Outcome",
    "Record",
    "RecordAppender",
    "RecordIterator",
    "RecordReader",
    "Section",
    "TopicOpenBatches",
    "compiled_codec",
    "decode_varint",
    "encode_varint",
    "murmur2",
    "parse_columns",
    "parse_records",
    "record_size_bound",
]

_MODULES: Final = {"c": "_ckernel", "python": "_pykernel"}


def _load(forced: str | None) -> Any:
    """The module of the kernel that is asked for, or the best that loads."""
    if forced not in (None, "", *_MODULES):
        raise ImportError(f"KAFKA_ASYNC_KERNEL is 'c' or 'python', not {forced!r}")
    return _import(_MODULES[forced or "c"], forced) or _import("_pykernel", forced)


def _import(name: str, forced: str | None) -> Any:
    """A module of this package, None if it cannot be loaded and need not."""
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ImportError as error:
        if forced:
            raise ImportError(
                f"KAFKA_ASYNC_KERNEL={forced}, but that kernel cannot be loaded ({error}); "
                "reinstall kafka-async where a C compiler is available, or unset the variable"
            ) from error
        return None


def compiled_codec() -> Any:
    """The module `_ccodec`, None where plain Python serves."""
    if IMPLEMENTATION == "python":
        return None
    return _import("_ccodec", os.environ.get("KAFKA_ASYNC_KERNEL"))


if TYPE_CHECKING:
    from kafka_async.kernel._pykernel import (
        Delivery,
        NextRecord,
        OpenBatch,
        Record,
        RecordAppender,
        RecordIterator,
        RecordReader,
        TopicOpenBatches,
        decode_varint,
        encode_varint,
        murmur2,
        parse_columns,
        parse_records,
        record_size_bound,
    )

    IMPLEMENTATION: Literal["c", "python"]
else:
    _kernel = _load(os.environ.get("KAFKA_ASYNC_KERNEL"))
    IMPLEMENTATION = _kernel.IMPLEMENTATION
    Delivery = _kernel.Delivery
    NextRecord = _kernel.NextRecord
    OpenBatch = _kernel.OpenBatch
    TopicOpenBatches = _kernel.TopicOpenBatches
    Record = _kernel.Record
    RecordAppender = _kernel.RecordAppender
    RecordIterator = _kernel.RecordIterator
    RecordReader = _kernel.RecordReader
    decode_varint = _kernel.decode_varint
    encode_varint = _kernel.encode_varint
    murmur2 = _kernel.murmur2
    parse_columns = _kernel.parse_columns
    parse_records = _kernel.parse_records
    record_size_bound = _kernel.record_size_bound
