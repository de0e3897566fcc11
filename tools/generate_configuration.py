"""Writes docs/configuration.md from the options in kafka_async/config.py.

    python tools/generate_configuration.py [--check]

The default, the bounds and the description of each option are read from its field.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import generated_page

from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig

PAGE: Final = "configuration.md"
HEADER: Final = ("Option", "Default", "Values", "Description", "Java's client")
MAX_INT32: Final = 2**31 - 1

OPENING: Final = """\
# Configuration

Which options are there, and how do I set them? Pass them as keyword arguments with Kafka's names in
snake_case, or as a dict with [Java's names](#java-names) to `from_properties`:

```python
from kafka_async import Producer

by_keyword = Producer("localhost:9092", linger_ms=20, compression_type="lz4")
by_property = Producer.from_properties(
    {"bootstrap.servers": "localhost:9092", "linger.ms": "20", "compression.type": "lz4"}
)
```

- Options that end in `_ms` are milliseconds, and sizes are bytes. An option with several strings
  also takes one string that is separated by commas.
- All clients take the options of the first table. `Producer` and `Consumer` take those of their
  tables too. With a started `Client` as the first argument, they use its connection options and
  refuse their own.
- An unknown option, a value of a wrong type or out of bounds, and contradictory options raise
  `InvalidConfigurationError` when the client is created. For an option of another client, such as
  `queue.buffering.max.ms` or `max_batch_size`, the error names the replacement.
- `acks=0` and `acks=1` exclude idempotence. They turn it off, which is logged at INFO, as in Java.
  With `enable_idempotence=True` or a `transactional_id` they are refused.

The last column lists differences from Java's client, with the reason. If it is empty, the default
is that of Apache Kafka 4.4.0's client.
"""

JAVA_NAMES: Final = """\
## Java names

`from_properties` takes every option of this page that is a number, a string, a flag or a list of
strings, with dots in place of underscores: `linger.ms`, `enable.auto.commit`. Values may have their
type or be strings, as from a file: `"5"`, `"true"`, `"a,b"`. Three properties are read as in Java:

| Property | Meaning |
| --- | --- |
| `compression.gzip.level`, `compression.lz4.level`, `compression.zstd.level` | \
`compression_level`, if `compression.type` is that codec; ignored otherwise |
| `partition.assignment.strategy` with Java's class names | \
`RangeAssignor` is `range`, `CooperativeStickyAssignor` is `cooperative-sticky` |
| `bootstrap.servers` | required; a string separated by commas, or a list |

Functions and objects (serializers, deserializers, `partitioner`, `ssl_context`, your own assignors)
are passed as Python objects under the same names with dots; names of Java classes are refused.
Properties of Java's clients without an equivalent (`sasl.*`, `interceptor.classes`,
`client.dns.lookup` and others) raise `InvalidConfigurationError` with "not supported yet". Use
`ssl_context` instead of `ssl.*`, and `delivery_timeout_ms` instead of `retries`.
"""

SECTIONS: Final[Sequence[tuple[str, type[ClientConfig], type[ClientConfig] | None]]] = (
    ("All clients", ClientConfig, None),
    ("Producer", ProducerConfig, ClientConfig),
    ("Consumer", ConsumerConfig, ClientConfig),
)


def make() -> str:
    """Return the page."""
    parts = [generated_page.notice("generate_configuration.py", "kafka_async/config.py"), OPENING]
    for title, role, base in SECTIONS:
        inherited = {row.name for row in dataclasses.fields(base)} if base else set[str]()
        rows = [row for row in dataclasses.fields(role) if row.name not in inherited]
        parts.append(f"## {title}\n")
        parts.append(generated_page.table(HEADER, map(describe, rows)) + "\n")
    return "\n".join([*parts, JAVA_NAMES])


def describe(row: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the table row of an option."""
    default = "required" if row.name == "bootstrap_servers" else code(row, row.default)
    return f"`{row.name}`", default, allowed(row), row.metadata["doc"], java(row)


def code(row: dataclasses.Field[Any], value: object) -> str:
    """Return a value as code, with its equivalent in larger units."""
    if isinstance(value, tuple):
        text = ", ".join(f'"{part}"' for part in cast("tuple[object, ...]", value))
        return f"`[{text}]`"
    text = f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
    larger = in_larger_unit(row.name, value)
    return f"{text} ({larger})" if larger else text


def in_larger_unit(name: str, value: object) -> str:
    """Return a value in larger units; empty for small or odd values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if name.endswith("_ms"):
        return format_time(value) if value >= 1000 else ""
    if value < 1024 or value % 1024:
        return ""
    return f"{value // 2**20:g} MiB" if value % 2**20 == 0 else f"{value // 1024:g} KiB"


def format_time(milliseconds: float) -> str:
    """Return a time in minutes if they are whole, else in seconds."""
    if milliseconds % 60_000 == 0:
        return f"{milliseconds / 60_000:g} min"
    return f"{milliseconds / 1000:g} s"


def allowed(row: dataclasses.Field[Any]) -> str:
    """Return the bounds or the choices of an option."""
    low, high, choices = (row.metadata[name] for name in ("low", "high", "choices"))
    if choices is not None:
        return ", ".join(code(row, choice) for choice in choices)
    if low is None:
        return ""
    if high is None or high == MAX_INT32:
        return f"at least {low}"
    return f"{low} to {high}"


def java(row: dataclasses.Field[Any]) -> str:
    """Return the default of Java's client, with the reason for the difference."""
    default, why = row.metadata["java"], row.metadata["why"]
    if default is None:
        return f"no such option: {why}" if why else ""
    return f"{code(row, default)}: {why}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; return the exit status."""
    return generated_page.main(PAGE, make, arguments)


if __name__ == "__main__":
    sys.exit(main())
