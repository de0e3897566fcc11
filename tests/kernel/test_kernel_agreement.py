"""Tests that both kernels agree: on bytes they write, records they read, and errors."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.errors import CorruptRecordError
from kafka_async.kernel import Section
from tests.kernel import kernels
from tests.kernel.wire import field, record, section, varint

TIMES = st.integers(-1, (1 << 63) - 2)
DATA = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), DATA), max_size=4)
RECORDS = st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    python, compiled = (kernels.load(name) for name in kernels.NAMES)
    return python, compiled


def fields(record: Any) -> tuple[object, ...]:
    names = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value")
    return *(getattr(record, name) for name in names), record.headers, record.leader_epoch


def read(kernel: Any, data: Section) -> object:
    """Return records, or all fields of the error, in a form that can be compared."""
    try:
        return [fields(record) for record in kernel.parse_records(data, "t", 1, 2, 3)]
    except CorruptRecordError as error:
        return str(error), error.topic, error.partition, error.offset


def read_in_slices(kernel: Any, data: Section) -> object:
    """Return the result of each call of `read` for two or three records, up to an error."""
    calls: list[object] = []
    try:
        reader = kernel.RecordReader(data, "t", 1, 2, 3)
        while not reader.done:
            calls.append([fields(record) for record in reader.read(2)])
            calls.append([fields(record) for record in reader.read(3, 20)])
    except CorruptRecordError as error:
        calls.append((str(error), error.topic, error.partition, error.offset))
    return calls


def columns(kernel: Any, data: Section) -> object:
    try:
        return kernel.parse_columns([data, data], "t", 1, 3, 900, True)
    except CorruptRecordError as error:
        return str(error), error.topic, error.partition, error.offset


def agree(pair: tuple[Any, Any], data: Section) -> object:
    python, compiled = pair
    result = read(python, data)
    assert result == read(compiled, data)
    assert read_in_slices(python, data) == read_in_slices(compiled, data)
    assert columns(python, data) == columns(compiled, data)
    return result


@given(records=RECORDS, capacity=st.integers(0, 3000))
def test_kernels_write_the_same_bytes_and_read_them_back(
    pair: tuple[Any, Any], records: list[Any], capacity: int
) -> None:
    batches = [kernel.OpenBatch(None, capacity) for kernel in pair]
    taken: list[list[Any]] = [[], []]
    for batch, kept in zip(batches, taken, strict=True):
        kept += [record for record in records if batch.append(*record) is not None]
    assert taken[0] == taken[1]
    python, compiled = batches
    count, base, latest = python.count, python.base_timestamp, python.max_timestamp
    theirs = (compiled.count, compiled.base_timestamp, compiled.max_timestamp)
    assert theirs == (count, base, latest)
    assert python.size == compiled.size
    data = python.close()
    assert data == compiled.close()
    result = agree(pair, Section(data, count, 3, count - 1, base, latest, 0))
    assert result == [
        ("t", 1, 3 + n, time, 0, key, value, tuple(headers), 2)
        for n, (time, key, value, headers) in enumerate(taken[0])
    ]


@given(data=st.binary(max_size=200), count=st.integers(-2, 40), base=st.integers(-2, 1000))
def test_kernels_agree_on_random_bytes(
    pair: tuple[Any, Any], data: bytes, count: int, base: int
) -> None:
    agree(pair, Section(data, count, base, 50, 1_000, 2_000, 0))


NUMBERS = st.sampled_from(
    [0, 1, -1, -2, 2, 63, 64, 127, (1 << 31) - 1, -(1 << 31), 1 << 31, 1 << 62]
)
LIES = st.builds(
    record,
    delta=st.integers(-1, 60),
    time=NUMBERS | st.just((1 << 63) - 1) | st.just(-(1 << 63)),
    key=DATA,
    value=DATA,
    headers=st.one_of(
        st.just(b"\0"),
        NUMBERS.map(varint),
        st.lists(DATA, max_size=4).map(
            lambda all_: varint(len(all_) // 2) + b"".join(field(one) for one in all_)
        ),
    ),
    tail=st.just(b"") | st.binary(max_size=3),
    length=st.none() | NUMBERS,
)


@given(
    records=st.lists(LIES, max_size=4),
    count=st.none() | st.integers(0, 5),
    cut=st.none() | st.integers(1, 40),
    time=st.sampled_from([0, 5_000, (1 << 63) - 1, -(1 << 63)]),
    kind=st.integers(0, 1),
)
@settings(max_examples=400)
def test_kernels_agree_on_nearly_valid_records(
    pair: tuple[Any, Any],
    records: list[bytes],
    count: int | None,
    cut: int | None,
    time: int,
    kind: int,
) -> None:
    data = section(*records, count=count)
    data = data._replace(base_timestamp=time, timestamp_type=kind)
    if cut is not None:
        data = data._replace(data=bytes(data.data)[:-cut])
    agree(pair, data)


GOOD = b"".join(
    record(delta=n, time=n * 500, key=b"k" * n, headers=varint(1) + field(b"h") + field(b"x" * n))
    for n in range(6)
)


@given(changes=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=3))
@settings(max_examples=400)
def test_kernels_agree_on_flipped_bytes(
    pair: tuple[Any, Any], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(GOOD)
    for at, byte in changes:
        data[at] = byte
    agree(pair, section(bytes(data), count=6))


@given(data=st.binary(max_size=100))
def test_kernels_agree_on_murmur2(pair: tuple[Any, Any], data: bytes) -> None:
    python, compiled = pair
    assert python.murmur2(data) == compiled.murmur2(data)


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_kernels_agree_on_encoding_varints(pair: tuple[Any, Any], value: int) -> None:
    python, compiled = pair
    data = python.encode_varint(value)
    assert data == compiled.encode_varint(value)
    for kernel in pair:
        assert kernel.decode_varint(data, 0, 64) == (value, len(data))


@given(data=st.binary(max_size=12), bits=st.sampled_from([32, 64]))
def test_kernels_agree_on_decoding_varints(pair: tuple[Any, Any], data: bytes, bits: int) -> None:
    def decode(kernel: Any) -> object:
        try:
            return kernel.decode_varint(data, 0, bits)
        except CorruptRecordError as error:
            return str(error)

    python, compiled = pair
    assert decode(python) == decode(compiled)


def test_kernels_have_the_same_public_names(pair: tuple[Any, Any]) -> None:
    python, compiled = pair
    for kind in ("Record", "Delivery", "OpenBatch", "TopicOpenBatches"):
        ours = {name for name in dir(getattr(python, kind)) if not name.startswith("_")}
        theirs = {name for name in dir(getattr(compiled, kind)) if not name.startswith("_")}
        assert ours == theirs


@pytest.mark.parametrize("name", ["enqueue", "enqueue_nowait"])
def test_kernels_have_the_same_docstrings(pair: tuple[Any, Any], name: str) -> None:
    python, compiled = (inspect.getdoc(getattr(kernel.RecordAppender, name)) for kernel in pair)
    assert python
    assert compiled == python
