"""Write docs/errors.md from the exceptions in kafka_async/errors.py.

    python tools/generate_errors.py [--check]

What an error means on each path comes from `category_of`, the function that the client itself asks.
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

Everything this library raises on purpose is a `KafkaError`. Dispatch by class: the classes that
stand for a category say what to do (KIP-1050), the others say what happened.

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

`error.code` and `error.name` are the broker's; `error.topic`, `error.partition` and `error.offset`
say where, if that is known. `error.category` is set on errors that leave a transactional call.
"""

ACTIONS: Final = (
    (Category.RETRIABLE, "Nothing: the client retries by itself, until the call's deadline."),
    (Category.REFRESH_RETRIABLE, "Nothing: the client looks up who leads first, then retries."),
    (Category.ABORTABLE, "Abort the transaction; the producer stays usable."),
    (Category.APPLICATION_RECOVERABLE, "Close the client, start again from what was committed."),
    (Category.INVALID_CONFIGURATION, "Change an option, a permission or the cluster's set-up."),
)
CLASSES: Final = {
    Category.RETRIABLE: errors.RetriableError,
    Category.REFRESH_RETRIABLE: errors.RefreshRetriableError,
    Category.ABORTABLE: errors.TransactionAbortableError,
    Category.APPLICATION_RECOVERABLE: errors.ApplicationRecoverableError,
    Category.INVALID_CONFIGURATION: errors.InvalidConfigurationError,
}

LEAVING: Final = """\
An empty cell means no category on that path. Every `KafkaError` that a transactional call raises
has one: an error without a category is raised as `ApplicationRecoverableError`, and a retriable
one, once its deadline is over, as `TransactionAbortableError`, as `TransactionOutcomeUnknownError`
if the commit had been sent, or as `ApplicationRecoverableError` by `start()`,
`init_transactions()` and `begin()`. The broker's own error is its `__cause__`. See
[transactions](transactions.md). Elsewhere errors are raised as they are.
"""

PATHS: Final = tuple(errors.Path)


def make() -> str:
    """The whole page."""
    brokers = sorted((cls for cls in every() if cls.code is not None), key=code_of)
    own = (cls for cls in every() if cls.code is None)
    columns = [path.value for path in PATHS]
    return "\n".join(
        [
            generated_page.notice("generate_errors.py", "kafka_async/errors.py"),
            OPENING,
            "## Categories\n",
            generated_page.table(["In the table", "Class", "What to do"], categories()) + "\n",
            LEAVING,
            "## The client's own\n",
            generated_page.table(["Class", "Is a", "Meaning"], map(describe_own, own)) + "\n",
            "## Brokers' error codes\n",
            "All of Apache Kafka 4.4.0's. A code that is not here raises `UnknownServerError`.\n",
            generated_page.table(
                ["Code", "Name and class", "Meaning", *columns], map(describe_code, brokers)
            )
            + "\n",
        ]
    )


def categories() -> Iterable[tuple[str, str, str]]:
    """A row for each category."""
    return ((WORDS[row], f"`{CLASSES[row].__name__}`", action) for row, action in ACTIONS)


def every() -> Iterable[type[KafkaError]]:
    """All exceptions, in the order of the source."""
    return (
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, KafkaError)
    )


def code_of(cls: type[KafkaError]) -> int:
    """The broker's code, of a class that has one."""
    assert cls.code is not None
    return cls.code


def describe_own(cls: type[KafkaError]) -> tuple[str, str, str]:
    """A row of the classes without a code."""
    parents = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
    return f"`{cls.__name__}`", parents, meaning(cls)


def describe_code(cls: type[KafkaError]) -> tuple[str, ...]:
    """A row of the classes with a code: what it means, and on each path."""
    cells = [WORDS[category_of(cls(), path)] for path in PATHS]
    return str(cls.code), f"`{cls.name}`<br>`{cls.__name__}`", meaning(cls), *cells


def meaning(cls: type[KafkaError]) -> str:
    """The first paragraph of the docstring."""
    first = (cls.__doc__ or "").split("\n\n")[0]
    return " ".join(first.split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; returns the exit status."""
    return generated_page.main(PAGE, make, arguments)


if __name__ == "__main__":
    sys.exit(main())
