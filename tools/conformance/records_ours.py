"""Record batches as our kernels write and read them."""

from __future__ import annotations

import struct
from array import array
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import kafka_async.kernel
from kafka_async.records.batch import BatchView, RecordBatch, encode_batch, iter_batches
from kafka_async.records.compression import Codec
from tools.conformance.records_java import ReadBatch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from kafka_async.kernel import BinaryColumn, HeaderColumn
    from tools.conformance.records_java import ReadRecord
    from tools.conformance.records_plan import Plan

_MODULES: Final = {"python": "_pykernel", "c": "_ckernel"}
KERNELS: Final = tuple(_MODULES)
_REPLACED: Final = ("OpenBatch", "Record", "RecordReader", "parse_records", "parse_columns")
_DELETE_HORIZON: Final = 0x40
_CONTROL_KEY: Final = struct.Struct(">hh")
"""Version and type of a control record."""
_KINDS: Final = {"abort": 0, "commit": 1}


def kernel(name: str) -> AbstractContextManager[object]:
    """Make the package use this kernel within the `with` block."""
    module = import_module(f"kafka_async.kernel.{_MODULES[name]}")
    replaced: dict[str, Any] = {each: getattr(module, each) for each in _REPLACED}
    return patch.multiple(kafka_async.kernel, **replaced)


def write(plan: Plan, level: int | None = None) -> bytes:
    """Return the batch as our producer writes it: base offset 0, no leader epoch, CreateTime."""
    batch = RecordBatch.build(plan.records, plan.codec.name, level=level)
    return batch.frame(
        producer_id=plan.producer_id,
        producer_epoch=plan.producer_epoch,
        base_sequence=plan.base_sequence,
        transactional=plan.transactional,
    )


def read(batches: bytes) -> list[ReadBatch]:
    """Return the batches as we read them."""
    return [_batch(view) for view in iter_batches(batches, topic="t", partition=0)]


def _batch(view: BatchView) -> ReadBatch:
    header = view.header
    modern = header.magic == 2
    kind, epoch = _control(view)
    view.check_crc()
    return ReadBatch(
        size=header.size,
        magic=header.magic,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        transactional=view.is_transactional,
        control=view.is_control,
        base_offset=view.base_offset,
        last_offset=view.last_offset,
        max_timestamp=header.max_timestamp,
        producer_id=view.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
        horizon=header.base_timestamp if header.attributes & _DELETE_HORIZON and modern else -1,
        records_count=header.records_count if modern else -1,
        records=[_record(record) for record in view.records()],
        control_type=kind,
        coordinator_epoch=epoch,
    )


def _record(record: kafka_async.kernel.Record) -> Any:
    return record.offset, record.timestamp, record.key, record.value, tuple(record.headers)


def _control(view: BatchView) -> tuple[int, int]:
    """Return the type of a control batch and its coordinator epoch, -1 for a value not present."""
    records = view.records() if view.is_control else []
    if not records:
        return -1, -1
    marker = view.control()
    if marker.kind == "other":  # a type for brokers: the second field of the key
        assert records[0].key is not None
        return int.from_bytes(records[0].key[2:4], "big", signed=True), -1
    return _KINDS[marker.kind], marker.coordinator_epoch


def write_control(
    kind: int, body: bytes, *, base_offset: int, timestamp: int, leader_epoch: int
) -> bytes:
    """Return a control batch of the Raft log with an encoded message."""
    section = kafka_async.kernel.OpenBatch(None, 1 << 30)
    section.append(timestamp, _CONTROL_KEY.pack(0, kind), body)
    return encode_batch(
        section.close(),
        codec=Codec.none,
        count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


# -- columns --------------------------------------------------------------------------------------


def read_columns(batches: bytes) -> list[ReadRecord]:
    """Return the records of all batches of version 2, except control batches."""
    views = iter_batches(batches, topic="t", partition=0)
    sections = [view.section() for view in views if view.header.magic == 2 and not view.is_control]
    columns = kafka_async.kernel.parse_columns(sections, "t", 0, headers=True)
    assert columns.headers is not None
    rows = zip(
        _numbers("q", columns.offsets),
        _numbers("q", columns.timestamps),
        _values(columns.keys, columns.rows),
        _values(columns.values, columns.rows),
        _headers(columns.headers, columns.rows),
        strict=True,
    )
    return list(rows)


def _numbers(kind: str, data: bytes) -> Sequence[int]:
    return array(kind, data)


def _values(column: BinaryColumn, rows: int) -> list[bytes | None]:
    ends = _numbers("i", column.offsets)
    return [
        column.data[ends[row] : ends[row + 1]] if _valid(column.validity, row) else None
        for row in range(rows)
    ]


def _valid(bitmap: bytes | None, row: int) -> bool:
    return bitmap is None or bool(bitmap[row >> 3] >> (row & 7) & 1)


def _headers(column: HeaderColumn, rows: int) -> list[tuple[tuple[str, bytes | None], ...]]:
    ends = _numbers("i", column.offsets)
    count = ends[-1]
    names = [(name or b"").decode() for name in _values(column.names, count)]
    pairs = list(zip(names, _values(column.values, count), strict=True))
    return [tuple(pairs[ends[row] : ends[row + 1]]) for row in range(rows)]
