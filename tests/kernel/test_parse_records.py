"""Tests of `parse_records` and `Record`, with valid and hostile sections."""

from __future__ import annotations

import pickle
from itertools import cycle
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import CorruptRecordError
from kafka_async.kernel.shared import Corruption, corrupt_record_error
from tests.kernel.malformed_records import FIRST, RECORDS, framed, overlong
from tests.kernel.wire import encoded_headers, field, record, section, varint
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.kernel import Section

HEADERS = varint(2) + field("ä".encode()) + field(None) + field(b"") + field(b"x")
WHOLE = [
    record(delta=0, key=b"k", headers=HEADERS),
    record(delta=1, time=300, key=None, value=None),
    record(delta=7, time=-20, key=b"", value=b"v" * 200),
]


def parse(kernel: ModuleType, data: Section, **options: Any) -> list[Any]:
    return kernel.parse_records(data, "topic", 3, **options)


def test_parses_all_fields_of_records(kernel: ModuleType) -> None:
    first, second, third = parse(kernel, section(*WHOLE), leader_epoch=6)
    assert (first.topic, first.partition, first.offset) == ("topic", 3, 1000)
    assert (first.timestamp, first.timestamp_type, first.leader_epoch) == (5_000, 0, 6)
    assert (first.key, first.value) == (b"k", b"value")
    assert first.headers == (("ä", None), ("", b"x"))
    assert (second.offset, second.timestamp, second.key, second.value) == (1001, 5_300, None, None)
    assert second.headers == ()
    assert (third.offset, third.timestamp, third.key) == (1007, 4_980, b"")
    assert third.value == b"v" * 200


def test_unknown_leader_epoch_is_none(kernel: ModuleType) -> None:
    assert [r.leader_epoch for r in parse(kernel, section(*WHOLE))] == [None] * 3


def test_log_append_time_overrides_every_timestamp(kernel: ModuleType) -> None:
    data = section(*WHOLE)._replace(timestamp_type=1)
    records = parse(kernel, data)
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(9_000, 1)] * 3


@pytest.mark.parametrize(
    ("start", "offsets"),
    [(0, [1000, 1001, 1007]), (1001, [1001, 1007]), (1002, [1007]), (1008, [])],
)
def test_skips_records_before_start(kernel: ModuleType, start: int, offsets: list[int]) -> None:
    assert [r.offset for r in parse(kernel, section(*WHOLE), start=start)] == offsets


def test_validates_records_before_start(kernel: ModuleType) -> None:
    data = section(record(), record(delta=1, tail=b"!"))
    with pytest.raises(CorruptRecordError):
        parse(kernel, data, start=1050)


def test_parses_empty_section(kernel: ModuleType) -> None:
    assert parse(kernel, section()) == []


def test_parses_any_buffer_and_releases_it(kernel: ModuleType) -> None:
    buffer = bytearray(b"".join(WHOLE))
    records = parse(kernel, section(*WHOLE)._replace(data=memoryview(buffer)))
    buffer.clear()  # would raise if anything still referred to it
    assert records == parse(kernel, section(*WHOLE))


def test_header_name_that_is_not_utf8_is_readable(kernel: ModuleType) -> None:
    data = section(record(headers=varint(1) + field(b"a\xff\xc3") + field(b"")))
    assert parse(kernel, data)[0].headers == (("a\ufffd\ufffd", b""),)


def test_similar_headers_of_consecutive_records_are_distinguished(kernel: ModuleType) -> None:
    written: list[tuple[tuple[str, bytes | None], ...]] = [
        (("name", b"value"), ("other", b"")),
        (("name", b"value"), ("other", b"")),
        (("name", b"valuE"), ("other", b"")),
        (("namE", b"valuE"), ("other", None)),
        (("other", b""), ("namE", b"valuE")),
        (("", b"valuE"),),
        (("\x04", b"al"), ("u", b"E")),
        tuple((f"name {n}", b"%d" % n) for n in range(70)),
        tuple((f"name {n}", b"%d" % (n % 60)) for n in range(70)),
        tuple(("name", b"value") for _ in range(20)),
    ]
    records = [record(delta=n, headers=encoded_headers(*each)) for n, each in enumerate(written)]
    assert [one.headers for one in parse(kernel, section(*records))] == written


def test_parses_fields_of_every_length(kernel: ModuleType) -> None:
    sizes = cycle([0, 63, 64, 8191, 8192, 1 << 21])
    for time in [0, 63, 64, -65, 8191, 8192, -8193, 1 << 40, -(1 << 40)]:
        size = next(sizes)
        key, value, name = b"k" * size, b"v" * size, "n" * size
        headers = encoded_headers((name, value), ("", None))
        data = section(record(), record(delta=90, time=time, key=key, value=value, headers=headers))
        with row(time, size):
            _, found = parse(kernel, data)
            assert (found.offset, found.timestamp) == (1090, 5_000 + time)
            assert (found.key, found.value) == (key, value)
            assert found.headers == ((name, value), ("", None))


# -- hostile sections -----------------------------------------------------------------------------


def test_every_truncation_is_corrupt(kernel: ModuleType) -> None:
    data, whole = section(*WHOLE), b"".join(WHOLE)
    ends = [0, len(WHOLE[0]), len(WHOLE[0]) + len(WHOLE[1])]
    for cut in range(len(whole)):
        readable = sum(end <= cut for end in ends[1:])
        with row(cut):
            with pytest.raises(CorruptRecordError) as caught:
                parse(kernel, data._replace(data=whole[:cut]))
            error = caught.value
            assert (error.topic, error.partition) == ("topic", 3)
            # The offset is of the first record that cannot be read: of the first record if the
            # section is too short for its count.
            assert error.offset in (1000, 1000 + readable)


def test_malformed_record_is_corrupt(kernel: ModuleType) -> None:
    for name, (corruption, malformed) in RECORDS.items():
        with row(name):
            with pytest.raises(CorruptRecordError) as caught:
                parse(kernel, section(FIRST, malformed, count=2, last=4))
            error, expected = caught.value, corrupt_record_error(corruption)
            assert (error.message, error.topic, error.partition) == (expected.message, "topic", 3)


@pytest.mark.parametrize(
    ("corruption", "words"),
    [
        (Corruption.LENGTH, "record's length is negative"),
        (Corruption.VARINT, "does not fit its type"),
        (Corruption.FIELD, "key or value"),
        (Corruption.HEADER_COUNT, "number of headers"),
        (Corruption.HEADER, "header's name is null"),
        (Corruption.RECORD_LEFTOVER, "after the record's last"),
    ],
)
def test_message_describes_corruption(corruption: Corruption, words: str) -> None:
    assert words in corrupt_record_error(corruption).message


def test_overlong_varints_are_read_as_in_java(kernel: ModuleType) -> None:
    deltas = overlong(varint(-1), 10) + overlong(varint(1), 5)
    (found,) = parse(kernel, section(framed(b"\0" + deltas + b"\x01\x01\0")))
    assert (found.offset, found.timestamp) == (1001, 4_999)


def test_every_corruption_has_a_case() -> None:
    elsewhere = {Corruption.COUNT, Corruption.OFFSETS}
    assert {corruption for corruption, _ in RECORDS.values()} | elsewhere == set(Corruption)


@pytest.mark.parametrize(
    ("count", "corruption"),
    [
        (-1, Corruption.COUNT),
        (-(1 << 31), Corruption.COUNT),
        ((1 << 31) - 1, Corruption.COUNT),
        (100, Corruption.COUNT),
        (4, Corruption.TRUNCATED),
        (2, Corruption.SECTION_LEFTOVER),
        (0, Corruption.SECTION_LEFTOVER),
    ],
)
def test_wrong_record_count_is_corrupt(
    kernel: ModuleType, count: int, corruption: Corruption
) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        parse(kernel, section(*WHOLE, count=count))
    assert caught.value.message == corrupt_record_error(corruption).message


@pytest.mark.parametrize(
    ("base", "last"),
    [(-1, 0), (-(1 << 63), 0), (0, -1), ((1 << 63) - 1, 0), ((1 << 63) - 100, 99)],
)
def test_impossible_offsets_are_corrupt(kernel: ModuleType, base: int, last: int) -> None:
    with pytest.raises(CorruptRecordError, match="outside the legal range"):
        parse(kernel, section(base=base, last=last))


def test_parses_highest_offset(kernel: ModuleType) -> None:
    highest = (1 << 63) - 2
    data = section(record(), base=highest, last=0)
    assert parse(kernel, data)[0].offset == highest


@pytest.mark.parametrize("time", [(1 << 63) - 1 - 5_000, -(1 << 63)])
def test_parses_minimum_and_maximum_timestamps(kernel: ModuleType, time: int) -> None:
    assert parse(kernel, section(record(time=time)))[0].timestamp == 5_000 + time


def test_error_names_first_unreadable_offset(kernel: ModuleType) -> None:
    with pytest.raises(CorruptRecordError, match="topic-3 at offset 1006: ") as caught:
        parse(kernel, section(record(delta=0), record(delta=5), record(delta=9, tail=b"!")))
    assert caught.value.offset == 1006


# -- Record ---------------------------------------------------------------------------------------

FIELDS = ("topic", 1, 42, 5_000, 0, b"key", b"value", (("h", b"x"),), 7)


def test_record_is_immutable(kernel: ModuleType) -> None:
    made = kernel.Record(*FIELDS)
    for name in ("topic", "partition", "offset", "timestamp", "key", "value", "headers"):
        with pytest.raises(AttributeError):
            setattr(made, name, None)
        with pytest.raises((AttributeError, TypeError)):
            delattr(made, name)


def test_records_are_equal_if_all_fields_are_equal(kernel: ModuleType) -> None:
    made = kernel.Record(*FIELDS)
    assert made == kernel.Record(*FIELDS)
    assert hash(made) == hash(kernel.Record(*FIELDS))
    for index in range(len(FIELDS)):
        other: list[Any] = list(FIELDS)
        other[index] = 99 if isinstance(other[index], int) else None
        assert made != kernel.Record(*other)
    assert made != FIELDS


def test_record_may_hold_deserialized_objects(kernel: ModuleType) -> None:
    made = kernel.Record("topic", 0, 1, 2, 0, {"a": 1}, ["b"])
    assert (made.key, made.value, made.headers, made.leader_epoch) == ({"a": 1}, ["b"], (), None)
    assert isinstance(hash(made), int)
    assert kernel.Record[str, int] is not None


def test_record_can_be_pickled(kernel: ModuleType) -> None:
    made = kernel.Record(*FIELDS)
    assert pickle.loads(pickle.dumps(made)) == made


def test_record_repr_truncates_long_values(kernel: ModuleType) -> None:
    made = kernel.Record("t", 1, 2, 3, 0, b"k", b"x" * 1000, (("h", b"y" * 50),))
    assert repr(made) == (
        "Record(topic='t', partition=1, offset=2, timestamp=3, key=b'k', "
        f"value={b'x' * 32!r}...(1000 bytes), headers=(('h', {b'y' * 32!r}...(50 bytes))))"
    )
