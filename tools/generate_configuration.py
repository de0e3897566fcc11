"""Writes the tables of docs/configuration.md from the options in kafka_async/config.

    python tools/generate_configuration.py [--check]

The default, the bounds and the description of each option are read from its field.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, Final, cast

from kafka_async.config import (
    ClientConfig,
    ConsumerConfig,
    GroupMemberConfig,
    ProducerConfig,
    ShareConsumerConfig,
)
from tools import generated_page

HEADER: Final = ("Option", "Default", "Values", "Description", "Java's client")
MAX_INT32: Final = 2**31 - 1

SECTIONS: Final[Sequence[tuple[str, type[ClientConfig], type[ClientConfig] | None]]] = (
    ("All clients", ClientConfig, None),
    ("Producer", ProducerConfig, ClientConfig),
    ("Consumer", ConsumerConfig, ClientConfig),
    ("Share consumer", ShareConsumerConfig, ClientConfig),
    ("Group member", GroupMemberConfig, ClientConfig),
)


def make() -> str:
    """Return the page."""
    tables: dict[str, str] = {}
    for title, role, base in SECTIONS:
        inherited = {row.name for row in dataclasses.fields(base)} if base else set[str]()
        rows = [row for row in dataclasses.fields(role) if row.name not in inherited]
        tables[title] = generated_page.table(HEADER, map(describe, rows))
    return generated_page.filled("configuration.md", tables)


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


if __name__ == "__main__":
    sys.exit(generated_page.main("configuration.md", make))
