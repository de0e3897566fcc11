"""The design page and the glossary name files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.rows import row
from tools.generated_page import ROOT, tracked_files

PACKAGE = ROOT / "kafka_async"
PAGE = (ROOT / "docs" / "design.md").read_text("utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")
QUOTED = re.compile(r"`([\w/.]+)`")
STEP = re.compile(r"^\| \d+ \| `([\w/.]+)` \| `([\w.]+)` \|", re.MULTILINE)
STEPS: list[tuple[str, str]] = STEP.findall(PAGE)


def definitions(path: Path) -> set[str]:
    """Return the functions, classes and methods that a module defines, methods as Class.name."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


def files(text: str) -> list[str]:
    return [name for name in QUOTED.findall(text) if name.endswith((".py", ".pyx", "/", ".toml"))]


def test_has_the_steps_of_all_paths() -> None:
    assert len(STEPS) == 46


def test_each_step_exists() -> None:
    for file, function in STEPS:
        with row(file, function):
            assert function in definitions(PACKAGE / file)


@pytest.mark.parametrize("text", [PAGE, GLOSSARY], ids=["design", "glossary"])
def test_every_file_that_is_named_exists(text: str) -> None:
    names = files(text)
    assert len(names) > 20
    missing = [name for name in names if not any((at / name).exists() for at in (ROOT, PACKAGE))]
    assert missing == []


def test_the_diagram_has_every_package() -> None:
    diagram = PAGE[PAGE.index("```text") : PAGE.index("## Path of a record out")]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {name for name in packages if not re.search(rf"\b{name}\b", diagram)} == set()


def test_names_in_the_glossary_exist_in_the_code() -> None:
    names = {name for name in QUOTED.findall(GLOSSARY) if re.fullmatch(r"\w+", name)}
    assert len(names) > 20
    listed = tracked_files("kafka_async")
    code = "\n".join((ROOT / name).read_text("utf-8") for name in listed if name.endswith(".py"))
    words = set(re.findall(r"\w+", code))
    assert names - words - {"ProducerRecord", "ConsumerRecord"} == set()
