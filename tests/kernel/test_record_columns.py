"""Tests of appending the rows of Arrow columns to open batches."""

from __future__ import annotations

import copy
import gc
import itertools
import sys
from array import array
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import IllegalStateError
from kafka_async.kernel import RowFault
from tests.kernel import kernels
from tests.kernel.arrow_input import binary, header_lists, numbers

if TYPE_CHECKING:
    from kafka_async.types import Headers

TIME = 1_700_000_000_000
ROOM = 1 << 20
LIMIT = 1 << 20


class Row(NamedTuple):
    """The fields of a record."""

    value: bytes | None = b"v"
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers | None = None


ROWS = [
    Row(b"plain"),
    Row(None, b"tombstone"),
    Row(b"", b""),
    Row(b"with headers", headers=[("name", b"x"), ("null", None), ("", b""), ("héader", b"\xff")]),
    Row(b"no headers", headers=[]),
    Row(b"partition", b"key", 2),
    Row(b"partition", None, 0),
    Row(b"time", timestamp=TIME - 5),
    Row(b"long" * 100, b"k" * 70, 1, TIME + 1_000_000, [("n" * 200, b"v" * 300)]),
    Row(b"negative", timestamp=-1),
]


def columns(kernel: Any, rows: list[Row], *, start: int = 0, wide: bool = False) -> Any:
    """Return the rows as columns; columns that are null everywhere are left out."""
    shape: Any = {"start": start, "wide": wide}
    keys = [row.key for row in rows]
    partitions = [row.partition for row in rows]
    timestamps = [row.timestamp for row in rows]
    headers = [row.headers for row in rows]
    return kernel.RecordColumns(
        binary([row.value for row in rows], **shape),
        binary(keys, **shape) if any(key is not None for key in keys) else None,
        numbers(partitions, **shape) if any(one is not None for one in partitions) else None,
        numbers(timestamps, start=start, wide=True)
        if any(one is not None for one in timestamps)
        else None,
        header_lists(headers, **shape) if any(one is not None for one in headers) else None,
    )


def open_topic(kernel: Any, partitions: int = 3, capacity: int = ROOM) -> tuple[Any, list[Any]]:
    """Return a topic and its open batches; the sticky partition is 1."""
    topic = kernel.TopicOpenBatches()
    topic.partitions = partitions
    batches = [kernel.OpenBatch(None, capacity) for _ in range(partitions)]
    for partition, batch in enumerate(batches):
        topic.add(partition, batch)
    topic.sticky_partition = 1
    return topic, batches


def state(batches: list[Any]) -> list[tuple[Any, ...]]:
    found = [(batch.count, batch.base_timestamp, batch.max_timestamp) for batch in batches]
    return [(*row, batch.close()) for row, batch in zip(found, batches, strict=True)]


def append_each(kernel: Any, rows: list[Row]) -> list[tuple[Any, ...]]:
    topic, batches = open_topic(kernel)
    for row in rows:
        stamp = TIME if row.timestamp is None else row.timestamp
        assert topic.append(stamp, row.key, row.value, row.headers or (), row.partition) is not None
    return state(batches)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("start", [0, 1, 13])
def test_rows_become_the_same_records_as_objects(
    kernel: ModuleType, start: int, wide: bool
) -> None:
    topic, batches = open_topic(kernel)
    made = columns(kernel, ROWS, start=start, wide=wide)
    assert made.rows == len(ROWS)
    assert topic.append_rows(TIME, made, 0, len(ROWS)) == len(ROWS)
    assert state(batches) == append_each(kernel, ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_each_kind_of_row_becomes_the_same_record_as_objects(kernel: ModuleType, row: Row) -> None:
    topic, batches = open_topic(kernel)
    assert topic.append_rows(TIME, columns(kernel, [row]), 0, 1) == 1
    assert state(batches) == append_each(kernel, [row])


RECORDS = st.builds(
    Row,
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=20),
    st.none() | st.integers(0, 2),
    st.none() | st.integers(-1, 2**63 - 2),
    st.none()
    | st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), max_size=5), st.none() | st.binary(max_size=5)
        ),
        max_size=3,
    ),
)


@given(rows=st.lists(RECORDS, max_size=20), start=st.integers(0, 9), wide=st.booleans())
def test_any_rows_become_the_same_records_on_both_kernels(
    rows: list[Row], start: int, wide: bool
) -> None:
    results: list[Any] = []
    for name in kernels.NAMES:
        kernel = kernels.load(name)
        topic, batches = open_topic(kernel)
        made = columns(kernel, rows, start=start, wide=wide)
        assert topic.append_rows(TIME, made, 0, len(rows)) == len(rows)
        results.append(state(batches))
        assert results[-1] == append_each(kernel, rows)
        for index, row in enumerate(rows):
            key, value, headers, partition, timestamp = made.record(index)
            assert (value, key, partition, timestamp) == row[:4]
            assert list(headers) == list(row.headers or ())
    assert results[0] == results[1]


def test_selection_names_the_rows_and_their_order(kernel: ModuleType) -> None:
    topic, batches = open_topic(kernel)
    selection = array("q", [9, 3, 0, 5, 8])
    assert topic.append_rows(TIME, columns(kernel, ROWS), 1, 4, selection) == 4
    assert state(batches) == append_each(kernel, [ROWS[3], ROWS[0], ROWS[5]])


def test_stops_at_the_row_that_does_not_fit(kernel: ModuleType) -> None:
    topic, batches = open_topic(kernel, capacity=20)
    made = columns(kernel, [Row(b"0123456789"), Row(b"0123456789"), Row(b"")])
    assert topic.append_rows(TIME, made, 0, 3) == 1
    assert [batch.count for batch in batches] == [0, 1, 0]


def test_stops_at_a_partition_without_an_open_batch(kernel: ModuleType) -> None:
    topic, batches = open_topic(kernel)
    topic.remove(2)
    rows = [Row(partition=0), Row(partition=2), Row(partition=0)]
    assert topic.append_rows(TIME, columns(kernel, rows), 0, 3) == 1
    topic.remove(1)
    assert topic.append_rows(TIME, columns(kernel, [Row()]), 0, 1) == 0
    assert [batch.count for batch in batches] == [1, 0, 0]


@pytest.mark.parametrize("partition", [-1, 3, 2**31 - 1])
def test_stops_at_a_partition_that_does_not_exist(kernel: ModuleType, partition: int) -> None:
    topic, _ = open_topic(kernel)
    assert topic.append_rows(TIME, columns(kernel, [Row(partition=partition)]), 0, 1) == 0


def test_appends_nothing_while_the_partition_count_is_unknown(kernel: ModuleType) -> None:
    topic, _ = open_topic(kernel)
    topic.partitions = 0
    for row in (Row(), Row(key=b"k"), Row(partition=0)):
        assert topic.append_rows(TIME, columns(kernel, [row]), 0, 1) == 0


def test_row_for_a_closed_batch_raises(kernel: ModuleType) -> None:
    topic, batches = open_topic(kernel)
    batches[1].close()
    with pytest.raises(IllegalStateError):
        topic.append_rows(TIME, columns(kernel, [Row()]), 0, 1)


def test_key_selects_the_same_partition_as_in_java(kernel: ModuleType) -> None:
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    topic, batches = open_topic(kernel, partitions=12)
    topic.append_rows(TIME, columns(kernel, [Row(key=key) for key in hashes]), 0, 3)
    expected = [(java & 0x7FFF_FFFF) % 12 for java in hashes.values()]
    assert [n for n, batch in enumerate(batches) for _ in range(batch.count)] == sorted(expected)


def find_fault(kernel: Any, rows: list[Row], **limits: int) -> Any:
    return columns(kernel, rows).find_fault(
        limits.get("limit", LIMIT), limits.get("partitions", 3), 0, len(rows)
    )


def test_good_rows_have_no_fault(kernel: ModuleType) -> None:
    assert find_fault(kernel, ROWS) is None


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (Row(partition=-1), RowFault.PARTITION),
        (Row(partition=3), RowFault.PARTITION),
        (Row(timestamp=-2), RowFault.TIMESTAMP),
        (Row(timestamp=2**63 - 1), RowFault.TIMESTAMP),
        (Row(b"v" * LIMIT), RowFault.SIZE),
        (Row(headers=[("n", b"v" * LIMIT)]), RowFault.SIZE),
    ],
)
def test_first_fault_is_found(kernel: ModuleType, bad: Row, fault: RowFault) -> None:
    assert find_fault(kernel, [Row(), bad, bad]) == (1, fault)
    made = columns(kernel, [bad, Row(), bad])
    assert made.find_fault(LIMIT, 3, 0, 2, array("q", [1, 2])) == (2, fault)
    assert made.find_fault(LIMIT, 3, 1, 2) is None


def test_fault_of_size_begins_where_the_bound_of_a_record_exceeds_the_limit(
    kernel: ModuleType,
) -> None:
    row = Row(b"value", b"key", headers=[("name", b"x"), ("null", None)])
    bound = kernel.record_size_bound(row.key, row.value, row.headers)
    assert find_fault(kernel, [row], limit=bound) is None
    assert find_fault(kernel, [row], limit=bound - 1) == (0, RowFault.SIZE)


@pytest.mark.parametrize("name", [None, b"\xff", b"a\xed\xa0\x80"])
def test_name_of_a_header_is_text(kernel: ModuleType, name: bytes | None) -> None:
    lists = header_lists([[("ok", b"")], [("to be replaced", b"")]])
    lists = lists._replace(names=binary([b"?", b"?", b"?", b"ok", name]))
    made = kernel.RecordColumns(binary([b"", b""]), headers=lists)
    assert made.find_fault(LIMIT, 3, 0, 2) == (1, RowFault.HEADER_NAME)
    wrong = "null" if name is None else "not UTF-8"
    topic, batches = open_topic(kernel)
    for use in (lambda: made.record(1), lambda: topic.append_rows(TIME, made, 1, 2)):
        with pytest.raises(ValueError, match=f"the name of a header is {wrong}"):
            use()
    assert state(batches)[1][0] == 0


def is_text(name: bytes) -> bool:
    """Return True if Python decodes the bytes."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_names_of_headers_are_text_that_python_decodes(kernel: ModuleType) -> None:
    firsts = bytes.fromhex("007f80bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5ff")
    seconds, others = bytes.fromhex("7f808f909fa0bfc0"), bytes.fromhex("7f80bfc0")
    parts = (firsts, seconds, others, others)
    names = [bytes(name) for size in range(5) for name in itertools.product(*parts[:size])]
    values = binary([b""] * len(names))
    lists = header_lists([[("", b"")]] * len(names))
    lists = lists._replace(names=binary([b"?", b"?", b"?", *names]))
    made = kernel.RecordColumns(values, headers=lists)
    for row, name in enumerate(names):
        expected = None if is_text(name) else (row, RowFault.HEADER_NAME)
        assert made.find_fault(LIMIT, 3, row, row + 1) == expected, name.hex()


@pytest.mark.parametrize("stamp", [-2, 2**63 - 1, 2**70])
def test_default_timestamp_out_of_range_raises(kernel: ModuleType, stamp: int) -> None:
    topic, _ = open_topic(kernel)
    with pytest.raises(ValueError, match="a timestamp is -1 to"):
        topic.append_rows(stamp, columns(kernel, [Row()]), 0, 1)


def test_timestamp_of_a_row_out_of_range_raises(kernel: ModuleType) -> None:
    topic, batches = open_topic(kernel)
    with pytest.raises(ValueError, match=r"a timestamp is -1 to .*, not -2"):
        topic.append_rows(TIME, columns(kernel, [Row(timestamp=-2)]), 0, 1)
    assert batches[1].count == 0


# -- wrong buffers --------------------------------------------------------------------------------


def test_columns_of_different_length_raise(kernel: ModuleType) -> None:
    for wrong in (binary([b""]), None), (None, numbers([1])):
        with pytest.raises(ValueError, match="columns of 1 and 2 rows"):
            kernel.RecordColumns(binary([b"", b""]), *wrong)


GOOD = binary([b"a", None, b"c"], start=2)
SHORT = [
    GOOD._replace(offsets=bytes(GOOD.offsets)[:-1]),
    GOOD._replace(validity=b""),
    GOOD._replace(start=6),
    GOOD._replace(start=-1),
    GOOD._replace(rows=2**60),
]


@pytest.mark.parametrize("wrong", SHORT)
def test_buffers_that_are_too_short_raise(kernel: ModuleType, wrong: Any) -> None:
    with pytest.raises(ValueError, match="column value do not have Arrow's layout"):
        kernel.RecordColumns(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        numbers([1, 2, None], start=2)._replace(data=b"\0" * 19),
        numbers([1, 2, None], start=2)._replace(validity=b""),
        numbers([1, 2, None], start=2)._replace(start=-1),
    ],
)
def test_numbers_that_are_too_short_raise(kernel: ModuleType, wrong: Any) -> None:
    for column, name in ((1, "partition"), (2, "timestamp")):
        arguments: list[Any] = [None, None, None]
        arguments[column] = wrong
        with pytest.raises(ValueError, match=f"column {name} do not have Arrow's layout"):
            kernel.RecordColumns(GOOD, *arguments)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("ends", [[0, 2, 1, 3], [0, 1, 2, 99], [-1, 1, 2, 3], [0, 1, 2, -1]])
def test_offsets_outside_the_data_raise(kernel: ModuleType, ends: list[int], wide: bool) -> None:
    wrong = GOOD._replace(start=0, offsets=array("q" if wide else "i", ends).tobytes(), wide=wide)
    lists = header_lists([[("a", b"")]] * 3)
    for made, name in (
        (kernel.RecordColumns(wrong), "value"),
        (kernel.RecordColumns(GOOD, wrong), "key"),
        (kernel.RecordColumns(GOOD, headers=lists._replace(names=wrong, values=wrong)), "headers"),
        (
            kernel.RecordColumns(GOOD, headers=lists._replace(offsets=wrong.offsets, wide=wide)),
            "headers",
        ),
    ):
        topic, _ = open_topic(kernel)
        for use in (
            lambda made=made: made.find_fault(LIMIT, 3, 0, 3),
            lambda made=made, topic=topic: topic.append_rows(TIME, made, 0, 3),
            lambda made=made: [made.record(row) for row in range(3)],
        ):
            with pytest.raises(ValueError, match=f"column {name} do not have Arrow's layout"):
                use()


def test_rows_that_do_not_exist_raise(kernel: ModuleType) -> None:
    made = columns(kernel, [Row(), Row()])
    topic, _ = open_topic(kernel)
    for bounds in ((0, 3), (-1, 1), (2, 1), (0, 2, array("q", [0])), (0, 1, array("q", [2]))):
        for use in (
            lambda bounds=bounds: made.find_fault(LIMIT, 3, *bounds),
            lambda bounds=bounds: topic.append_rows(TIME, made, *bounds),
        ):
            with pytest.raises(IndexError):
                use()
    for row in (-1, 2):
        with pytest.raises(IndexError):
            made.record(row)


def test_empty_columns_need_no_buffers(kernel: ModuleType) -> None:
    empty = binary([])._replace(offsets=b"", data=b"")
    lists = header_lists([])._replace(offsets=b"", names=empty, values=empty)
    made = kernel.RecordColumns(empty, empty, numbers([]), numbers([]), lists)
    topic, _ = open_topic(kernel)
    assert made.find_fault(LIMIT, 3, 0, 0) is None
    assert topic.append_rows(TIME, made, 0, 0) == 0


def test_columns_cannot_be_copied(kernel: ModuleType) -> None:
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(columns(kernel, ROWS))


def test_buffers_are_released(kernel: ModuleType) -> None:
    data = bytearray(b"...v")
    made = kernel.RecordColumns(binary([b"v"])._replace(data=data))
    with pytest.raises(BufferError):
        data.append(0)
    del made
    gc.collect()
    data.append(0)


def test_compiled_kernel_keeps_no_object_per_row() -> None:
    kernel = kernels.load("c")
    rows = [Row(b"v" * 20, b"key-%d" % n, headers=[("n", b"v")]) for n in range(5_000)]
    made = columns(kernel, rows)
    topic, _ = open_topic(kernel, partitions=1_000)
    allocated = sys.getallocatedblocks()
    assert made.find_fault(LIMIT, 1_000, 0, len(rows)) is None
    assert topic.append_rows(TIME, made, 0, len(rows)) == len(rows)
    # Each of the thousand batches has a buffer.
    assert sys.getallocatedblocks() - allocated < 1_100
