"""Encodes the control batches that end transactions in a log. Pure."""

from __future__ import annotations

from kafka_async import kernel
from kafka_async.records.batch import HEADER_SIZE, encode_batch
from kafka_async.records.compression import Codec
from kafka_async.records.marker import TransactionResult, encode_marker


def encode_control_batch(
    kind: TransactionResult,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Encode the control batch that ends a producer's transaction in a partition's log."""
    section = kernel.OpenBatch(None, HEADER_SIZE)
    section.append(timestamp, *encode_marker(kind, coordinator_epoch))
    return encode_batch(
        section.close(),
        codec=Codec.none,
        count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
