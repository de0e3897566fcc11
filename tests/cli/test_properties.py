r"""The reader of Java properties files, compared with what java.util.Properties reads."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.cli.properties import parse_properties
from kafka_async.secrets import Secret

READ_BY_JAVA = [
    (
        "a=b\nc:d\ne f\ng = h\ni\t:\tj\nk",
        {"a": "b", "c": "d", "e": "f", "g": "h", "i": "j", "k": ""},
    ),
    ("# c\n! c\n  \t# c\n\n \f\na=1", {"a": "1"}),
    ("# c \\\na=1", {"a": "1"}),
    ("a = b # not a comment ", {"a": "b # not a comment "}),
    ("a=1\na=2", {"a": "2"}),
    ("a=one\\\n   two\\\r\n\tthree", {"a": "onetwothree"}),
    ("a=x\\\n\nb=1", {"a": "x", "b": "1"}),
    ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
    ("a=x\\", {"a": "x"}),
    ("\\\n# c\na=1", {"a": "1"}),
    ("a==b\nc=:d\ne=f=g", {"a": "=b", "c": ":d", "e": "f=g"}),
    ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
    ("a=\\t\\n\\r\\f\\x\\\\\\ ", {"a": "\t\n\r\fx\\ "}),
    ("a=\\u0041\\u00e9\\ud83d\\ude00", {"a": "Aé😀"}),
    ("a=\\\\u0041", {"a": "\\u0041"}),
    ("a=${env:HOME}", {"a": "${env:HOME}"}),
    ("a=x\x0by\x85z\rb=1", {"a": "x\x0by\x85z", "b": "1"}),
    (
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '  username="alice" \\\n  password="it\'s";\n',
        {
            "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="it\'s";'
        },
    ),
]


@pytest.mark.parametrize(("text", "expected"), READ_BY_JAVA)
def test_reads_the_values_that_java_reads(text: str, expected: dict[str, str]) -> None:
    found = parse_properties(Secret(text))
    assert {key: value.reveal() for key, value in found.items()} == expected


@pytest.mark.parametrize("escape", ["\\u", "\\u00", "\\u00g0", "\\U0041\\u"])
def test_error_has_the_line_of_a_malformed_escape_and_no_value(escape: str) -> None:
    text = Secret(f"a=1\n# comment\nsasl.password=planted{escape}\n")
    with pytest.raises(ValueError, match=r"^line 3 has \\u without four") as caught:
        parse_properties(text)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "planted" not in "".join(
        line for frame in shown.stack[1:] for line in [repr(frame.locals)]
    )


@given(st.text())
def test_any_text_is_read_or_has_a_malformed_escape(text: str) -> None:
    try:
        parse_properties(Secret(text))
    except ValueError:
        assert "\\u" in text


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_values_with_each_character_escaped_are_read_unchanged(entries: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in entries.items())
    found = parse_properties(Secret(text))
    assert {key: value.reveal() for key, value in found.items()} == entries
