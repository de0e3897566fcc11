"""Compares the rules of the embedded cluster for principals with Kafka's SslPrincipalMapper.

Each case is a list of rules and some subjects. Both sides must refuse the rules, or give every
subject the same name or none. Patterns have only constructs that Java and Python define alike.

Two kinds of rules are left out, because only we refuse them: a list without a rule, and a
replacement with a "$" that names no group of the pattern. Java accepts both, and then closes the
connections of the clients to whom they would apply.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kafka_async.embedded.security.principal_mapping import PrincipalMapping
from kafka_async.errors import InvalidConfigurationError
from tools.conformance.java import JavaProcess
from tools.conformance.parts import PartResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tools.conformance.java import Query
    from tools.conformance.parts import Options

NAME: Final = "PrincipalMapping"
LISTS_PER_COUNT: Final = 20
SUBJECTS_PER_LIST: Final = 6

_PATTERNS: Final = (
    *("^CN=(.*?),OU=(.*?),.*$", "CN=([^,]*),?.*", "^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$", ".*", "(.*)"),
    *(r"CN=(\\w+)\,.*", r"C=([A-Z]{2})(,(.*))?", "CN=(.+?)", "(?i:cn=([a-z]+),.*)", "CN=a\\/b.*"),
    *("(a|CN)=(x)?(.*)", "^(C)(N)(=)(a)(l)(i)(c)(e)(,)(O)(.*)$", "", "CN=alice"),
)
_REPLACEMENTS: Final = (
    *("$1", "$1@$2", "", "$0", "$12", "$11", "x$1y", "a\\/b", "\\$1", "$2", "name", "$9", "\\\\"),
    *("$1,$1", " $1 "),
)
_ENDS: Final = ("", "", "", "L", "U")
_WRONG_ENDS: Final = ("l", "LU", "X", " L", " ")
_WRONG: Final = ("default", "DEFAULTS", "DEFAULT L", "RULE:", "RULE:a", "RULE:a/b", "name")
_SEPARATORS: Final = (",", ", ", " , ", "\n,\t", ",,")
_SUBJECTS: Final = (
    *("CN=alice", "CN=Alice,OU=Ops,O=Example\\, Inc.,C=DE", "CN=\u00dc\u0130\u00df,OU=x,C=DE"),
    *("CN=a/b,OU=c", "C=DE", "", "OU=no name,O=x", "CN=alice,O=Example", "CN=x,CN=y,CN=z"),
    *("CN=\u65e5\u672c,OU=\u03a3\u03a3,O=1", "cn=lower,o=x", "CN=\\ a\\#b,OU=$1"),
)


def run(options: Options) -> PartResult:
    """Compare lists of rules and the names of subjects."""
    result = PartResult()
    refused = named = count = 0
    with JavaProcess() as java:
        for (rules, subjects), theirs in java.results(cases(options)):
            count += 1
            ours = names_of(rules, subjects)
            refused += ours is None
            named += sum(name is not None for name in ours or ())
            if ours != theirs.get("names"):
                what = f"of {rules!r} for {subjects!r}: {ours!r}, Java has {theirs!r}"
                result.add_difference(options, NAME, what)
    result.summary = f"{count:,} lists of rules ({refused:,} refused), {named:,} names"
    return result


def cases(options: Options) -> Iterator[tuple[tuple[str, Sequence[str]], Query]]:
    """Yield rules and subjects with Java's query."""
    if not options.selects(NAME, 0):
        return
    chosen = random.Random(f"{options.seed} {NAME}")
    for _ in range(LISTS_PER_COUNT * options.count):
        rules, subjects = rules_of(chosen), chosen.sample(_SUBJECTS, SUBJECTS_PER_LIST)
        query: dict[str, Any] = {"operation": "principal", "rules": rules, "subjects": subjects}
        yield (rules, subjects), query


def rules_of(chosen: random.Random) -> str:
    """Return a random list of rules; one in five is likely to be invalid."""
    wrong = chosen.random() < 0.2
    rules = [_rule_of(chosen, wrong) for _ in range(chosen.randint(1, 4))]
    text = chosen.choice(("", "", " ", ","))
    for rule in rules:
        text += rule + chosen.choice(_SEPARATORS)
    return text if chosen.random() < 0.3 else text.rstrip(" ,\n\t")


def _rule_of(chosen: random.Random, wrong: bool) -> str:
    if chosen.random() < 0.2:
        return chosen.choice(_WRONG) if wrong else "DEFAULT"
    pattern, replacement = chosen.choice(_PATTERNS), chosen.choice(_REPLACEMENTS)
    if "(" not in pattern:
        replacement = replacement.replace("$", "")
    if wrong and chosen.random() < 0.2:
        pattern, replacement = chosen.choice(("[", "(", "*")), "name"
    end = chosen.choice(_WRONG_ENDS) if wrong and chosen.random() < 0.2 else chosen.choice(_ENDS)
    return f"RULE:{pattern}/{replacement}/{end}"


def names_of(rules: str, subjects: Sequence[str]) -> list[str | None] | None:
    """Return the name of each subject; None if the rules are refused."""
    try:
        mapping = PrincipalMapping(rules)
    except InvalidConfigurationError:
        return None
    return [mapping.name_of(subject) for subject in subjects]
