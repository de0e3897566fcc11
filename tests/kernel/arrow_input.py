"""Builds columns in Arrow's layout from lists, as input of `RecordColumns`."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from kafka_async.kernel import BinaryInput, HeaderInput, NumberInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.types import Headers


def bitmap(valid: Sequence[bool], start: int) -> bytes | None:
    """Return a validity bitmap after `start` other rows; None if all rows are valid."""
    if all(valid):
        return None
    made = bytearray((start + len(valid) + 7) // 8)
    for row, is_valid in enumerate(valid, start):
        made[row >> 3] |= is_valid << (row & 7)
    return bytes(made)


def offsets(lengths: Sequence[int], start: int, *, wide: bool) -> bytes:
    """Return offsets after `start` other rows."""
    ends = [0] * start + list(accumulate(lengths, initial=3))
    return array("q" if wide else "i", ends).tobytes()


def binary(values: Sequence[bytes | None], *, start: int = 0, wide: bool = False) -> BinaryInput:
    """Return a column of byte strings, whose buffers have other rows and bytes in front."""
    lengths = [len(value or b"") for value in values]
    return BinaryInput(
        len(values),
        start,
        bitmap([value is not None for value in values], start),
        offsets(lengths, start, wide=wide),
        b"..." + b"".join(value or b"" for value in values),
        wide,
    )


def numbers(values: Sequence[int | None], *, start: int = 0, wide: bool = False) -> NumberInput:
    """Return a column of integers, whose buffers have other rows in front."""
    return NumberInput(
        len(values),
        start,
        bitmap([value is not None for value in values], start),
        array("q" if wide else "i", [*[-7] * start, *(value or 0 for value in values)]).tobytes(),
        wide,
    )


def header_lists(
    rows: Sequence[Headers | None], *, start: int = 0, wide: bool = False
) -> HeaderInput:
    """Return a column of header lists, whose buffers have other rows and headers in front."""
    before = [("?", b"?")] * 3
    headers = [*before, *(header for row in rows for header in row or ())]
    return HeaderInput(
        len(rows),
        start,
        bitmap([row is not None for row in rows], start),
        offsets([len(row or ()) for row in rows], start, wide=wide),
        wide,
        binary([name.encode() for name, _ in headers], start=start, wide=wide),
        binary(
            [None if value is None else bytes(value) for _, value in headers],
            start=start,
            wide=wide,
        ),
    )
