"""The page about groups: the tests that it names as proofs exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "groups.md").read_text(encoding="utf-8")


@functools.cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 25
    assert [(path, name) for path, name in named if name not in functions(path)] == []


def test_every_guarantee_names_a_test() -> None:
    table = PAGE.partition("\n## Guarantees and their tests\n")[2]
    rows = [row for row in table.splitlines() if row.startswith("| ") and row[2:11] != "Guarantee"]
    assert len(rows) > 15
    assert [row for row in rows if "::test_" not in row] == []
