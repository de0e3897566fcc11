"""Write docs/configuration.md from the options in kafka_async/config.py.

    python tools/generate_configuration.py [--check]

Each option's default, bounds and reasons are read from its field, so the page cannot say anything
else than the code does.
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

Options are keyword arguments under Kafka's own names in snake_case, in Kafka's own units: what
ends in `_ms` is milliseconds, sizes are bytes. Every client takes the options of `Client`;
`Producer` and `Consumer` take more. `from_properties` takes a dict of [Java's names](#java-names):

```python
from kafka_async import Producer

by_keyword = Producer("localhost:9092", linger_ms=20, compression_type="lz4")
by_property = Producer.from_properties(
    {"bootstrap.servers": "localhost:9092", "linger.ms": "20", "compression.type": "lz4"}
)
```

An option that does not exist, a value of a wrong type or out of bounds, and options that contradict
each other raise `InvalidConfigurationError` when the client is made. Names from other clients, as
`queue.buffering.max.ms` or `max_batch_size`, are refused with the option that has their place here.
An option that takes several texts also takes one text with commas between. A producer or consumer
that is given a started `Client` takes that client's connection options, and refuses its own.

`acks=0` and `acks=1` exclude idempotence. Without `enable_idempotence` they turn it off, which is
logged at INFO, as in Java; with `enable_idempotence=True` or a `transactional_id` they are refused.

The last column says where this library differs from Java's client, and why; where it is empty, the
default is that of Apache Kafka 4.4.0's client.
"""

JAVA_NAMES: Final = """\
## Java names

`from_properties` takes every option of this page that is a number, a text, a flag or a list of
texts, with dots in place of underscores: `linger.ms`, `enable.auto.commit`. Values may have their
own type or be text, as from a file: `"5"`, `"true"`, `"a,b"`. Three things are read as Java does:

| Property | Meaning here |
| --- | --- |
| `compression.gzip.level`, `compression.lz4.level`, `compression.zstd.level` | \
`compression_level`, if `compression.type` is that codec; else ignored |
| `partition.assignment.strategy` with Java's class names | \
`RangeAssignor` is `range`, `CooperativeStickyAssignor` is `cooperative-sticky` |
| `bootstrap.servers` | required; a text with commas, or a list |

Functions and objects (serializers, deserializers, `partitioner`, `ssl_context`, assignors of your
own) are passed as Python objects under the same dotted names; names of Java classes are refused.
Properties of Java's clients that have no equivalent here yet (`sasl.*`, `interceptor.classes`,
`client.dns.lookup` and others) raise `InvalidConfigurationError` with "not supported yet". `ssl.*`
is replaced by `ssl_context`, and `retries` by `delivery_timeout_ms`.
"""

SECTIONS: Final[Sequence[tuple[str, type[ClientConfig], type[ClientConfig] | None]]] = (
    ("Every client", ClientConfig, None),
    ("Producer", ProducerConfig, ClientConfig),
    ("Consumer", ConsumerConfig, ClientConfig),
)


def make() -> str:
    """The whole page."""
    parts = [generated_page.notice("generate_configuration.py", "kafka_async/config.py"), OPENING]
    for title, role, base in SECTIONS:
        inherited = {row.name for row in dataclasses.fields(base)} if base else set[str]()
        rows = [row for row in dataclasses.fields(role) if row.name not in inherited]
        parts.append(f"## {title}\n")
        parts.append(generated_page.table(HEADER, map(describe, rows)) + "\n")
    return "\n".join([*parts, JAVA_NAMES])


def describe(row: dataclasses.Field[Any]) -> tuple[str, ...]:
    """An option as a row of the table."""
    default = "required" if row.name == "bootstrap_servers" else code(row, row.default)
    return f"`{row.name}`", default, allowed(row), row.metadata["doc"], java(row)


def code(row: dataclasses.Field[Any], value: object) -> str:
    """A value as one writes it, and what it is in larger units."""
    if isinstance(value, tuple):
        text = ", ".join(f'"{part}"' for part in cast("tuple[object, ...]", value))
        return f"`[{text}]`"
    text = f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
    spoken = unit(row.name, value)
    return f"{text} ({spoken})" if spoken else text


def unit(name: str, value: object) -> str:
    """The value in units that are easier to read; empty if it is easy enough."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if name.endswith("_ms"):
        return spoken_time(value) if value >= 1000 else ""
    if value < 1024 or value % 1024:
        return ""
    return f"{value // 2**20:g} MiB" if value % 2**20 == 0 else f"{value // 1024:g} KiB"


def spoken_time(milliseconds: float) -> str:
    """Seconds, or minutes where these are whole."""
    if milliseconds % 60_000 == 0:
        return f"{milliseconds / 60_000:g} min"
    return f"{milliseconds / 1000:g} s"


def allowed(row: dataclasses.Field[Any]) -> str:
    """The bounds or the choices."""
    low, high, choices = (row.metadata[name] for name in ("low", "high", "choices"))
    if choices is not None:
        return ", ".join(code(row, choice) for choice in choices)
    if low is None:
        return ""
    if high is None or high == MAX_INT32:
        return f"at least {low}"
    return f"{low} to {high}"


def java(row: dataclasses.Field[Any]) -> str:
    """How Java's client differs, and why this one does."""
    default, why = row.metadata["java"], row.metadata["why"]
    if default is None:
        return f"no such option: {why}" if why else ""
    return f"{code(row, default)}: {why}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; returns the exit status."""
    return generated_page.main(PAGE, make, arguments)


if __name__ == "__main__":
    sys.exit(main())
