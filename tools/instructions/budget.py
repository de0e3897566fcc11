"""The budget: what each path may take, for each version of Python; and what a count says of it."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "budget.toml"
TOLERANCE = 0.02
"""Of a new row: twice what a count differs by between two directories of one machine."""

HEADER = """\
# Instructions that one operation of each path may take on the compiled kernel, by version of
# Python, and the share by which a count may differ from it. Written by
# `make instructions INSTRUCTIONS_ARGS=--write`; a tolerance that is changed here is kept.
"""


@dataclass(frozen=True)
class Row:
    """What a path may take."""

    instructions: float
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Verdict:
    """A path, what was counted, what it may take, and what is wrong; nothing if that is empty."""

    path: str
    counted: float | None
    row: Row | None
    problem: str

    @property
    def share(self) -> float | None:
        """How much more than its budget it takes, as a share of it."""
        if self.counted is None or self.row is None:
            return None
        return self.counted / self.row.instructions - 1


def python() -> str:
    """The version that a table of the budget is for."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def load(file: Path = FILE) -> dict[str, dict[str, Row]]:
    """The rows by version of Python and path."""
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


def judge(
    counted: Mapping[str, float], rows: Mapping[str, Row], *, whole: bool = True
) -> list[Verdict]:
    """A verdict a path. If the `whole` was counted, a row without a path is a problem too."""
    verdicts = [_judge(path, number, rows.get(path)) for path, number in counted.items()]
    if whole:
        gone = "no such path: take the row out of the budget"
        verdicts += [
            Verdict(path, None, row, gone) for path, row in rows.items() if path not in counted
        ]
    return verdicts


def _judge(path: str, counted: float, row: Row | None) -> Verdict:
    verdict = Verdict(path, counted, row, "")
    if row is None:
        return Verdict(path, counted, None, "has no budget: write one")
    share = verdict.share or 0.0
    if share > row.tolerance:
        problem = f"{share:+.1%}: over its budget; make it cheaper, or say why it may cost more"
    elif share < -row.tolerance:
        problem = f"{share:+.1%}: cheaper than its budget; lower the budget, so that it stays so"
    else:
        return verdict
    return Verdict(path, counted, row, problem)


def renewed(
    counted: Mapping[str, float], rows: Mapping[str, Row], *, whole: bool
) -> dict[str, Row]:
    """The rows with what was counted; each keeps its tolerance. A `whole` count drops others."""
    kept = {} if whole else dict(rows)
    for path, number in counted.items():
        kept[path] = Row(round(number), rows[path].tolerance if path in rows else TOLERANCE)
    return kept


def table(verdicts: list[Verdict]) -> str:
    """The verdicts for people: path, counted, budget, difference."""
    lines = [f"{'path':42}{'counted':>12}{'budget':>12}"]
    for each in verdicts:
        counted = "-" if each.counted is None else f"{each.counted:,.0f}"
        budget = "-" if each.row is None else f"{each.row.instructions:,.0f}"
        share = "" if each.share is None else f"{each.share:+8.1%}"
        lines.append(f"{each.path:42}{counted:>12}{budget:>12}{share}".rstrip())
    return "\n".join(lines)
