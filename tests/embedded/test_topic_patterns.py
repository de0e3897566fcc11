"""Regular expressions of the coordinator; the contract has those that RE2/J accepts and refuses."""

from __future__ import annotations

import pytest

from kafka_async.embedded.groups.topic_patterns import compile_pattern
from kafka_async.errors import InvalidRegularExpressionError
from tests.rows import row


def test_matches_whole_names() -> None:
    for pattern, matching, other in [
        ("a", "a", "ab"),
        ("a.*", "abc", "ba"),
        (r"\Qa.b\E", "a.b", "axb"),
        (r"\Qa.b", "a.b", "axb"),
        ("[[:alpha:]_]+", "a_b", "a1"),
        (r"\pL\d\z", "a1", "11"),
        (r"[\p{Lu}\pN]+", "A1", "a1"),
        (r"\p{L}+", "ab", "a1"),
        (r"\p{L}{2}\p{Nd}*?", "ab1", "a1"),
        (r"\PL+", "1.2", "a1"),
        (r"\p{^L}\P{^L}", "1a", "a1"),
        (r"[\p{Greek}\P{Latin}]", "1", "a"),
        (r"\p{Greek}?a", "a", "\u03b1a"),
        (r"\p{Pc}\p{Pd}\p{Common}", "_-.", "a-."),
        (r"\p{Any}{3}", "a.1", "a."),
        ("[[:^alpha:]x]+", "1.x", "a"),
        (r"[\p{L}-z]", "-", "1"),
        ("(?<n>a)b", "ab", "a"),
        ("(?i)A", "a", "b"),
        ("a{2}", "aa", "a"),
        (r"\.", ".", "a"),
    ]:
        with row(pattern, matching, other):
            assert compile_pattern(pattern).fullmatch(matching)
            assert not compile_pattern(pattern).fullmatch(other)


@pytest.mark.parametrize(
    "pattern", [r"\p{Nonsense}", r"\p{latin}", r"\p{Latn}", r"\pX", "[[:alphas:]]", r"\p{L", "a++"]
)
def test_refuses_what_re2j_refuses(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError, match="is not a valid regular expression"):
        compile_pattern(pattern)
