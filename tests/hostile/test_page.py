"""The page about hostile input: its cases are tested, and its tests exist."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.hostile import test_batches as batches
from tests.hostile import test_compression as compression
from tests.hostile import test_control_records as control_records
from tests.hostile import test_frames as frames
from tests.hostile import test_primitives as primitives
from tests.hostile import test_sasl as sasl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hostile-input.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")

TESTED = {
    "Frames": [frames.CASES],
    "Primitives": [primitives.CASES, primitives.HEADERS, primitives.ALLOWED],
    "Authentication": [sasl.CASES, sasl.LIFETIMES],
    "Record batches": [batches.CASES],
    "Compression": [compression.BOMBS, compression.CASES, compression.UNUSUAL],
    "Markers and transactions": [control_records.CASES, control_records.MALFORMED_MARKERS],
}


def rows(section: str) -> list[list[str]]:
    """Return the cells of each row of a section's table."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@pytest.mark.parametrize("section", TESTED)
def test_page_lists_all_cases(section: str) -> None:
    listed = Counter(case for row in rows(section) for case in CODE.findall(row[0]))
    tested = Counter(case for cases in TESTED[section] for case in cases)
    assert listed == tested


def test_every_listed_test_exists() -> None:
    named = [name for name in CODE.findall(PAGE) if "::" in name]
    assert len(named) > 60
    places = [name.partition("::") for name in named]
    assert [(path, name) for path, _, name in places if name not in functions(path)] == []


def test_every_row_has_a_test() -> None:
    sections = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    tables = [(section, row) for section in sections for row in rows(section)]
    assert len(tables) > 50
    assert [entry for entry in tables if "::test_" not in entry[1][-1]] == []


@functools.cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
