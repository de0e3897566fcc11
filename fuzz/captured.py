"""Loads bytes that Kafka's Java classes wrote, from which the seeds are made."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent / "tests"


class Frame(NamedTuple):
    """Holds the bytes of a message: with size and header, or `bare` without an API key."""

    message: str
    version: int
    raw: bytes
    bare: bool


@cache
def frames() -> tuple[Frame, ...]:
    """Return requests, responses and messages without an API key."""
    lines = (TESTS / "protocol/data/frames.jsonl").read_text("utf-8").splitlines()
    return tuple(
        Frame(row["message"], row["version"], bytes.fromhex(row["bytes"]), "client_id" not in row)
        for row in map(json.loads, lines)
    )


@cache
def batches() -> dict[str, bytes]:
    """Return record batches and message sets by name: every magic and codec, and markers."""
    small = json.loads((TESTS / "records/data/java_batches.json").read_text("utf-8"))["cases"]
    large = json.loads((TESTS / "records/data/java_large_batches.json").read_text("utf-8"))
    found = {name: bytes.fromhex(case["hex"]) for name, case in small.items()}
    codecs = ("gzip", "snappy", "lz4", "zstd")
    return found | {f"large-{name}": bytes.fromhex(large[name]) for name in codecs if name in large}
