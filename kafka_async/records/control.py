"""Encodes and decodes control records: the markers that end transactions in a log. Pure."""

from __future__ import annotations

from struct import Struct
from typing import Final, Literal, NamedTuple, TypeAlias

from kafka_async.errors import CorruptRecordError

__all__ = [
    "OTHER_CONTROL_RECORD",
    "ControlMarker",
    "TransactionResult",
    "decode_marker",
    "encode_marker",
]

TransactionResult: TypeAlias = Literal["commit", "abort"]

_KEY: Final = Struct(">hh")  # version, type
_VALUE: Final = Struct(">hi")  # version, coordinator epoch
_TYPES: Final[dict[TransactionResult, int]] = {"abort": 0, "commit": 1}
_RESULTS: Final[dict[int, TransactionResult]] = {number: end for end, number in _TYPES.items()}


class ControlMarker(NamedTuple):
    """The end of a transaction, and the epoch of the coordinator that ended it.

    `kind` is "other" for control records that only brokers use.
    """

    kind: Literal["commit", "abort", "other"]
    coordinator_epoch: int


OTHER_CONTROL_RECORD: Final = ControlMarker("other", -1)


def encode_marker(result: TransactionResult, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return the key and the value of the record that ends a transaction."""
    return _KEY.pack(0, _TYPES[result]), _VALUE.pack(0, coordinator_epoch)


def decode_marker(key: bytes | None, value: bytes | None) -> ControlMarker:
    """Decode a control record; raise CorruptRecordError if it is malformed."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError("the control record has no type")
    end = _RESULTS.get(_KEY.unpack_from(key)[1])
    if end is None:
        return OTHER_CONTROL_RECORD
    if value is None or len(value) < _VALUE.size:
        raise CorruptRecordError("the transaction marker has no coordinator epoch")
    return ControlMarker(end, _VALUE.unpack_from(value)[1])
