"""Words of the demo's text, and comparisons of two counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kafka_async.cli.demo.words import compare, count_words, read_lines, split_words

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("The quick, the BROWN fox.", ["the", "quick", "the", "brown", "fox"]),
        ("it's Müller's naïve x_1 2nd", ["it's", "müller's", "naïve", "x", "nd"]),
        ("'quoted' -- nothing: 42!", ["quoted", "nothing"]),
        ("", []),
    ],
)
def test_splits_words_at_other_characters_than_letters(line: str, expected: list[str]) -> None:
    assert split_words(line) == expected


def test_counts_that_agree_are_equal() -> None:
    counts = count_words(["a b a", "b"])
    assert counts == Counter(a=2, b=2)
    assert compare(counts, dict(counts)).equal


def test_lost_and_duplicated_words_do_not_cancel_out() -> None:
    comparison = compare({"a": 3, "b": 1}, {"a": 1, "b": 2, "c": 1})
    assert (comparison.expected, comparison.found) == (4, 4)
    assert (comparison.lost, comparison.duplicated) == (2, 2)
    assert not comparison.equal


def test_reads_pythons_reference_without_files() -> None:
    lines = read_lines([])
    assert len(lines) > 5_000
    assert count_words(lines)["the"] > 1_000


def test_reads_files_in_order_without_blank_lines(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("one\n\n  \ntwo\n")
    second.write_bytes(b"three \xff\n")
    assert read_lines([first, second]) == ["one", "two", "three \ufffd"]
