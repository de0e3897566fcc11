r"""Regular expressions of the coordinator for subscriptions: the syntax of RE2/J. Pure.

They are checked for what RE2/J does not have (look-around, back references, atomic groups and
possessive quantifiers), translated and run by Python's `re`. Names of topics are ASCII, so classes
of Unicode, such as `\pL`, are translated to ASCII; the rarer ones are not supported here.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Final

from kafka_async.errors import InvalidRegularExpressionError

_REFUSED: Final = re.compile(
    r"""
      \(\?(?:[=!>]|<[=!]|P[=>]|\#|\()  # look-around, atomic groups, references, comments
    | [*+?}]\+                          # possessive quantifiers
    """,
    re.VERBOSE,
)
_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)|\\p(?P<unicode>[A-Z]|\{\w+\})|\\(?P<escaped>.)"
    r"|\[:(?P<negated>\^?)(?P<posix>\w+):\]"
    r"|\(\?<(?P<group>\w+)>|(?P<plain>.)",
    re.DOTALL,
)
_KNOWN_ESCAPES: Final = frozenset("ABDSWabdfnrstvwxz")
_UNICODE: Final = {
    "L": "A-Za-z",
    "Lu": "A-Z",
    "Ll": "a-z",
    "Latin": "A-Za-z",
    "N": "0-9",
    "Nd": "0-9",
}
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
MAX_REPEATS: Final = 1_000
"""The largest number in a quantifier of RE2/J."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression of RE2/J; `fullmatch` tells whether it matches a topic.

    Raises InvalidRegularExpressionError if RE2/J does not have it.
    """
    bare = re.sub(r"\\.|\[(?:\\.|[^\]])*\]", "", pattern)
    if found := _REFUSED.search(bare):
        raise _invalid(pattern, f"`{found[0]}` is not supported")
    if any(int(number) > MAX_REPEATS for number in re.findall(r"[{,](\d+)", bare)):
        raise _invalid(pattern, "invalid repeat count")
    translated, in_class = "", False
    for token in _TOKEN.finditer(pattern):
        translated += _translate(pattern, token, in_class=in_class)
        if token["plain"] in ("[", "]"):
            in_class = token["plain"] == "["
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, Warning) as error:
        raise _invalid(pattern, str(error)) from None


def _translate(pattern: str, token: re.Match[str], *, in_class: bool) -> str:
    if token["quoted"] is not None:
        return re.escape(token["quoted"])
    if (escaped := token["escaped"]) is not None:
        if escaped == "z":
            return r"\Z"
        if escaped.isascii() and escaped.isalnum() and escaped not in _KNOWN_ESCAPES:
            raise _invalid(pattern, f"invalid escape sequence: `\\{escaped}`")
        return token[0]
    if (name := token["unicode"]) is not None:
        characters = _UNICODE.get(name.strip("{}"))
        if characters is None:
            raise _invalid(pattern, f"invalid character class range: `{token[0]}`")
        return characters if in_class else f"[{characters}]"
    if (name := token["posix"]) is not None:
        if name not in _POSIX or token["negated"]:
            raise _invalid(pattern, f"invalid character class range: `{token[0]}`")
        return _POSIX[name]
    if (name := token["group"]) is not None:
        return f"(?P<{name}>"
    return token["plain"]


def _invalid(pattern: str, reason: str) -> InvalidRegularExpressionError:
    return InvalidRegularExpressionError(
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
    )
