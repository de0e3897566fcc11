"""Tests of the lz4 header checksum, which is corrected in magic 0 and checked in later ones."""

from __future__ import annotations

import itertools
from typing import Any

import lz4.frame
import pytest

from kafka_async.errors import CorruptRecordError
from kafka_async.records.batch import iter_batches
from kafka_async.records.compression import Codec, decompress, with_correct_lz4_checksum, xxh32
from tests.records.test_legacy import entry

frame: Any = lz4.frame
DATA = b"some data" * 100
SHAPES = list(itertools.product((False, True), (False, True), (4, 7)))


def compressed(size: bool, linked: bool, block: int) -> bytes:
    return frame.compress(DATA, store_size=size, block_linked=linked, block_size=block)


def spoiled(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize(("size", "linked", "block"), SHAPES)
def test_corrected_checksum_matches_the_library(size: bool, linked: bool, block: int) -> None:
    right = compressed(size, linked, block)
    wrong = spoiled(right, 14 if size else 6)
    with pytest.raises(CorruptRecordError, match="damaged header"):
        decompress(Codec.lz4, wrong)
    assert with_correct_lz4_checksum(wrong) == right
    assert with_correct_lz4_checksum(right) == right


@pytest.mark.parametrize("length", range(7))
def test_truncated_header_is_not_changed(length: int) -> None:
    data = compressed(False, False, 4)[: min(length, 6)]
    assert with_correct_lz4_checksum(data) == data


@pytest.mark.parametrize(("data", "value"), [(b"", 0x02CC5D05), (b"abc", 0x32D153FF)])
def test_xxh32_matches_published_values(data: bytes, value: int) -> None:
    assert xxh32(data) == value


def test_only_magic_0_accepts_a_wrong_checksum() -> None:
    for magic, fails in [(0, False), (1, True)]:
        inner = entry(0, b"value", magic=magic)
        data = spoiled(frame.compress(inner, block_linked=False, store_size=False), 6)
        [view] = iter_batches(entry(0, data, magic=magic, attributes=int(Codec.lz4)))
        if fails:
            with pytest.raises(CorruptRecordError, match="lz4"):
                view.records()
        else:
            assert [record.value for record in view.records()] == [b"value"]
