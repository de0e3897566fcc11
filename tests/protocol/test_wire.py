"""Varints and tagged sections, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.protocol.wire import (
    MAX_STRING,
    STRING_LENGTH,
    UVARINT,
    octets,
    read_tag,
    read_tag_count,
    read_unknown_tags,
    read_uvarint,
    skip_tags,
    write_tagged,
)

TOP = 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("value", "spelt"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (TOP, "ffffffff0f")],
)
def test_unsigned_varints(value: int, spelt: str) -> None:
    assert UVARINT[value].hex() == spelt
    assert read_uvarint(bytes.fromhex(spelt), 0) == (value, len(spelt) // 2)


@settings(deadline=None)
@given(st.integers(0, TOP), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_wherever_it_stands(value: int, before: bytes, after: bytes) -> None:
    spelt = UVARINT[value]
    assert read_uvarint(before + spelt + after, len(before)) == (value, len(before) + len(spelt))


@pytest.mark.parametrize("value", [-1, TOP + 1])
def test_no_varint_beyond_32_bits(value: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        UVARINT[value]


def test_the_table_of_varints_does_not_grow() -> None:
    size = len(UVARINT)
    assert UVARINT[100_000] == b"\xa0\x8d\x06"
    assert len(UVARINT) == size


@pytest.mark.parametrize("spelt", ["ffffffff1f", "ffffffffff", "808080808001", "808080808000"])
def test_a_varint_that_is_too_long_is_refused(spelt: str) -> None:
    with pytest.raises(ValueError, match="longer than 32 bits"):
        read_uvarint(bytes.fromhex(spelt), 0)


def test_a_varint_that_ends_early_is_refused() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\x80", 0)


def test_string_lengths_stop_where_kafka_stops() -> None:
    assert STRING_LENGTH[MAX_STRING + 1] == UVARINT[MAX_STRING + 1]
    with pytest.raises(ValueError, match="out of range"):
        STRING_LENGTH[MAX_STRING + 2]


def test_a_tagged_section_is_written_in_ascending_order() -> None:
    assert write_tagged([(300, b"xy"), (0, b"")]) == b"\x02\x00\x00\xac\x02\x02xy"
    assert write_tagged([]) == b"\0"


def test_a_tag_is_written_once() -> None:
    with pytest.raises(ValueError, match="tag 3 is given twice"):
        write_tagged([(3, b"a"), (3, b"b")])


def test_a_tagged_section_is_read_back() -> None:
    section = b"-" + write_tagged([(300, b"xy"), (0, b"")]) + b"rest"
    assert read_tag_count(section, 1) == (2, 2)
    assert read_unknown_tags(section, 2, 2) == (((0, b""), (300, b"xy")), len(section) - 4)
    assert skip_tags(section, 1) == len(section) - 4
    assert read_tag(section, 4, 0) == (300, 7, 9)


@pytest.mark.parametrize(
    "section", [b"\x01\x00\x05abc", b"\x03\x00\x00\x00", b"\x91\x4e" + b"\0" * 3]
)
def test_a_tagged_section_holds_what_it_claims(section: bytes) -> None:
    with pytest.raises(ValueError, match="bytes"):
        skip_tags(section, 0)


@pytest.mark.parametrize("tags", [b"\x03\0\x03\0", b"\x03\0\x02\0"])
def test_tags_come_in_ascending_order(tags: bytes) -> None:
    with pytest.raises(ValueError, match="comes after tag 3"):
        read_unknown_tags(tags, 0, 2)
    with pytest.raises(ValueError, match="comes after tag 3"):
        skip_tags(b"\x02" + tags, 0)


def test_octets_are_counted_in_bytes_whatever_the_buffer() -> None:
    plain = b"abcdefgh"
    assert octets(plain) is plain
    assert len(octets(memoryview(plain).cast("I"))) == 8
    with pytest.raises(TypeError):
        octets("text")  # pyright: ignore[reportArgumentType]
