"""Reads Java properties files, and wraps the values as secrets. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafka_async.secrets import Secret, SecretBytes

if TYPE_CHECKING:
    from collections.abc import Iterator

WHITESPACE: Final = " \t\f"
_NEWLINE: Final = re.compile(r"\r\n|\r|\n")
_ENTRY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: Secret) -> dict[str, Secret]:
    r"""Return the values by key, as `java.util.Properties` reads them.

    Comments begin with # or !. A backslash continues a line or escapes a character; \uXXXX is a
    UTF-16 code unit. If a key occurs twice, its last value counts. Nothing is expanded.

    Raises:
        ValueError: A line has a malformed \uXXXX; the message has the line's number but not its
            text, which may be secret.
    """
    entries: dict[str, Secret] = {}
    for number, key, value in _entries(text):
        if key is None or value is None:
            raise ValueError(f"line {number} has \\u without four hexadecimal digits after it")
        entries[key] = value
    return entries


def _entries(text: Secret) -> Iterator[tuple[int, str | None, Secret | None]]:
    """Yield each entry with the number of its first line; None is a malformed key or value."""
    for number, line in _logical_lines(text):
        match = _ENTRY.fullmatch(line.reveal())
        assert match is not None  # The pattern matches any text.
        key, value = _unescaped(Secret(match[1])), _unescaped(Secret(match[2]))
        match = None
        yield number, None if key is None else key.reveal(), value


def _logical_lines(text: Secret) -> Iterator[tuple[int, Secret]]:
    """Yield lines that are neither blank nor comments, continuation lines joined, with numbers."""
    joined, first = Secret(""), 0
    for number, line in enumerate(map(Secret, _NEWLINE.split(text.reveal())), 1):
        line = Secret(line.reveal().lstrip(WHITESPACE))
        if not joined:
            first = number
            if line.reveal().startswith(("#", "!")):
                continue
        backslashes = len(line.reveal()) - len(line.reveal().rstrip("\\"))
        if backslashes % 2:
            joined = Secret(joined.reveal() + line.reveal()[:-1])
            continue
        joined = Secret(joined.reveal() + line.reveal())
        if joined:
            yield first, joined
        joined = Secret("")
    if joined:
        yield first, joined


def _unescaped(text: Secret) -> Secret | None:
    r"""Replace escapes; return None for \u without four hexadecimal digits."""
    if any(match[2] == "u" for match in _ESCAPE.finditer(text.reveal())):
        return None
    plain = Secret(_ESCAPE.sub(_character, text.reveal()))
    utf16 = SecretBytes(plain.reveal().encode("utf-16-le", "surrogatepass"))
    return Secret(utf16.reveal().decode("utf-16-le", "surrogatepass"))  # Joins surrogate pairs.


def _character(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _LETTERS.get(match[2], match[2])
