"""Tests of the parser of sasl.jaas.config."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.config.jaas import parse_jaas
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret
from tests.rows import row

pytestmark = pytest.mark.one_kernel
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options_of(text: str) -> dict[str, str]:
    """Return the options of the login module in `text`."""
    return {name: value.reveal() for name, value in parse_jaas(Secret(text)).options.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('username="alice" password="p w"', {"username": "alice", "password": "p w"}),
        ("username='alice' password='a\"b'", {"username": "alice", "password": 'a"b'}),
        (r'password="a\"b\\c"', {"password": 'a"b\\c'}),
        (r'password="a\tb\nc\101\7"', {"password": "a\tb\ncA\7"}),
        (r'password="\$\{"', {"password": "${"}),
        ('password="a=b;c"', {"password": "a=b;c"}),
        ('password=""', {"password": ""}),
        ("tokenauth=true", {"tokenauth": "true"}),
        ("keyTab=/etc/a.keytab", {"keyTab": "/etc/a.keytab"}),
        ('principal = "a/b@C"', {"principal": "a/b@C"}),
        ("/* one */ a=1 // two \n b=2", {"a": "1", "b": "2"}),
        ("", {}),
    ],
)
def test_reads_options(text: str, expected: dict[str, str]) -> None:
    for flag in ("required", "REQUIRED", "requisite", "sufficient", "optional"):
        found = parse_jaas(Secret(f"{PLAIN} {flag}\n {text};"))
        assert found.class_name == PLAIN
        assert options_of(f"{PLAIN} {flag} {text}\n;") == expected


def test_error_names_the_problem_and_no_part_of_the_text() -> None:
    for text, words in [
        ("", "is empty"),
        (" // nothing", "is empty"),
        (PLAIN, "login module and a control flag"),
        (f"{PLAIN};", "login module and a control flag"),
        ('"PlainLoginModule" required;', "the name of a login module"),
        (f"{PLAIN} mandatory;", "control flag that is none of required"),
        (f"{PLAIN} required", "does not end with a semicolon"),
        (f"{PLAIN} required geheim", "option 1, or lacks the semicolon"),
        (f"{PLAIN} required username=;", "option 1"),
        (f'{PLAIN} required username="a" password geheim;', "option 2"),
        (f'{PLAIN} required username="a" password=="geheim";', "option 2"),
        (f'{PLAIN} required password="geheim;', "quote without its end"),
        (f'{PLAIN} required password="geheim\n";', "quote without its end"),
        (f"{PLAIN} required password=geheim{{;", "not allowed without quotes"),
        (f"{PLAIN} required; {PLAIN} required;", "more than one login module"),
        (f"{PLAIN} required; geheim", "more than one login module"),
        (f"KafkaClient {{ {PLAIN} required password=geheim; }};", "not allowed without quotes"),
    ]:
        with row(text, words):
            with pytest.raises(InvalidConfigurationError, match=words) as raised:
                parse_jaas(Secret(text))
            assert "geheim" not in str(raised.value)


@given(st.text(max_size=60))
def test_any_text_gives_a_login_module_or_an_error(text: str) -> None:
    for candidate in (text, f"{PLAIN} required {text};"):
        with suppress(InvalidConfigurationError):
            assert "." in parse_jaas(Secret(candidate)).class_name


@given(st.text(st.characters(exclude_characters='\\"\r\n'), max_size=30))
def test_a_quoted_value_is_kept(value: str) -> None:
    assert options_of(f'{PLAIN} required password="{value}";') == {"password": value}
