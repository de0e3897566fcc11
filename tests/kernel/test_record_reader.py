"""Reading a section some records at a time: what each call gives, and where damage is met."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import CorruptRecordError
from kafka_async.kernel._shared import Fault, corrupt
from tests.kernel.wire import field, record, section, varint

if TYPE_CHECKING:
    from kafka_async.kernel import Section

TWENTY = section(*(record(delta=n, value=b"%02d" % n) for n in range(20)))
SIZE = len(bytes(TWENTY.data)) // 20


def offsets(records: list[Any]) -> list[int]:
    return [one.offset - 1000 for one in records]


def slices(reader: Any, count: int) -> list[Any]:
    """All that it gives, so many records at a time."""
    found: list[Any] = []
    while not reader.done:
        found += reader.read(count)
    return found


@pytest.mark.parametrize("count", [1, 3, 20, 21, (1 << 63) - 1])
def test_slices_are_the_whole(kernel: ModuleType, count: int) -> None:
    headers = varint(2) + field(b"name") + field(b"value") + field("ä".encode()) + field(None)
    data = section(
        *(record(delta=n * 3, time=n // 2, key=b"k" * n, headers=headers) for n in range(20))
    )
    reader = kernel.RecordReader(data, "topic", 3, 6, 1010)
    whole = kernel.parse_records(data, "topic", 3, 6, 1010)
    assert slices(reader, count) == whole
    assert len(whole) == 16


def test_a_call_gives_so_many_and_the_next_goes_on(kernel: ModuleType) -> None:
    reader = kernel.RecordReader(TWENTY, "t", 0)
    assert offsets(reader.read(3)) == [0, 1, 2]
    assert offsets(reader.read(1)) == [3]
    assert offsets(reader.read(15)) == list(range(4, 19))
    assert not reader.done
    assert offsets(reader.read(15)) == [19]
    assert reader.done
    assert reader.read(15) == []


def test_a_call_ends_once_it_has_read_so_many_bytes(kernel: ModuleType) -> None:
    reader = kernel.RecordReader(TWENTY, "t", 0)
    assert offsets(reader.read(20, 1)) == [0]
    assert offsets(reader.read(20, 2 * SIZE)) == [1, 2]
    assert offsets(reader.read(20, 2 * SIZE + 1)) == [3, 4, 5]
    assert offsets(reader.read(2, 20 * SIZE)) == [6, 7]


def test_what_is_left_out_counts(kernel: ModuleType) -> None:
    reader = kernel.RecordReader(TWENTY, "t", 0, -1, 1007)
    assert reader.read(5) == []
    assert not reader.done
    assert offsets(reader.read(5)) == [7, 8, 9]


def test_nothing_to_read(kernel: ModuleType) -> None:
    reader = kernel.RecordReader(section(), "t", 0)
    assert reader.done
    assert reader.read(1) == []


DAMAGED: dict[str, tuple[Fault, Section, int]] = {
    "the third record": (
        Fault.RECORD_LEFTOVER,
        section(record(), record(delta=4), record(delta=5, tail=b"!"), record(delta=6)),
        2,
    ),
    "the third record's headers": (
        Fault.HEADER,
        section(
            record(),
            record(delta=1),
            record(delta=5, headers=varint(1) + field(None) + field(b"")),
        ),
        2,
    ),
    "offsets that do not ascend": (
        Fault.OFFSET_DELTA,
        section(record(), record(delta=3), record(delta=3)),
        2,
    ),
    "a record less than it claims": (
        Fault.TRUNCATED,
        section(record(), record(delta=1), count=3),
        2,
    ),
    "bytes after the last record": (
        Fault.SECTION_LEFTOVER,
        section(record(), record(delta=1), b"!", count=2),
        2,
    ),
    "the first record": (Fault.OFFSET_DELTA, section(record(delta=-1)), 0),
}


@pytest.mark.parametrize("count", [1, 2, 3, 100])
@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_met_where_it_lies_after_all_that_is_before(
    kernel: ModuleType, case: str, count: int
) -> None:
    fault, data, sound = DAMAGED[case]
    reader = kernel.RecordReader(data, "topic", 3)
    found: list[Any] = []
    while len(found) < sound:
        found += reader.read(count)
    assert len(found) == sound
    for _ in range(2):
        assert not reader.done
        with pytest.raises(CorruptRecordError) as caught:
            reader.read(count)
        error = caught.value
        assert (error.message, error.topic, error.partition) == (
            corrupt(fault).message,
            "topic",
            3,
        )
        assert error.offset == (found[-1].offset + 1 if found else 1000)


@pytest.mark.parametrize("case", DAMAGED)
def test_all_at_once_is_all_or_nothing(kernel: ModuleType, case: str) -> None:
    fault, data, _ = DAMAGED[case]
    with pytest.raises(CorruptRecordError) as caught:
        kernel.parse_records(data, "topic", 3)
    assert caught.value.message == corrupt(fault).message


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (section(record(), count=-1), Fault.COUNT),
        (section(record(), count=1 << 30), Fault.COUNT),
        (section(record(), base=-1), Fault.OFFSETS),
    ],
)
def test_a_section_that_cannot_be_is_refused_at_once(
    kernel: ModuleType, data: Section, fault: Fault
) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        kernel.RecordReader(data, "topic", 3)
    assert (caught.value.message, caught.value.topic) == (corrupt(fault).message, "topic")


def test_the_sections_bytes_are_let_go(kernel: ModuleType) -> None:
    buffer = bytearray(bytes(TWENTY.data))
    reader = kernel.RecordReader(TWENTY._replace(data=memoryview(buffer)), "t", 0)
    assert offsets(reader.read(2)) == [0, 1]
    del reader
    buffer.clear()  # would raise if anything still referred to it


def test_a_reader_has_one_owner(kernel: ModuleType) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(kernel.RecordReader(TWENTY, "t", 0))
