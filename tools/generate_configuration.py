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
HEADER: Final = ("Option", "Default", "Allowed", "What it does", "Java's client")
MAX_INT32: Final = 2**31 - 1

OPENING: Final = """\
# Configuration

Options are keyword arguments with Kafka's names in snake case and with Kafka's units: names that
end in `_ms` are milliseconds, and sizes are bytes. Every client takes the options of `Client`;
`Producer` and `Consumer` take more. `from_properties` takes a dict of [Java's names](#java-names):

```python
from kafka_async import Producer

by_keyword = Producer("localhost:9092", linger_ms=20, compression_type="lz4")
by_property = Producer.from_properties(
    {"bootstrap.servers": "localhost:9092", "linger.ms": "20", "compression.type": "lz4"}
)
```

An unknown option, a value of a wrong type or out of bounds, and options that contradict each other
raise `InvalidConfigurationError` when the client is created. For names of other clients, such as
`queue.buffering.max.ms` or `max_batch_size`, the error names the option to use instead. An option
that takes several strings also takes one string with commas. A producer or consumer with a `Client`
uses that client's connection options, and raises the error if it is given such options itself.

`acks=0` and `acks=1` exclude idempotence. As in Java, they turn it off if `enable_idempotence` is
not set, and log that at INFO; with `enable_idempotence=True` or a `transactional_id` they raise
`InvalidConfigurationError`.

The last column lists differences from Java's client, with the reason. If it is empty, the default
is that of the client of Apache Kafka 4.4.0.
"""

JAVA_NAMES: Final = """\
## Java names

`from_properties` takes every option of this page that is a number, a string, a boolean or a list of
strings, with dots instead of underscores: `linger.ms`, `enable.auto.commit`. Values have the type
of the option or are strings, as from a file: `"5"`, `"true"`, `"a,b"`. Some properties are Java's:

| Property | Meaning here |
| --- | --- |
| `compression.gzip.level`, `compression.lz4.level`, `compression.zstd.level` | \
`compression_level`, if `compression.type` is that codec; else ignored |
| `partition.assignment.strategy` with Java's class names | \
`RangeAssignor` is `range`, `CooperativeStickyAssignor` is `cooperative-sticky` |
| `bootstrap.servers` | required; a string with commas, or a list |

Functions and objects (serializers, deserializers, `partitioner`, `ssl_context`, custom assignors)
are Python objects under the same dotted names; names of Java classes raise
`InvalidConfigurationError`. So do properties of Java's clients that have no equivalent yet
(`sasl.*`, `interceptor.classes`, `client.dns.lookup` and others), with "not supported yet". Use
`ssl_context` instead of `ssl.*`, and `delivery_timeout_ms` instead of `retries`.
"""

SECTIONS: Final[Sequence[tuple[str, type[ClientConfig], type[ClientConfig] | None]]] = (
    ("Every client", ClientConfig, None),
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
