"""Imports what a producer needs, in a thread: importing it later would block the event loop."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord

__all__ = ["preload"]

_MESSAGES: Final = ("produce", "init_producer_id")
_TRANSACTION_MESSAGES: Final = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "end_txn",
    "txn_offset_commit",
)


def preload(compression: str, *, transactional: bool) -> None:
    """Load codec, checksum and messages; raise InvalidConfigurationError without the codec."""
    # Building a batch loads the codec's library and the checksum's.
    RecordBatch.build([ProducerRecord("", b"")], compression).frame()
    for name in (*_MESSAGES, *(_TRANSACTION_MESSAGES if transactional else ())):
        import_module(f"kafka_async.protocol.messages.{name}")
