"""The verification page: the tests that prove the guarantees of groups exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verification.md").read_text(encoding="utf-8")


@functools.cache
def functions(path: str) -> frozenset[str]:
    """Return the names of the functions of a file, also with each id of a parameter in brackets."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    nodes = [it for it in tree.body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)]
    names = {node.name for node in nodes}
    for node in nodes:
        keywords = (
            keyword
            for decorator in node.decorator_list
            for call in ast.walk(decorator)
            if isinstance(call, ast.Call)
            for keyword in call.keywords
        )
        names |= {
            f"{node.name}[{keyword.value.value}]"
            for keyword in keywords
            if keyword.arg == "id" and isinstance(keyword.value, ast.Constant)
        }
    return frozenset(names)


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::([^`]+)`", PAGE)
    assert len(named) > 25
    assert [(path, name) for path, name in named if name not in functions(path)] == []


def test_every_guarantee_names_a_test() -> None:
    table = PAGE.partition("\n## Guarantees and their tests\n")[2]
    rows = [row for row in table.splitlines() if row.startswith("| ") and row[2:11] != "Guarantee"]
    assert len(rows) > 15
    assert [row for row in rows if "::test_" not in row] == []
