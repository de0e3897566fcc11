"""The picture of a run: a bar a client, with the spread of the rounds, and the limit as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.report import Row


def draw(rows: Sequence[Row], machine: str, path: Path) -> None:
    """Write the picture as PNG."""
