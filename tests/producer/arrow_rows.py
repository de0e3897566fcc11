"""Rows of records as Arrow data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.types import ProducerRecord

pa: Any = pytest.importorskip("pyarrow")

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA: Any = pa.schema(
    [
        ("topic", pa.string()),
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("headers", pa.list_(HEADER)),
    ]
)


def batch_of(records: Sequence[ProducerRecord]) -> Any:
    return pa.RecordBatch.from_pylist(
        [
            {
                **{name: getattr(record, name) for name in SCHEMA.names},
                "headers": [{"key": name, "value": value} for name, value in record.headers],
            }
            for record in records
        ],
        schema=SCHEMA,
    )
