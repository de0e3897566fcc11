"""Writes and reads batches with our kernels, in the representation of Records.java."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import kafka_async.kernel
from kafka_async.records.batch import BatchView, RecordBatch, iter_batches
from tools.conformance.records_java import ReadBatch

if TYPE_CHECKING:
    from collections.abc import Generator

    from tools.conformance.records_plan import Plan

_MODULES: Final = {"python": "_pykernel", "c": "_ckernel"}
KERNELS: Final = tuple(_MODULES)
_REPLACED: Final = ("OpenBatch", "Record", "RecordReader", "parse_records", "parse_columns")
_DELETE_HORIZON: Final = 0x40
_KINDS: Final = {"abort": 0, "commit": 1}


@contextmanager
def kernel(name: str) -> Generator[None]:
    """Make the package use this kernel within the `with` block."""
    module = import_module(f"kafka_async.kernel.{_MODULES[name]}")
    before = {name: getattr(kafka_async.kernel, name) for name in _REPLACED}
    try:
        for replaced in _REPLACED:
            setattr(kafka_async.kernel, replaced, getattr(module, replaced))
        yield
    finally:
        for replaced, original in before.items():
            setattr(kafka_async.kernel, replaced, original)


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
    """Return the batches as we read them.

    Raises:
        CorruptRecordError: a batch is corrupt.
    """
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
