"""The text of the demo, its words, and the comparison of two counts. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")


def split_words(line: str) -> list[str]:
    """Return the words of a line in lower case: letters, with apostrophes between them."""
    return _WORD.findall(line.lower())


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Return the number of occurrences of each word, the reference for the count through Kafka."""
    return Counter(word for line in lines for word in split_words(line))


def read_lines(files: Sequence[Path]) -> list[str]:
    """Return the lines of the files that are not blank; without files, Python's reference."""
    if files:
        text = "\n".join(file.read_text("utf-8", "replace") for file in files)
    else:
        from pydoc_data.topics import topics

        text = "\n".join(topics[name] for name in sorted(topics))
    return [line for line in text.splitlines() if line.strip()]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares a count of words with the reference count of the same text.

    `expected` and `distinct` describe the reference; the other count lacks `lost` words and has
    `duplicated` extra ones.
    """

    expected: int
    found: int
    lost: int
    duplicated: int
    distinct: int = 0

    @property
    def equal(self) -> bool:
        """True if both counts agree in every word."""
        return self.lost == self.duplicated == 0


def compare(expected: Mapping[str, int], found: Mapping[str, int]) -> Comparison:
    """Compare a count with the reference count."""
    differences = [
        found.get(word, 0) - expected.get(word, 0) for word in expected.keys() | found.keys()
    ]
    return Comparison(
        expected=sum(expected.values()),
        found=sum(found.values()),
        lost=-sum(d for d in differences if d < 0),
        duplicated=sum(d for d in differences if d > 0),
        distinct=sum(occurrences > 0 for occurrences in expected.values()),
    )
