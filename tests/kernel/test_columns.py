"""Tests of `parse_columns`: records as the buffers of Arrow arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest

from kafka_async.errors import CorruptRecordError
from kafka_async.kernel import BinaryColumn
from tests.kernel import kernels
from tests.kernel.wire import field, record, section, varint
from tests.rows import row

HEADERS = varint(2) + field("ä".encode()) + field(None) + field(b"") + field(b"x")
FIRST = section(
    record(key=b"k", headers=HEADERS),
    record(delta=1, value=None),
    record(delta=5, key=b"", value=b""),
)
SECOND = section(record(key=b"kk", time=8), base=2000, last=0)._replace(timestamp_type=1)


def ints(code: str, data: bytes) -> list[int]:
    return list(array(code, data))


def values(column: BinaryColumn) -> list[bytes | None]:
    """Read a column by the rules of the Arrow format."""
    ends = ints("i", column.offsets)
    assert ends[0] == 0
    assert ends[-1] == len(column.data)
    rows = [column.data[a:b] for a, b in pairwise(ends)]
    return [
        row if column.validity is None or column.validity[n >> 3] >> (n & 7) & 1 else None
        for n, row in enumerate(rows)
    ]


def test_columns_contain_the_same_fields_as_records(kernel: ModuleType) -> None:
    columns = kernel.parse_columns([FIRST, SECOND], "topic", 3)
    assert columns.rows == 4
    assert values(columns.keys) == [b"k", None, b"", b"kk"]
    assert values(columns.values) == [b"value", None, b"", b"value"]
    assert ints("q", columns.offsets) == [1000, 1001, 1005, 2000]
    assert ints("q", columns.timestamps) == [5_000, 5_000, 5_000, 9_000]
    assert ints("i", columns.timestamp_types) == [0, 0, 0, 1]
    assert columns.headers is None


def test_column_without_nulls_has_no_validity_bitmap(kernel: ModuleType) -> None:
    columns = kernel.parse_columns([SECOND], "topic", 3)
    assert columns.keys == BinaryColumn(None, array("i", [0, 2]).tobytes(), b"kk")


def test_headers_column_lists_names_and_values(kernel: ModuleType) -> None:
    headers = kernel.parse_columns([FIRST, SECOND], "topic", 3, headers=True).headers
    assert headers.validity == b"\x01"
    assert ints("i", headers.offsets) == [0, 2, 2, 2, 2]
    assert values(headers.names) == ["ä".encode(), b""]
    assert values(headers.values) == [None, b"x"]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1000])
def test_headers_column_grows_with_its_headers(kernel: ModuleType, count: int) -> None:
    pairs = [
        (
            ["", "name", "\u00e4" * 40][n % 3].encode(),
            [None, b"", b"v" * n][n % 3],
        )
        for n in range(count)
    ]
    encoded = varint(count) + b"".join(field(name) + field(value) for name, value in pairs)
    data = section(record(headers=encoded), record(delta=1))
    headers = kernel.parse_columns([data], "topic", 3, headers=True).headers
    assert ints("i", headers.offsets) == [0, count, count]
    assert values(headers.names) == [name for name, _ in pairs]
    assert values(headers.values) == [value for _, value in pairs]


def test_header_names_become_valid_utf8(kernel: ModuleType) -> None:
    data = section(record(headers=varint(1) + field(b"\xff") + field(b"")))
    headers = kernel.parse_columns([data], "topic", 3, headers=True).headers
    assert headers.validity is None
    assert values(headers.names) == ["\ufffd".encode()]


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [(0, 1001, [1000]), (1001, 2000, [1001, 1005]), (1002, 5000, [1005, 2000]), (9000, 9999, [])],
)
def test_columns_contain_only_requested_offsets(
    kernel: ModuleType, start: int, end: int, offsets: list[int]
) -> None:
    columns = kernel.parse_columns([FIRST, SECOND], "topic", 3, start, end, True)
    assert ints("q", columns.offsets) == offsets
    assert len(values(columns.values)) == columns.rows == len(offsets)


def test_columns_of_no_sections_are_empty(kernel: ModuleType) -> None:
    columns = kernel.parse_columns([], "topic", 3, headers=True)
    assert columns.rows == 0
    assert columns.keys == BinaryColumn(None, b"\0\0\0\0", b"")
    assert columns.headers.validity is None


def test_validity_bitmap_of_more_than_one_byte(kernel: ModuleType) -> None:
    keys = [None if n % 3 else b"%d" % n for n in range(100)]
    data = section(*(record(delta=n, key=key) for n, key in enumerate(keys)))
    assert values(kernel.parse_columns([data], "topic", 3).keys) == keys


def test_columns_raise_the_same_error_as_records(kernel: ModuleType) -> None:
    for cut in range(1, len(bytes(FIRST.data))):
        broken = FIRST._replace(data=bytes(FIRST.data)[:cut])
        with row(cut):
            with pytest.raises(CorruptRecordError) as caught:
                kernel.parse_columns([SECOND, broken], "topic", 3)
            with pytest.raises(CorruptRecordError) as expected:
                kernel.parse_records(broken, "topic", 3)
            assert str(caught.value) == str(expected.value)
            assert caught.value.offset == expected.value.offset


def test_buffers_are_released_after_corrupt_section(kernel: ModuleType) -> None:
    good, bad = bytearray(bytes(FIRST.data)), bytearray(b"\xff" * 50)
    with pytest.raises(CorruptRecordError):
        kernel.parse_columns([FIRST._replace(data=good), FIRST._replace(data=bad)], "topic", 3)
    good.clear()
    bad.clear()


# -- sections that change or report wrong sizes ---------------------------------------------------


class ListWithWrongLength(list[Any]):
    """Reports that it is empty."""

    def __len__(self) -> int:
        return 0


class GrowingList:
    """Adds a thousand sections to its list while it is read."""

    def __init__(self) -> None:
        self.sections: list[Any] = [self]

    def __iter__(self) -> Iterator[Any]:
        self.sections += [FIRST] * 1000
        return iter(FIRST)

    def __getitem__(self, index: int) -> Any:
        return FIRST[index]

    def __getattr__(self, name: str) -> Any:
        self.sections += [FIRST] * 1000
        return getattr(FIRST, name)


def test_reads_all_sections_of_list_with_wrong_length(kernel: ModuleType) -> None:
    columns = kernel.parse_columns(ListWithWrongLength([FIRST] * 1000), "topic", 3)
    assert columns.rows == 3000


def test_ignores_sections_added_while_reading(kernel: ModuleType) -> None:
    growing = GrowingList()
    assert kernel.parse_columns(growing.sections, "topic", 3).rows == 3
    assert len(growing.sections) > 1000


class OverwritingSection:
    """Overwrites the last bytes of another section that was read before."""

    def __init__(self, data: bytearray, written: bytes) -> None:
        self._data = data
        self._written = written

    def __iter__(self) -> Iterator[Any]:
        self._data[-len(self._written) :] = self._written
        return iter(SECOND)

    def __getitem__(self, index: int) -> Any:
        return SECOND[index]


# They replace an empty name and a null value by: a name beyond the end, a null name, a value beyond
# the end, an unterminated varint.
HEADER = varint(1) + field(b"") + field(None)
CHANGED = [b"\x7e\x01", b"\x01\x01", b"\x00\x7e", b"\x80\x80"]
REFUSED = r"header's name is null|ends inside a field"


# Only for the compiled kernel: the one in plain Python copies what it reads.
@pytest.mark.parametrize("written", CHANGED)
def test_header_changed_after_validation_is_corrupt(written: bytes) -> None:
    kernel = kernels.load("c")
    data = bytearray(record(headers=HEADER))
    sections = [section(count=1)._replace(data=data), OverwritingSection(data, written)]
    with pytest.raises(CorruptRecordError, match=REFUSED) as caught:
        kernel.parse_columns(sections, "topic", 3, headers=True)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("topic", 3, 1000)
