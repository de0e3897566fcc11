r"""Regular expressions of the coordinator for subscriptions: the syntax of RE2/J. Pure.

Constructs that RE2/J does not have (look-around, back references, atomic groups and possessive
quantifiers) are refused; the rest is translated and run by Python's `re`. Topic names are ASCII, so
Unicode classes such as `\pL` are translated to their ASCII characters.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafka_async.errors import InvalidRegularExpressionError

if TYPE_CHECKING:
    from collections.abc import Callable

_REFUSED: Final = re.compile(
    r"""
      \(\?(?:[=!>]|<[=!]|P[=>]|\#|\()  # look-around, atomic groups, references, comments
    | [*+?}]\+                          # possessive quantifiers
    """,
    re.VERBOSE,
)
_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)|\\(?P<sign>[pP])(?P<unicode>[A-Z]|\{\^?\w+\})|\\(?P<escaped>.)"
    r"|\[:(?P<negated>\^?)(?P<posix>\w+):\]"
    r"|\(\?<(?P<group>\w+)>|(?P<plain>.)",
    re.DOTALL,
)
_KNOWN_ESCAPES: Final = frozenset("ABDSWabdfnrstvwxz")
_CATEGORY_NAMES: Final = """
C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp
Zs
"""
_SCRIPT_NAMES: Final = """
Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid
Canadian_Aboriginal Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret
Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han
Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin Lepcha
Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko
Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa
Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog
Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi
"""
"""Names of RE2/J 1.8's Unicode tables."""
_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.split())
_SCRIPTS: Final = frozenset(_SCRIPT_NAMES.split())
_NOT_ASCII: Final = r"\x80-\U0010ffff"
_NOTHING: Final = r"\U0010ffff"
"""Stands for an empty class, which `re` does not have; no topic name has this character."""
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
"""The largest number in an RE2/J quantifier."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an RE2/J regular expression, for `fullmatch` with topic names.

    Raises InvalidRegularExpressionError if RE2/J would refuse it.
    """
    bare = re.sub(r"\\[pP]\{\^?\w+\}|\\.|\[(?:\\.|[^\]])*\]", "", pattern)
    if found := _REFUSED.search(bare):
        raise _invalid(pattern, f"`{found[0]}` is not supported")
    if any(int(number) > MAX_REPEATS for number in re.findall(r"[{,](\d+)", bare)):
        raise _invalid(pattern, "invalid repeat count")
    translated, in_class, after_set = "", False, False
    for token in _TOKEN.finditer(pattern):
        part = _translate(pattern, token, in_class=in_class)
        # A hyphen after a character class does not begin a range.
        translated += r"\-" if in_class and after_set and part == "-" else part
        after_set = bool(token["unicode"] or token["posix"])
        if token["plain"] in ("[", "]"):
            in_class = token["plain"] == "["
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, Warning) as error:
        raise _invalid(pattern, str(error)) from None


def _unicode_class(name: str) -> Callable[[str], bool] | None:
    """Return a test of ASCII characters for a Unicode class, or None."""
    if name == "Any":
        return lambda _: True
    if name in _CATEGORIES:
        return lambda each: unicodedata.category(each).startswith(name)
    if name not in _SCRIPTS:
        return None
    if name == "Common":
        return lambda each: not each.isalpha()
    return lambda each: name == "Latin" and each.isalpha()


def _members(contains: Callable[[str], object], *, negated: bool) -> str:
    """Return the characters of a class in bracket syntax of `re`."""
    found = [chr(code) for code in range(128) if bool(contains(chr(code))) is not negated]
    return "".join(map(re.escape, found)) + (_NOT_ASCII if negated else "") or _NOTHING


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
        bare = name.strip("{}").removeprefix("^")
        contains = _unicode_class(bare)
        if contains is None:
            raise _invalid(pattern, f"invalid character class range: `{token[0]}`")
        characters = _members(contains, negated=(token["sign"] == "P") is not ("^" in name))
        return characters if in_class else f"[{characters}]"
    if (name := token["posix"]) is not None:
        if name not in _POSIX:
            raise _invalid(pattern, f"invalid character class range: `{token[0]}`")
        if not token["negated"]:
            return _POSIX[name]
        return _members(re.compile(f"[{_POSIX[name]}]").match, negated=True)
    if (name := token["group"]) is not None:
        return f"(?P<{name}>"
    return token["plain"]


def _invalid(pattern: str, reason: str) -> InvalidRegularExpressionError:
    return InvalidRegularExpressionError(
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
    )
