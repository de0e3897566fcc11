"""Rules that map subjects of client certificates to principal names (KIP-371). Pure.

`ssl.principal.mapping.rules` is a list such as `RULE:^CN=(.*?),.*$/$1/L, DEFAULT`. The first rule
whose pattern matches the whole subject applies: it replaces every match of the pattern in the
subject, as `re.sub` does. Patterns use Python's syntax, which differs from Java's in rare
constructs such as named groups.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SUBJECT_LENGTH: Final = 1024
"""Maximum length of a subject for rules, in characters.

The time for a pattern may grow exponentially with the length of the subject.
"""
OPTION: Final = "ssl_principal_mapping_rules"
_DEFAULT: Final = "DEFAULT"
_RULE: Final = "RULE:"
_SPACE: Final = " \t\n\r\f\v"


class Rule(NamedTuple):
    """Maps a subject that `pattern` matches.

    Attributes:
        pattern: The regular expression; None for the rule DEFAULT, which keeps the subject.
        replacement: Literal text and group numbers.
        case: "L" for lower case, "U" for upper case, or "".
    """

    pattern: re.Pattern[str] | None = None
    replacement: Sequence[str | int] = ()
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the name of a subject, or None if the pattern does not match."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._expand, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _expand(self, found: re.Match[str]) -> str:
        return "".join(
            each if isinstance(each, str) else found[each] or "" for each in self.replacement
        )


class PrincipalMapping:
    """Maps subjects by the rules of a listener.

    Args:
        text: The rules, separated by commas.

    Raises:
        InvalidConfigurationError: A rule is not valid.
    """

    def __init__(self, text: str) -> None:
        self._rules = _rules(text)

    def name_of(self, subject: str) -> str | None:
        """Return the name of a certificate's subject.

        Return None if no rule matches or the subject is longer than MAX_SUBJECT_LENGTH: brokers
        close such a connection.
        """
        if len(subject) > MAX_SUBJECT_LENGTH:
            return None
        names = (rule.apply(subject) for rule in self._rules)
        return next((name for name in names if name is not None), None)


def _rules(text: str) -> list[Rule]:
    rules: list[Rule] = []
    rest = text.strip(_SPACE)
    while rest:
        if rest.startswith(_RULE):
            rule, rest = _rule(rest.removeprefix(_RULE))
            rules.append(rule)
        elif rest.startswith(_DEFAULT):
            rules.append(Rule())
            rest = rest.removeprefix(_DEFAULT)
        rest = rest.lstrip(_SPACE)
        if rest and not rest.startswith(","):
            raise _invalid(f'"{rest}" is no rule: write DEFAULT or RULE:pattern/replacement/[LU]')
        rest = rest[1:].lstrip(_SPACE)
    if not rules:
        raise _invalid("it has no rule: write at least DEFAULT, or leave the option out")
    return rules


def _rule(text: str) -> tuple[Rule, str]:
    """Return the rule at the beginning of `text`, and the remaining text."""
    source, rest = _until_slash(text)
    template, rest = _until_slash(rest)
    case = rest[:1] if rest[:1] in ("L", "U") else ""
    try:
        pattern = re.compile(source)
    except re.error as error:
        raise _invalid(f'the pattern "{source}" is no regular expression ({error})') from error
    return Rule(pattern, _replacement(template, pattern.groups), case), rest[len(case) :]


def _until_slash(text: str) -> tuple[str, str]:
    """Split at the first unescaped slash."""
    found = re.match(r"((?:\\.|[^\\/])*)/", text)
    if found is None:
        raise _invalid(
            f'"{_RULE}...{text}" lacks a slash: write RULE:pattern/replacement/ with two slashes'
        )
    return found[1], text[found.end() :]


def _replacement(text: str, groups: int) -> list[str | int]:
    """Return the parts of a replacement: `$1` is a group, a backslash quotes a character."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        char, following = text[at], text[at + 1 : at + 2]
        at += 1
        if char == "\\":
            parts.append(following)
            at += 1
        elif char != "$":
            parts.append(char)
        elif not (following.isascii() and following.isdigit()):
            raise _invalid(
                f'the replacement "{text}" has a $ without the number of a group: write \\$ for '
                "the character"
            )
        elif int(following) > groups:
            if not groups:
                raise _invalid(f'the replacement "{text}" names a group, the pattern has none')
            parts.append(char)  # literal, as in Kafka
        else:
            number, at = int(following), at + 1
            while text[at : at + 1].isascii() and text[at : at + 1].isdigit():
                longer = 10 * number + int(text[at])
                if longer > groups:
                    break
                number, at = longer, at + 1
            parts.append(number)
    return parts


def _invalid(reason: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"{OPTION}: {reason}")
