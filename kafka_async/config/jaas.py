"""Reads the property sasl.jaas.config as data; no class is loaded. Pure.

The grammar is that of Java's client: one login module, a control flag, options and a semicolon:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

Errors show neither the text nor names in it that are not known, since a misplaced quote makes a
password look like a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kafka_async.config.spelling import option_error
from kafka_async.secrets import Secret


class LoginModule(NamedTuple):
    """One login module and its options.

    Attributes:
        class_name: The name of Java's class.
        options: Values by name.
    """

    class_name: str
    options: Mapping[str, Secret]


FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""
    \s+ | //[^\r\n]* | /\*.*?\*/                        # spaces and comments
    | (?P<word>\$\{[\w.:/-]*\} | [\w.$+@:/\\-]+)        # a reference is refused, not expanded
    | "(?P<double>(?:[^"\\\r\n]|\\.)*)"
    | '(?P<single>(?:[^'\\\r\n]|\\.)*)'
    | (?P<sign>[=;])
    """,
    re.VERBOSE | re.DOTALL,
)
_CLASS_NAME: Final = re.compile(r"[A-Za-z_][\w$]*(?:\.[A-Za-z_][\w$]*)+")
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_EXAMPLE: Final = '<login module> required username="..." password="...";'


class _Token(NamedTuple):
    """A word or a quoted text (`sign` is empty), or a sign."""

    sign: str
    text: Secret


def parse_jaas(text: Secret) -> LoginModule:
    """Return the login module of a property's value.

    Raises InvalidConfigurationError if the value is malformed or has several login modules.
    """
    found = _parse(text)
    if isinstance(found, str):
        raise option_error("sasl_jaas_config", f" {found}: write {_EXAMPLE}")
    return found


def _parse(text: Secret) -> LoginModule | str:
    """Return the login module, or the problem. This does not raise: variables have secrets."""
    tokens = list(_tokens(text))
    if tokens and tokens[-1].sign == "invalid":
        return "has a quote without its end, or a character that is not allowed without quotes"
    if not tokens:
        return "is empty"
    if len(tokens) < 2 or tokens[0].sign or tokens[1].sign:
        return "does not begin with a login module and a control flag"
    if not _CLASS_NAME.fullmatch(tokens[0].text.reveal()):
        return "does not begin with the name of a login module"
    if tokens[1].text.reveal().lower() not in FLAGS:
        return "has a control flag that is none of required, requisite, sufficient and optional"
    options: dict[str, Secret] = {}
    rest = tokens[2:]
    while rest and rest[0].sign != ";":
        if len(rest) < 3 or rest[0].sign or rest[1].sign != "=" or rest[2].sign:
            return f"has no name=value at its option {len(options) + 1}, or lacks the semicolon"
        options[rest[0].text.reveal()] = rest[2].text
        rest = rest[3:]
    if not rest:
        return "does not end with a semicolon"
    if len(rest) > 1:
        return "has more than one login module"
    return LoginModule(tokens[0].text.reveal(), options)


def _tokens(text: Secret) -> Iterator[_Token]:
    """Yield the tokens; the last one is "invalid" if the rest cannot be read."""
    at, end = 0, len(text.reveal())
    while at < end:
        match = _TOKEN.match(text.reveal(), at)
        if match is None:
            yield _Token("invalid", Secret(""))
            return
        at = match.end()
        if match["sign"]:
            yield _Token(match["sign"], Secret(""))
        elif match["word"]:
            yield _Token("", Secret(match["word"]))
        elif match["double"] is not None or match["single"] is not None:
            yield _Token("", Secret(_unescaped(match["double"] or match["single"] or "")))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code.isdigit() and code < "8" else _ESCAPES.get(code, code)
