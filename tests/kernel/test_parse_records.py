"""Tests of `parse_records` and `Record`, with valid and hostile sections."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import CorruptRecordError
from kafka_async.kernel._shared import Corruption, corrupt_record_error
from tests.kernel.wire import field, record, section, varint

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


def encoded_headers(*headers: tuple[str, bytes | None]) -> bytes:
    fields = [field(name.encode()) + field(value) for name, value in headers]
    return varint(len(headers)) + b"".join(fields)


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


@pytest.mark.parametrize("time", [0, 63, 64, -65, 8191, 8192, -8193, 1 << 40, -(1 << 40)])
@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 1 << 21])
def test_parses_fields_of_every_length(kernel: ModuleType, size: int, time: int) -> None:
    key, value, name = b"k" * size, b"v" * size, "n" * size
    headers = encoded_headers((name, value), ("", None))
    data = section(record(), record(delta=90, time=time, key=key, value=value, headers=headers))
    assert len(parse(kernel, data)) == 2
    found = parse(kernel, data)[1]
    assert (found.offset, found.timestamp) == (1090, 5_000 + time)
    assert (found.key, found.value, found.headers) == (key, value, ((name, value), ("", None)))


# -- hostile sections -----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(len(b"".join(WHOLE))))
def test_every_truncation_is_corrupt(kernel: ModuleType, cut: int) -> None:
    data = section(*WHOLE)
    ends = [0, len(WHOLE[0]), len(WHOLE[0]) + len(WHOLE[1])]
    readable = sum(end <= cut for end in ends[1:])
    with pytest.raises(CorruptRecordError) as caught:
        parse(kernel, data._replace(data=bytes(data.data)[:cut]))
    error = caught.value
    assert (error.topic, error.partition) == ("topic", 3)
    # The offset is of the first record that cannot be read: of the first record if the section is
    # too short for its count.
    assert error.offset in (1000, 1000 + readable)


def overlong(value: bytes, size: int) -> bytes:
    """Return a one-byte varint padded to `size` bytes."""
    return bytes([value[0] | 0x80]) + b"\x80" * (size - 2) + b"\0"


HOSTILE = {
    "length negative": (Corruption.LENGTH, [record(length=-1)]),
    "length zero": (Corruption.TRUNCATED, [record(length=0)]),
    "length one more": (Corruption.LENGTH, [record(length=12)]),
    "length one less": (Corruption.TRUNCATED, [record(length=10)]),
    "length beyond the batch": (Corruption.LENGTH, [record(length=1000)]),
    "length beyond the batch, and a header's with it": (
        Corruption.LENGTH,
        [record(length=23, headers=varint(1) + field(b"a") + varint(9))],
    ),
    "length 2^31-1": (Corruption.LENGTH, [record(length=(1 << 31) - 1)]),
    "length of six bytes": (Corruption.VARINT, [overlong(varint(11), 6) + record()[1:]]),
    "length beyond 32 bits": (Corruption.VARINT, [b"\xff\xff\xff\xff\x1f" + record()[1:]]),
    "bytes after the headers": (Corruption.RECORD_LEFTOVER, [record(tail=b"!")]),
    "bytes after the last record": (Corruption.SECTION_LEFTOVER, [record(), b"!"]),
    "offset delta negative": (Corruption.OFFSET_DELTA, [record(delta=-1)]),
    "offset delta twice": (Corruption.OFFSET_DELTA, [record(delta=4), record(delta=4)]),
    "offset delta backwards": (Corruption.OFFSET_DELTA, [record(delta=4), record(delta=3)]),
    "offset delta beyond the last": (Corruption.OFFSET_DELTA, [record(delta=100)]),
    "offset delta of six bytes": (
        Corruption.VARINT,
        [b"\x16\0\0" + overlong(b"\0", 6) + b"\x01\x01\0"],
    ),
    "timestamp delta of eleven bytes": (
        Corruption.VARINT,
        [b"\x1e\0" + overlong(b"\0", 11) + b"\0\x01\x01\0"],
    ),
    "timestamp delta beyond 64 bits": (
        Corruption.VARINT,
        [b"\x1e\0" + b"\xff" * 9 + b"\x02" + b"\0\x01\x01\0"],
    ),
    "timestamp overflows": (Corruption.TIMESTAMP, [record(time=(1 << 63) - 1)]),
    "key length -2": (Corruption.FIELD, [b"\x0e\0\0\0\x03\x01\0!"]),
    "key beyond the record": (Corruption.FIELD, [b"\x0e\0\0\0\x08\x01\0!"]),
    "key 2^31-1": (Corruption.FIELD, [b"\x14\0\0\0\xfe\xff\xff\xff\x0f\x01\0"]),
    "value length -2": (Corruption.FIELD, [b"\x0e\0\0\0\x01\x03\0!"]),
    "value beyond the record": (Corruption.FIELD, [b"\x0e\0\0\0\x01\x08\0!"]),
    "value takes the next record": (Corruption.FIELD, [b"\x0e\0\0\0\x01\x0a\0!", record(delta=1)]),
    "no header count": (Corruption.TRUNCATED, [record(headers=b"")]),
    "header count negative": (Corruption.HEADER_COUNT, [record(headers=varint(-1))]),
    "header count beyond the record": (Corruption.HEADER_COUNT, [record(headers=varint(1))]),
    "header count 2^31-1": (Corruption.HEADER_COUNT, [record(headers=varint((1 << 31) - 1))]),
    "header count -2^31": (Corruption.HEADER_COUNT, [record(headers=varint(-(1 << 31)))]),
    "header name null": (
        Corruption.HEADER,
        [record(headers=varint(1) + field(None) + field(b""))],
    ),
    "header name length -2": (
        Corruption.HEADER,
        [record(headers=varint(1) + varint(-2) + field(b""))],
    ),
    "header name beyond the record": (
        Corruption.HEADER,
        [record(headers=varint(1) + varint(9) + field(b"a"))],
    ),
    "header value length -2": (
        Corruption.HEADER,
        [record(headers=varint(1) + field(b"a") + varint(-2))],
    ),
    "header value beyond the record": (
        Corruption.HEADER,
        [record(headers=varint(1) + field(b"a") + varint(9))],
    ),
    "header without its value": (
        Corruption.TRUNCATED,
        [record(headers=varint(2) + field(b"a") + field(b"") + field(b""))],
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_invalid_field_is_corrupt(kernel: ModuleType, case: str) -> None:
    corruption, records = HOSTILE[case]
    count = sum(part != b"!" for part in records)
    with pytest.raises(CorruptRecordError) as caught:
        parse(kernel, section(*records, count=count))
    error = caught.value
    assert (error.message, error.topic, error.partition) == (
        corrupt_record_error(corruption).message,
        "topic",
        3,
    )


def test_every_corruption_has_a_case() -> None:
    elsewhere = {Corruption.COUNT, Corruption.OFFSETS}
    assert {corruption for corruption, _ in HOSTILE.values()} | elsewhere == set(Corruption)


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
