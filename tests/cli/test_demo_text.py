"""The demo's text: what a word is, and when two counts agree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kafka_async.cli.demo.text import compare, count, load, words

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
def test_a_word_is_a_run_of_letters(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_counts_that_agree_are_equal() -> None:
    counts = count(["a b a", "b"])
    assert counts == Counter(a=2, b=2)
    assert compare(counts, dict(counts)).equal


def test_what_is_lost_and_what_is_twice_do_not_cancel_out() -> None:
    compared = compare({"a": 3, "b": 1}, {"a": 1, "b": 2, "c": 1})
    assert (compared.expected, compared.found) == (4, 4)
    assert (compared.lost, compared.duplicated) == (2, 2)
    assert not compared.equal


def test_without_files_the_text_is_pythons_own_reference() -> None:
    lines = load([])
    assert len(lines) > 5_000
    assert count(lines)["the"] > 1_000


def test_files_are_read_in_order_without_empty_lines(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("one\n\n  \ntwo\n")
    second.write_bytes(b"three \xff\n")
    assert load([first, second]) == ["one", "two", "three \ufffd"]
