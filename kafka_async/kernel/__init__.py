"""The hot path: appends records to batches and reads records from batches.

Two modules implement the same functions and classes: `_ckernel` is compiled, `_pykernel` is plain
Python for installations without a compiler. `IMPLEMENTATION` is the one in use: "c" or "python".
The environment variable KAFKA_ASYNC_KERNEL selects one; if it cannot be loaded, importing this
package raises ImportError.

`compiled_codec` returns the compiled codec of protocol messages.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final, Literal

from kafka_async.kernel.shared import (
    BinaryColumn,
    BinaryInput,
    Columns,
    HeaderColumn,
    HeaderInput,
    NumberInput,
    RowFault,
    Section,
)

__all__ = [
    "IMPLEMENTATION",
    "BinaryColumn",
    "BinaryInput",
    "Columns",
    "Delivery",
    "HeaderColumn",
    "HeaderInput",
    "NextRecord",
    "NumberInput",
    "OpenBatch",
    "Record",
    "RecordAppender",
    "RecordColumns",
    "RecordIterator",
    "RecordReader",
    "RowFault",
    "Section",
    "TopicOpenBatches",
    "compiled_codec",
    "murmur2",
    "parse_columns",
    "parse_records",
    "record_size_bound",
]

_MODULES: Final = {"c": "_ckernel", "python": "_pykernel"}

_NEWEST: Final = "RecordColumns"
"""The newest name in the compiled kernel: a module without it is out of date."""


def _load(forced: str | None) -> Any:
    """Return the selected kernel's module, by default the compiled one if it can be loaded."""
    if forced not in (None, "", *_MODULES):
        raise ImportError(f"KAFKA_ASYNC_KERNEL is 'c' or 'python', not {forced!r}")
    module = _import(_MODULES[forced or "c"], forced, needed=_NEWEST)
    return module or _import("_pykernel", forced)


def _import(name: str, forced: str | None, needed: str | None = None) -> Any:
    """Import a module of this package; return None if the import fails and was not forced.

    A module without the attribute `needed` was compiled from an older version of its source.
    """
    try:
        module = importlib.import_module(f"{__name__}.{name}")
        if needed is not None and not hasattr(module, needed):
            raise ImportError(f"it was compiled from an older version: it lacks {needed}")
        return module
    except ImportError as error:
        if forced:
            raise ImportError(
                f"KAFKA_ASYNC_KERNEL={forced}, but that kernel cannot be loaded ({error}); "
                "reinstall kafka-async where a C compiler is available, or unset the variable"
            ) from error
        return None


def compiled_codec() -> Any:
    """Return the module `_ccodec`, or None if plain Python is in use."""
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
        RecordColumns,
        RecordIterator,
        RecordReader,
        TopicOpenBatches,
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
    RecordColumns = _kernel.RecordColumns
    RecordIterator = _kernel.RecordIterator
    RecordReader = _kernel.RecordReader
    murmur2 = _kernel.murmur2
    parse_columns = _kernel.parse_columns
    parse_records = _kernel.parse_records
    record_size_bound = _kernel.record_size_bound
