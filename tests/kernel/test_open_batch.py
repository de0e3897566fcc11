"""Tests of `OpenBatch`: appending records and closing the batch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from kafka_async.errors import IllegalStateError
from kafka_async.kernel import Section
from tests.kernel.kernels import closed_batch
from tests.rows import row

TIME = 1_700_000_000_000


def test_record_has_kafkas_wire_format(kernel: ModuleType) -> None:
    for record, expected in [
        # length, attributes, timestamp delta, offset delta, key, value, headers
        ((TIME, None, None), "0c 00 00 00 01 01 00"),
        ((TIME, b"", b""), "0c 00 00 00 00 00 00"),
        ((TIME, b"k", b"va"), "12 00 00 00 02 6b 04 7661 00"),
        ((TIME, None, b"v", [("h", None)]), "14 00 00 00 01 02 76 02 02 68 01"),
        (
            (TIME, None, b"v", [("ä", b"x"), ("", b"")]),
            "1c 00 00 00 01 02 76 04 04 c3a4 02 78 00 00",
        ),
    ]:
        with row(record, expected):
            assert closed_batch(kernel, record).hex() == expected.replace(" ", "")


VARINTS = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    (1 << 31) - 1: "feffffff0f",
    (1 << 63) - 1: "feffffffffffffffff01",
    1 - (1 << 63): "fdffffffffffffffff01",
}


def test_varint_has_kafkas_encoding(kernel: ModuleType) -> None:
    for value in VARINTS:
        with row(value):
            first = -1 if value >= 0 else -1 - value
            written = closed_batch(kernel, (first, None, None), (first + value, None, None))
            assert written.endswith(b"\0" + bytes.fromhex(VARINTS[value]) + b"\x02\x01\x01\0")


def test_timestamps_and_offsets_are_relative_to_the_first_record(kernel: ModuleType) -> None:
    written = closed_batch(
        kernel, (TIME, None, None), (TIME + 1, None, None), (TIME - 64, None, None)
    )
    assert written.hex() == "0c0000000101000c0002020101000c007f04010100"


def test_tracks_count_size_and_timestamps(kernel: ModuleType) -> None:
    batch = kernel.OpenBatch(None, 1000)
    assert (batch.count, batch.size, batch.base_timestamp, batch.max_timestamp) == (0, 0, -1, -1)
    batch.append(TIME + 5, None, b"abc")
    batch.append(TIME + 9, None, b"abc")
    batch.append(TIME, None, b"abc")
    assert batch.count == 3
    assert (batch.base_timestamp, batch.max_timestamp) == (TIME + 5, TIME + 9)
    assert batch.capacity == 1000
    size = batch.size
    assert len(batch.close()) == size


def test_delivery_has_index_timestamp_and_outcome(kernel: ModuleType) -> None:
    outcome = object()
    batch = kernel.OpenBatch(outcome, 1000)
    first, second = batch.append(TIME, None, b"a"), batch.append(TIME + 1, None, b"b")
    assert (first.index, first.timestamp, second.index, second.timestamp) == (0, TIME, 1, TIME + 1)
    assert first.outcome is outcome
    assert batch.outcome is outcome


def test_record_that_does_not_fit_changes_nothing(kernel: ModuleType) -> None:
    batch = kernel.OpenBatch(None, 40)
    assert batch.append(TIME, None, b"x" * 20) is not None
    before = (batch.count, batch.size, batch.max_timestamp)
    assert batch.append(TIME + 50, None, b"y" * 20) is None
    assert (batch.count, batch.size, batch.max_timestamp) == before
    assert batch.append(TIME, None, b"z") is not None
    assert batch.count == 2


def test_record_fits_up_to_the_last_byte(kernel: ModuleType) -> None:
    # Two records of eight bytes: sixteen are enough, fifteen are not.
    exact, short = kernel.OpenBatch(None, 16), kernel.OpenBatch(None, 15)
    for batch in (exact, short):
        assert batch.append(TIME, None, b"a") is not None
    assert exact.append(TIME, None, b"b") is not None
    assert short.append(TIME, None, b"b") is None


def test_first_record_is_always_accepted(kernel: ModuleType) -> None:
    batch = kernel.OpenBatch(None, 0)
    assert batch.append(TIME, b"key", b"x" * 5000) is not None
    assert batch.append(TIME, None, None) is None


def test_extended_batch_accepts_record_that_did_not_fit(kernel: ModuleType) -> None:
    # Records of eight bytes.
    batch = kernel.OpenBatch(None, 8)
    assert batch.append(TIME, None, b"a") is not None
    assert batch.append(TIME + 1, None, b"b") is None
    batch.extend(16)
    assert batch.capacity == 16
    assert batch.append(TIME + 1, None, b"b").index == 1
    assert batch.append(TIME, None, b"c") is None
    batch.extend(1 << 20)
    assert all(batch.append(TIME, None, b"x" * 1000) for _ in range(500))
    once = [(TIME, None, b"a"), (TIME + 1, None, b"b"), *[(TIME, None, b"x" * 1000)] * 500]
    assert batch.close() == closed_batch(kernel, *once)


def test_extend_never_lowers_capacity(kernel: ModuleType) -> None:
    batch = kernel.OpenBatch(None, 16)
    for capacity in (16, 15, 0):
        batch.extend(capacity)
        assert batch.capacity == 16
    deliveries = [batch.append(TIME, None, value) for value in (b"a", b"b", b"c")]
    assert [delivery is None for delivery in deliveries] == [False, False, True]
    for capacity in (-1, 1 << 31):
        with pytest.raises(ValueError, match="capacity"):
            batch.extend(capacity)
    assert (batch.capacity, batch.count) == (16, 2)


def test_buffer_grows_beyond_initial_size(kernel: ModuleType) -> None:
    values = [bytes([n % 256]) * (n * 7 % 3000) for n in range(400)]
    batch = kernel.OpenBatch(None, 1 << 30)
    for value in values:
        batch.append(TIME, None, value)
    written = batch.close()
    records = kernel.parse_records(parsed(written, len(values)), "t", 0)
    assert [record.value for record in records] == values


def parsed(data: bytes, count: int) -> tuple[Any, ...]:
    return Section(data, count, 0, max(count - 1, 0), TIME, TIME, 0)


def test_closed_batch_accepts_no_records(kernel: ModuleType) -> None:
    batch = kernel.OpenBatch(None, 100)
    batch.append(TIME, None, b"a")
    assert not batch.closed
    assert batch.close() == bytes.fromhex("0e00000001026100")
    assert batch.closed
    with pytest.raises(IllegalStateError):
        batch.append(TIME, None, b"b")
    with pytest.raises(IllegalStateError):
        batch.close()
    assert batch.count == 1


def test_closing_empty_batch_returns_no_bytes(kernel: ModuleType) -> None:
    assert kernel.OpenBatch(None, 10).close() == b""


def test_invalid_record_raises_and_changes_nothing(kernel: ModuleType) -> None:
    for arguments, error in [
        ((TIME, "text", None), TypeError),
        ((TIME, None, "text"), TypeError),
        ((TIME, None, 5), TypeError),
        ((TIME, None, b"", [(b"name", b"")]), TypeError),
        ((TIME, None, b"", [("name", "text")]), TypeError),
        ((TIME, None, b"", [(None, b"")]), TypeError),
        ((TIME, None, b"", None), TypeError),
        ((TIME, None, b"", [("lone \ud800", b"")]), UnicodeEncodeError),
        ((-2, None, b""), ValueError),
        (((1 << 63) - 1, None, b""), ValueError),
        ((1 << 63, None, b""), ValueError),
        ((-(1 << 70), None, b""), ValueError),
        (("now", None, b""), TypeError),
        ((1.5, None, b""), TypeError),
    ]:
        with row(arguments, error):
            batch = kernel.OpenBatch(None, 1000)
            with pytest.raises(error):
                batch.append(*arguments)
            assert (batch.count, batch.size, batch.base_timestamp) == (0, 0, -1)
            batch.append(TIME, None, b"fine")
            with pytest.raises(error):
                batch.append(*arguments)
            assert batch.count == 1


def test_accepts_minimum_and_maximum_timestamps(kernel: ModuleType) -> None:
    latest = (1 << 63) - 2
    batch = kernel.OpenBatch(None, 1000)
    batch.append(latest, None, None)
    batch.append(-1, None, None)
    records = kernel.parse_records(Section(batch.close(), 2, 0, 1, latest, latest, 0), "t", 0)
    assert [record.timestamp for record in records] == [latest, -1]


class Milliseconds:
    """An integer-like number, as numpy's are."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(("given", "kept"), [(True, 1), (Milliseconds(), 7)])
def test_integer_like_timestamp_becomes_int(kernel: ModuleType, given: Any, kept: int) -> None:
    batch = kernel.OpenBatch(None, 1000)
    delivery = batch.append(given, None, b"value")
    times = (delivery.timestamp, batch.base_timestamp, batch.max_timestamp)
    assert [(type(time), time) for time in times] == [(int, kept)] * 3


@pytest.mark.parametrize("capacity", [-1, 1 << 31])
def test_capacity_outside_int32_raises(kernel: ModuleType, capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        kernel.OpenBatch(None, capacity)


def test_buffers_are_copied(kernel: ModuleType) -> None:
    key, value = bytearray(b"key"), memoryview(b"a value")[2:]
    batch = kernel.OpenBatch(None, 1000)
    batch.append(TIME, key, value)
    key[:] = b"xxx"
    assert batch.close() == closed_batch(kernel, (TIME, b"key", b"value"))


class Name(str):
    """A subclass of str with another `__str__`, as enums have; its characters are written."""

    __slots__ = ()

    def __str__(self) -> str:
        return "not this"


def test_accepts_any_pairs_of_name_and_bytes_as_headers(kernel: ModuleType) -> None:
    given = [[Name("ä"), bytearray(b"x")], ("b", memoryview(b"y")), ["c", None]]
    plain = (("ä", b"x"), ("b", b"y"), ("c", None))
    expected = closed_batch(kernel, (TIME, None, b"v", plain))
    for headers in (given, tuple(given), list(plain), dict.fromkeys(plain).keys()):
        assert closed_batch(kernel, (TIME, None, b"v", headers)) == expected


def test_section_is_correct_for_any_capacity_and_record_size(kernel: ModuleType) -> None:
    for size in [0, 1, 510, 4090, 70_000]:
        for capacity in [64, 5000, 1 << 17, (1 << 20) - 1, 1 << 20, 1 << 30]:
            with row(size, capacity):
                check_section_is_correct_for_any_capacity_and_record_size(kernel, capacity, size)


def check_section_is_correct_for_any_capacity_and_record_size(
    kernel: ModuleType, capacity: int, size: int
) -> None:
    batch = kernel.OpenBatch(None, capacity)
    count = 0
    while count < 40 and batch.append(TIME, None, b"%d" % (count % 10) * size) is not None:
        count += 1
    expected = batch.size
    written = batch.close()
    assert (type(written), len(written), hash(written)) == (bytes, expected, hash(written[:]))
    records = kernel.parse_records(parsed(written, count), "t", 0)
    assert [record.value for record in records] == [b"%d" % (n % 10) * size for n in range(count)]


class CallingHeaders(list[Any]):
    """Calls a function while the headers are read."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__([("name", b"x")])
        self._function = function

    def __iter__(self) -> Iterator[Any]:
        function, self._function = self._function, int
        function()
        return super().__iter__()


def test_closing_batch_while_headers_are_read_raises(kernel: ModuleType) -> None:
    batch = kernel.OpenBatch(None, 1000)
    batch.append(TIME, None, b"a")
    with pytest.raises(IllegalStateError):
        batch.append(TIME, None, b"b", CallingHeaders(batch.close))
    assert (batch.count, batch.size) == (1, 0)


def test_record_appended_while_headers_are_read_comes_first(kernel: ModuleType) -> None:
    batch = kernel.OpenBatch(None, 1000)
    outer = batch.append(
        TIME, None, b"b", CallingHeaders(partial(batch.append, TIME + 5, None, b"a"))
    )
    assert (outer.index, batch.count, batch.base_timestamp) == (1, 2, TIME + 5)
    expected = [(TIME + 5, None, b"a"), (TIME, None, b"b", [("name", b"x")])]
    assert batch.close() == closed_batch(kernel, *expected)


def test_open_batch_repr_tells_size_and_state(kernel: ModuleType) -> None:
    batch = kernel.OpenBatch(None, 100)
    batch.append(TIME, None, b"a")
    assert repr(batch) == "<OpenBatch 1 records, 8 of 100 bytes>"
    batch.close()
    assert repr(batch) == "<OpenBatch 1 records, closed>"


def test_record_size_bound_is_an_upper_bound(kernel: ModuleType) -> None:
    for key, value, headers in [
        (None, None, ()),
        (b"k" * 1000, b"v" * 70_000, [("h" * 300, b"x" * 200), ("ä", None)]),
    ]:
        batch = kernel.OpenBatch(None, 0)
        batch.append((1 << 62), key, value, headers)
        assert 61 + batch.size <= kernel.record_size_bound(key, value, headers) <= batch.size + 140


OWNED: dict[str, Callable[[Any], object]] = {
    "OpenBatch": lambda kernel: kernel.OpenBatch(None, 1000),
    "Delivery": lambda kernel: kernel.OpenBatch(None, 1000).append(TIME, None, b"value"),
    "TopicOpenBatches": lambda kernel: kernel.TopicOpenBatches(),
    "RecordReader": lambda kernel: kernel.RecordReader(parsed(b"", 0), "t", 0),
    "NextRecord": lambda kernel: kernel.NextRecord(float, list),
}
COPIES: list[Callable[[Any], object]] = [
    *(copy.copy, copy.deepcopy),
    *(partial(pickle.dumps, protocol=protocol) for protocol in range(6)),
]


def test_object_with_one_owner_cannot_be_copied_or_pickled(kernel: ModuleType) -> None:
    for name in OWNED:
        for duplicate in COPIES:
            refused = f"{name} objects cannot be copied or pickled"
            with row(name, duplicate), pytest.raises(TypeError, match=refused):
                duplicate(OWNED[name](kernel))
