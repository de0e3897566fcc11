"""The markers that end transactions, as the batches that a log has them in. Pure."""

from __future__ import annotations

from typing import Final, Literal

from kafka_async import kernel
from kafka_async.records.batch import (
    CONTROL_KEY,
    CONTROL_KINDS,
    CONTROL_VALUE,
    HEADER_SIZE,
    frame_batch,
)
from kafka_async.records.compression import Codec

_TYPES: Final = {kind: number for number, kind in CONTROL_KINDS.items()}


def encode_control_batch(
    kind: Literal["commit", "abort"],
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """The marker that ends a producer's transaction in a partition's log."""
    section = kernel.OpenBatch(None, HEADER_SIZE)
    section.append(
        timestamp,
        CONTROL_KEY.pack(0, _TYPES[kind]),
        CONTROL_VALUE.pack(0, coordinator_epoch),
    )
    return frame_batch(
        section.seal(),
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
