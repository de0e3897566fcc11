"""Requests that test doubles received and that every broker would have refused."""

from __future__ import annotations

from typing import Any, Final

from kafka_async.embedded.request_rules import violations

REFUSED: Final[list[str]] = []
"""Of the running test; it fails at its end unless this is empty."""


def receive(request: Any, version: int | None) -> None:
    """Note what a broker would refuse of a request; without a version, of its newest."""
    newest: int = request.VERSIONS.max
    used = newest if version is None else min(version, newest)
    REFUSED.extend(f"{type(request).__name__}: {reason}" for reason in violations(request, used))
