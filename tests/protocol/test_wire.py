"""Encoding and decoding of varints, tagged sections and buffers."""

from __future__ import annotations

import pytest

from kafka_async.protocol.wire import (
    MAX_STRING,
    STRING_LENGTH,
    UVARINT,
    as_buffer,
    read_tag,
    read_tag_count,
    read_unknown_tags,
    read_uvarint,
    skip_tags,
    write_tagged,
)

TOP = 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (TOP, "ffffffff0f")],
)
def test_encodes_and_decodes_unsigned_varints(value: int, encoded: str) -> None:
    assert UVARINT[value].hex() == encoded
    assert read_uvarint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize("value", [-1, TOP + 1])
def test_refuses_varint_beyond_32_bits(value: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        UVARINT[value]


def test_varint_table_does_not_grow() -> None:
    size = len(UVARINT)
    assert UVARINT[100_000] == b"\xa0\x8d\x06"
    assert len(UVARINT) == size


def test_string_lengths_have_the_limit_of_kafka() -> None:
    assert STRING_LENGTH[MAX_STRING + 1] == UVARINT[MAX_STRING + 1]
    with pytest.raises(ValueError, match="out of range"):
        STRING_LENGTH[MAX_STRING + 2]


def test_writes_tagged_fields_in_ascending_order() -> None:
    assert write_tagged([(300, b"xy"), (0, b"")]) == b"\x02\x00\x00\xac\x02\x02xy"
    assert write_tagged([]) == b"\0"


def test_refuses_to_write_duplicate_tag() -> None:
    with pytest.raises(ValueError, match="tag 3 is given twice"):
        write_tagged([(3, b"a"), (3, b"b")])


def test_reads_tagged_section() -> None:
    section = b"-" + write_tagged([(300, b"xy"), (0, b"")]) + b"rest"
    assert read_tag_count(section, 1) == (2, 2)
    assert read_unknown_tags(section, 2, 2) == (((0, b""), (300, b"xy")), len(section) - 4)
    assert skip_tags(section, 1) == len(section) - 4
    assert read_tag(section, 4, 0) == (300, 7, 9)


def test_length_of_buffer_is_its_size_in_bytes() -> None:
    plain = b"abcdefgh"
    assert as_buffer(plain) is plain
    assert len(as_buffer(memoryview(plain).cast("I"))) == 8
    with pytest.raises(TypeError):
        as_buffer("text")  # pyright: ignore[reportArgumentType]
