"""Tests of `RecordReader`: reading a section some records at a time."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import CorruptRecordError
from kafka_async.kernel.shared import Corruption, corrupt_record_error
from tests.kernel.malformed_records import FIRST, READABLE, RECORDS
from tests.kernel.wire import field, record, section, varint
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.kernel import Section

TWENTY = section(*(record(delta=n, value=b"%02d" % n) for n in range(20)))
SIZE = len(bytes(TWENTY.data)) // 20


def offsets(records: list[Any]) -> list[int]:
    return [one.offset - 1000 for one in records]


def slices(reader: Any, count: int) -> list[Any]:
    """Read all records, `count` at a time."""
    found: list[Any] = []
    while not reader.done:
        found += reader.read(count)
    return found


@pytest.mark.parametrize("count", [1, 3, 20, 21, (1 << 63) - 1])
def test_slices_contain_all_records(kernel: ModuleType, count: int) -> None:
    headers = varint(2) + field(b"name") + field(b"value") + field("ä".encode()) + field(None)
    data = section(
        *(record(delta=n * 3, time=n // 2, key=b"k" * n, headers=headers) for n in range(20))
    )
    reader = kernel.RecordReader(data, "topic", 3, 6, 1010)
    whole = kernel.parse_records(data, "topic", 3, 6, 1010)
    assert slices(reader, count) == whole
    assert len(whole) == 16


def test_read_returns_count_records_and_continues(kernel: ModuleType) -> None:
    reader = kernel.RecordReader(TWENTY, "t", 0)
    assert offsets(reader.read(3)) == [0, 1, 2]
    assert offsets(reader.read(1)) == [3]
    assert offsets(reader.read(15)) == list(range(4, 19))
    assert not reader.done
    assert offsets(reader.read(15)) == [19]
    assert reader.done
    assert reader.read(15) == []


def test_read_stops_after_size_bytes(kernel: ModuleType) -> None:
    reader = kernel.RecordReader(TWENTY, "t", 0)
    assert offsets(reader.read(20, 1)) == [0]
    assert offsets(reader.read(20, 2 * SIZE)) == [1, 2]
    assert offsets(reader.read(20, 2 * SIZE + 1)) == [3, 4, 5]
    assert offsets(reader.read(2, 20 * SIZE)) == [6, 7]


def test_skipped_records_count(kernel: ModuleType) -> None:
    reader = kernel.RecordReader(TWENTY, "t", 0, -1, 1007)
    assert reader.read(5) == []
    assert not reader.done
    assert offsets(reader.read(5)) == [7, 8, 9]


def test_reader_of_empty_section_is_done(kernel: ModuleType) -> None:
    reader = kernel.RecordReader(section(), "t", 0)
    assert reader.done
    assert reader.read(1) == []


@pytest.mark.parametrize("count", [1, 2, 100])
def test_corruption_is_raised_after_all_records_before_it(kernel: ModuleType, count: int) -> None:
    for name, (corruption, malformed) in RECORDS.items():
        data = section(FIRST, malformed, count=2, last=4)
        with row(name):
            check_records_before(kernel.RecordReader(data, "topic", 3), name, corruption, count)


def check_records_before(reader: Any, name: str, corruption: Corruption, count: int) -> None:
    found: list[Any] = []
    while len(found) < READABLE[name]:
        found += reader.read(count)
    assert len(found) == READABLE[name]
    for _ in range(2):
        assert not reader.done
        with pytest.raises(CorruptRecordError) as caught:
            reader.read(count)
        error, expected = caught.value, corrupt_record_error(corruption)
        assert (error.message, error.topic, error.partition) == (expected.message, "topic", 3)
        assert error.offset == found[-1].offset + 1


def test_corruption_of_the_first_record_has_the_base_offset(kernel: ModuleType) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        kernel.RecordReader(section(record(delta=-1)), "topic", 3).read(1)
    assert caught.value.offset == 1000


@pytest.mark.parametrize(
    ("data", "corruption"),
    [
        (section(record(), count=-1), Corruption.COUNT),
        (section(record(), count=1 << 30), Corruption.COUNT),
        (section(record(), base=-1), Corruption.OFFSETS),
    ],
)
def test_impossible_section_raises_in_constructor(
    kernel: ModuleType, data: Section, corruption: Corruption
) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        kernel.RecordReader(data, "topic", 3)
    assert (caught.value.message, caught.value.topic) == (
        corrupt_record_error(corruption).message,
        "topic",
    )


def test_reader_releases_the_buffer(kernel: ModuleType) -> None:
    buffer = bytearray(bytes(TWENTY.data))
    reader = kernel.RecordReader(TWENTY._replace(data=memoryview(buffer)), "t", 0)
    assert offsets(reader.read(2)) == [0, 1]
    del reader
    buffer.clear()  # would raise if anything still referred to it
