"""The instruction budget of each path and Python version, and comparisons with it."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "budget.toml"
TOLERANCE = 0.02
"""Tolerance of a new row: twice the difference of counts between two directories of a machine."""

HEADER = """\
# Instructions that one operation of each path may take on the compiled kernel, by version of
# Python, and the share by which a count may differ from it. Written by
# `make instructions INSTRUCTIONS_ARGS=--write`; a tolerance that is changed here is kept.
"""


@dataclass(frozen=True)
class Row:
    """Budget of a path: instructions per operation, and the allowed difference as a share."""

    instructions: float
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Comparison:
    """Comparison of a path's count with its budget; one of them may be missing."""

    path: str
    counted: float | None
    row: Row | None

    @property
    def share(self) -> float | None:
        """Difference from the budget as a fraction, or None without both a count and a budget."""
        if self.counted is None or self.row is None:
            return None
        return self.counted / self.row.instructions - 1

    @property
    def problem(self) -> str:
        """Reason to fail, with the remedy, or an empty text."""
        if self.row is None:
            return "has no budget: write one"
        if self.share is None:
            return "no such path: remove the row from the budget"
        if self.share > self.row.tolerance:
            return f"{self.share:+.1%}: over the budget; make it cheaper, or explain the cost"
        if self.share < -self.row.tolerance:
            return f"{self.share:+.1%}: below the budget; lower the budget to keep the gain"
        return ""


def python_version() -> str:
    """Return the running Python version, the name of a table of the budget."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def load(file: Path = FILE) -> dict[str, dict[str, Row]]:
    """Read the rows by Python version and path."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {
        version: {path: Row(**row) for path, row in table.items()}
        for version, table in tables.items()
    }


def save(tables: Mapping[str, Mapping[str, Row]], file: Path = FILE) -> None:
    """Write the rows."""
    lines = [HEADER]
    for version, table in tables.items():
        lines.append(f'["{version}"]')
        for path, row in table.items():
            name = json.dumps(path)
            lines.append(
                f"{name} = {{ instructions = {row.instructions:.0f}, tolerance = {row.tolerance} }}"
            )
        lines.append("")
    file.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def compare(
    counted: Mapping[str, float], rows: Mapping[str, Row], *, whole: bool = True
) -> list[Comparison]:
    """Compare counts with their rows; with `whole`, a row without a count is a problem too."""
    names = dict.fromkeys([*counted, *(rows if whole else ())])
    return [Comparison(name, counted.get(name), rows.get(name)) for name in names]


def updated(
    counted: Mapping[str, float], rows: Mapping[str, Row], *, whole: bool
) -> dict[str, Row]:
    """Return rows with the new counts and the old tolerances; without `whole`, keep other rows."""
    kept = {} if whole else dict(rows)
    for path, number in counted.items():
        kept[path] = Row(round(number), rows[path].tolerance if path in rows else TOLERANCE)
    return kept


def table(comparisons: list[Comparison]) -> str:
    """Return a table of comparisons: path, count, budget, difference."""
    lines = [f"{'path':42}{'counted':>12}{'budget':>12}"]
    for each in comparisons:
        counted = "-" if each.counted is None else f"{each.counted:,.0f}"
        budget = "-" if each.row is None else f"{each.row.instructions:,.0f}"
        share = "" if each.share is None else f"{each.share:+8.1%}"
        lines.append(f"{each.path:42}{counted:>12}{budget:>12}{share}".rstrip())
    return "\n".join(lines)
