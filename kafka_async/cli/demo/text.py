"""The text, its words, and what a count of them should be: pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")


def words(line: str) -> list[str]:
    """The words of a line, in lower case: runs of letters, with apostrophes inside."""
    return _WORD.findall(line.lower())


def count(lines: Iterable[str]) -> Counter[str]:
    """How often each word occurs: the plain count that everything else is checked against."""
    return Counter(word for line in lines for word in words(line))


def load(files: Sequence[Path]) -> list[str]:
    """The lines of the files that hold anything; without files, Python's own language reference."""
    if files:
        text = "\n".join(file.read_text("utf-8", "replace") for file in files)
    else:
        from pydoc_data.topics import topics

        text = "\n".join(topics[name] for name in sorted(topics))
    return [line for line in text.splitlines() if line.strip()]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two counts of the same text. Words missing from, and words too many in, the second."""

    expected: int
    found: int
    lost: int
    duplicated: int
    distinct: int = 0

    @property
    def equal(self) -> bool:
        """Whether they agree to the last word."""
        return self.lost == self.duplicated == 0


def compare(expected: Mapping[str, int], found: Mapping[str, int]) -> Comparison:
    """Hold a count against the plain one."""
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
