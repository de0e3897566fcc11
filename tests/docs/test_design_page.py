"""The design page names existing files, and every package and module."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kafka_async"
PAGE = (ROOT / "docs" / "design.md").read_text("utf-8")
QUOTED = re.compile(r"`([\w/.]+)`")


def mentioned() -> list[str]:
    """Return the code spans that look like a file or a directory."""
    return [name for name in QUOTED.findall(PAGE) if name.endswith((".py", ".pyx", "/", ".toml"))]


def exists(name: str) -> bool:
    """Return whether a file exists below the project, the package or one of its subpackages."""
    packages = [path for path in PACKAGE.iterdir() if path.is_dir()]
    return any((place / name).exists() for place in (ROOT, PACKAGE, *packages))


def test_every_named_file_exists() -> None:
    names = mentioned()
    assert len(names) > 40
    assert [name for name in names if not exists(name)] == []


def test_every_package_and_module_is_named() -> None:
    names = set(mentioned())
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/*.py")}
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert packages | modules <= names
