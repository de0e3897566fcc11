"""Writes the tables of docs/errors.md from the exceptions in kafka_async/errors.py.

    python tools/generate_errors.py [--check]

The category of an error on each path comes from `category_of`, which the clients use too; the
table of transactional requests is in `tools/transaction_errors.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from kafka_async import errors
from kafka_async.errors import Category, KafkaError, category_of
from kafka_async.protocol.api import lookup
from kafka_async.protocol.registry import Api
from tools import generated_page
from tools.transaction_errors import FIRST_VERSIONS, HANDLINGS, STEPS, TABLE

CATEGORIES: Final = {
    Category.RETRIABLE: (
        "retry",
        errors.RetriableError,
        "Nothing: the client retries until the call's deadline.",
    ),
    Category.REFRESH_RETRIABLE: (
        "refresh",
        errors.RefreshRetriableError,
        "Nothing: the client refreshes metadata first, then retries.",
    ),
    Category.ABORTABLE: (
        "abort",
        errors.TransactionAbortableError,
        "Abort the transaction; the producer stays usable.",
    ),
    Category.APPLICATION_RECOVERABLE: (
        "restart",
        errors.ApplicationRecoverableError,
        "Close the client; start again from committed offsets.",
    ),
    Category.INVALID_CONFIGURATION: (
        "configure",
        errors.InvalidConfigurationError,
        "Correct an option, a permission or the configuration.",
    ),
}
"""By category: its name in the tables, its class, and the action of the application."""


AFTERWARDS: Final = {
    "usable": "yes",
    "abort": "yes, after `abort()`",
    "init_transactions": "yes, after `init_transactions()`",
    "commit": "after `commit()`, which is awaited again",
    "close": "no: close it",
}
"""Text for `Handling.afterwards`."""


def make() -> str:
    """Return the page."""
    brokers = sorted((cls for cls in all_errors() if cls.code is not None), key=code_of)
    own = (cls for cls in all_errors() if cls.code is None)
    codes = ["Code", "Name and class", "Meaning", *(path.value for path in errors.Path)]
    categories = ((name, f"`{cls.__name__}`", action) for name, cls, action in CATEGORIES.values())
    words = ["Word", "Category", "Producer by itself", "Usable afterwards"]
    tables = {
        "categories": generated_page.table(["Category", "Class", "Action"], categories),
        "client errors": generated_page.table(
            ["Class", "Base class", "Meaning"], map(describe_own, own)
        ),
        "broker errors": generated_page.table(codes, map(describe_code, brokers)),
        "transaction words": generated_page.table(words, map(describe_word, HANDLINGS)),
        "transaction requests": generated_page.table(
            ["Error", *STEPS], ([name, *map(cell, [name] * len(STEPS), STEPS)] for name in TABLE)
        ),
        "transaction versions": generated_page.table(
            ["Request", "Versions", "Errors by handling"], version_rows()
        ),
    }
    return generated_page.filled("errors.md", tables)


def all_errors() -> Iterable[type[KafkaError]]:
    """Return all exceptions, in the order of the source."""
    return (
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, KafkaError)
    )


def code_of(cls: type[KafkaError]) -> int:
    """Return the error code of a class that has one."""
    assert cls.code is not None
    return cls.code


def describe_own(cls: type[KafkaError]) -> tuple[str, str, str]:
    """Return the row of a class without an error code."""
    parents = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
    return f"`{cls.__name__}`", parents, meaning(cls)


def describe_code(cls: type[KafkaError]) -> tuple[str, ...]:
    """Return the row of a class with an error code: its meaning, and its category on each path."""
    found = [category_of(cls(), path) for path in errors.Path]
    cells = ["" if category is None else CATEGORIES[category][0] for category in found]
    return str(cls.code), f"`{cls.name}`<br>`{cls.__name__}`", meaning(cls), *cells


def describe_word(word: str) -> tuple[str, str, str, str]:
    """Return the row of a word in the table of transactional requests."""
    handling = HANDLINGS[word]
    seen = "none" if handling.category is None else CATEGORIES[handling.category][0]
    return word, seen, handling.by_itself or "does not retry", AFTERWARDS[handling.afterwards]


def cell(error: str, step: str) -> str:
    """Return the handling of an error in a request, and the first version that returns it."""
    first = FIRST_VERSIONS[step.split(maxsplit=1)[0]].get(error)
    return TABLE[error][step] + ("" if first is None else f" (v{first}+)")


def version_rows() -> Iterable[tuple[str, str, str]]:
    """Return the errors of each request by version, including earlier versions' errors."""
    for step in STEPS:
        name = step.split(maxsplit=1)[0]
        api = lookup(name)
        assert isinstance(api, Api)
        lowest, highest = api.versions.min, api.versions.max
        added: dict[int, dict[str, list[str]]] = {lowest: {}}
        for error in filter(str.isupper, TABLE):  # the error codes
            version = max(lowest, FIRST_VERSIONS[name].get(error, lowest))
            words = added.setdefault(version, {})
            words.setdefault(TABLE[error][step], []).append(error)
        starts = sorted(added)
        for start, end in zip(starts, [*(each - 1 for each in starts[1:]), highest], strict=True):
            words = added[start]
            groups = [
                f"*{word}*: {', '.join(words[word])}"
                for word in sorted(words, key=list(HANDLINGS).index)
            ]
            if start > lowest:
                groups.insert(0, "errors of earlier versions")
            yield step, str(start) if start == end else f"{start} to {end}", "<br>".join(groups)


def meaning(cls: type[KafkaError]) -> str:
    """Return the first paragraph of the docstring."""
    first = (cls.__doc__ or "").split("\n\n")[0]
    return " ".join(first.split())


if __name__ == "__main__":
    sys.exit(generated_page.main("errors.md", make))
