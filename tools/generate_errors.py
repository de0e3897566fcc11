"""Writes docs/errors.md from the exceptions in kafka_async/errors.py.

    python tools/generate_errors.py [--check]

The category of an error on each path comes from `category_of`, which the clients use too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import generated_page

from kafka_async import errors
from kafka_async.errors import Category, KafkaError, category_of

PAGE: Final = "errors.md"

WORDS: Final = {
    Category.RETRIABLE: "retry",
    Category.REFRESH_RETRIABLE: "refresh",
    Category.ABORTABLE: "abort",
    Category.APPLICATION_RECOVERABLE: "restart",
    Category.INVALID_CONFIGURATION: "configure",
    None: "",
}

OPENING: Final = """\
# Errors

How do I handle errors? Catch exceptions by class. All errors of this package derive from
`KafkaError`. The classes of the [categories](#categories) tell how to react (KIP-1050), the other
classes name the cause:

```python
import kafka_async
from kafka_async import Producer
from kafka_async.errors import KafkaError, RecordTooLargeError, RetriableError


async def main():
    async with Producer("localhost:9092", max_request_size=1000) as producer:
        try:
            await producer.send("clicks", b"x" * 2000)
        except RecordTooLargeError as error:
            print("refused before it was sent:", error)
        except RetriableError as error:
            print("tried until the deadline:", error)
        except KafkaError as error:
            print("failed:", type(error).__name__, error)


kafka_async.run(main())
```

`error.code` and `error.name` are those of the broker. `error.topic`, `error.partition` and
`error.offset` name the place, if it is known. `error.category` is set on errors that a
transactional call raises.
"""

ACTIONS: Final = (
    (Category.RETRIABLE, "Nothing: the client retries until the call's deadline."),
    (Category.REFRESH_RETRIABLE, "Nothing: the client refreshes metadata first, then retries."),
    (Category.ABORTABLE, "Abort the transaction; the producer stays usable."),
    (Category.APPLICATION_RECOVERABLE, "Close the client; start again from committed offsets."),
    (Category.INVALID_CONFIGURATION, "Correct an option, a permission or the configuration."),
)
CLASSES: Final = {
    Category.RETRIABLE: errors.RetriableError,
    Category.REFRESH_RETRIABLE: errors.RefreshRetriableError,
    Category.ABORTABLE: errors.TransactionAbortableError,
    Category.APPLICATION_RECOVERABLE: errors.ApplicationRecoverableError,
    Category.INVALID_CONFIGURATION: errors.InvalidConfigurationError,
}

CATEGORY_NOTES: Final = """\
In the table of error codes, an empty cell means that the error has no category on that path.

Every `KafkaError` that a [transactional](transactions.md) call raises has a category. The broker's
error is its `__cause__`:

- An error without a category is raised as `ApplicationRecoverableError`.
- A retriable error is raised after its deadline as `TransactionAbortableError`, or as
  `TransactionOutcomeUnknownError` if the commit had been sent. `start()`, `init_transactions()` and
  `begin()` raise it as `ApplicationRecoverableError`.

Other calls raise errors unchanged.
"""

PATHS: Final = tuple(errors.Path)


def make() -> str:
    """Return the page."""
    brokers = sorted((cls for cls in all_errors() if cls.code is not None), key=code_of)
    own = (cls for cls in all_errors() if cls.code is None)
    columns = [path.value for path in PATHS]
    return "\n".join(
        [
            generated_page.notice("generate_errors.py", "kafka_async/errors.py"),
            OPENING,
            "## Categories\n",
            generated_page.table(["Category", "Class", "Action"], categories()) + "\n",
            CATEGORY_NOTES,
            "## Client errors\n",
            generated_page.table(["Class", "Base class", "Meaning"], map(describe_own, own)) + "\n",
            "## Broker error codes\n",
            "All codes of Apache Kafka 4.4.0. Other codes raise `UnknownServerError`.\n",
            generated_page.table(
                ["Code", "Name and class", "Meaning", *columns], map(describe_code, brokers)
            )
            + "\n",
        ]
    )


def categories() -> Iterable[tuple[str, str, str]]:
    """Return a row for each category."""
    return ((WORDS[row], f"`{CLASSES[row].__name__}`", action) for row, action in ACTIONS)


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
    cells = [WORDS[category_of(cls(), path)] for path in PATHS]
    return str(cls.code), f"`{cls.name}`<br>`{cls.__name__}`", meaning(cls), *cells


def meaning(cls: type[KafkaError]) -> str:
    """Return the first paragraph of the docstring."""
    first = (cls.__doc__ or "").split("\n\n")[0]
    return " ".join(first.split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; return the exit status."""
    return generated_page.main(PAGE, make, arguments)


if __name__ == "__main__":
    sys.exit(main())
