"""Tests that both kernels agree: on bytes they write, records they read, and errors."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import sections, values, writing
from kafka_async.kernel import Section
from kafka_async.records.compression import Codec
from tests.kernel import kernels
from tests.kernel.wire import field, record, section, varint

# Without the compiled kernel, `fuzz` would compare plain Python with itself.
pytestmark = pytest.mark.usefixtures("pair")

TIMES = st.integers(-1, (1 << 63) - 2)
DATA = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), DATA), max_size=4)
RECORDS = st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    python, compiled = (kernels.load(name) for name in kernels.NAMES)
    return python, compiled


def agree(data: Section) -> None:
    """Check that both kernels read the same records, slices and columns."""
    sections.check(sections.Arguments(data, [data, data], 2, 3, 900, True))


@given(records=RECORDS, capacity=st.integers(0, 30_000), codec=st.sampled_from(Codec))
def test_kernels_write_the_same_bytes_and_read_them_back(
    records: list[tuple[Any, ...]], capacity: int, codec: Codec
) -> None:
    writing.check(writing.Plan(capacity, codec, [("append", each) for each in records]))


@given(
    capacity=st.integers(-1, 3000),
    codec=st.integers(0, max(Codec)),
    calls=st.binary(max_size=600),
)
@settings(max_examples=400)
def test_kernels_agree_on_random_calls(capacity: int, codec: int, calls: bytes) -> None:
    writing.run(writing.HEAD.pack(capacity, codec) + calls)


@given(data=st.binary(max_size=200), count=st.integers(-2, 40), base=st.integers(-2, 1000))
def test_kernels_agree_on_random_bytes(data: bytes, count: int, base: int) -> None:
    agree(Section(data, count, base, 50, 1_000, 2_000, 0))


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
    agree(data)


@given(timestamp=st.integers(-(1 << 63), (1 << 63) - 1), index=st.integers(0, 2), rest=st.binary())
def test_kernels_agree_on_hashes_and_values(timestamp: int, index: int, rest: bytes) -> None:
    values.run(values.ARGUMENTS.pack(timestamp, index) + rest)


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
