"""Bytes that Kafka's own Java classes wrote: what the fuzzer's inputs are made from."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent / "tests"


class Frame(NamedTuple):
    """A frame: the message's name, its version, and the bytes with size and header.

    A message without a key has neither size nor header: `bare`.
    """

    message: str
    version: int
    raw: bytes
    bare: bool


@cache
def frames() -> tuple[Frame, ...]:
    """Requests, responses and messages without a key."""
    lines = (TESTS / "protocol/data/frames.jsonl").read_text("utf-8").splitlines()
    return tuple(
        Frame(row["message"], row["version"], bytes.fromhex(row["bytes"]), "client_id" not in row)
        for row in map(json.loads, lines)
    )


@cache
def batches() -> dict[str, bytes]:
    """Record batches and message sets, by name: every magic, every codec, markers."""
    small = json.loads((TESTS / "records/data/java_batches.json").read_text("utf-8"))["cases"]
    large = json.loads((TESTS / "records/data/java_large_batches.json").read_text("utf-8"))
    found = {name: bytes.fromhex(case["hex"]) for name, case in small.items()}
    codecs = ("gzip", "snappy", "lz4", "zstd")
    return found | {f"large-{name}": bytes.fromhex(large[name]) for name in codecs if name in large}
