"""The design page names what there is: every file it mentions exists, and no room is left out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kafka_async"
PAGE = (ROOT / "docs" / "design.md").read_text("utf-8")
QUOTED = re.compile(r"`([\w/.]+)`")


def mentioned() -> list[str]:
    """What is written as code and looks like a file or a folder."""
    return [name for name in QUOTED.findall(PAGE) if name.endswith((".py", ".pyx", "/", ".toml"))]


def exists(name: str) -> bool:
    """Below the project, the package, or a room of the package: the file map names rooms once."""
    rooms = [path for path in PACKAGE.iterdir() if path.is_dir()]
    return any((place / name).exists() for place in (ROOT, PACKAGE, *rooms))


def test_every_file_that_is_named_exists() -> None:
    names = mentioned()
    assert len(names) > 40
    assert [name for name in names if not exists(name)] == []


def test_every_room_and_module_of_the_package_is_named() -> None:
    names = set(mentioned())
    rooms = {f"{path.parent.name}/" for path in PACKAGE.glob("*/*.py")}
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert rooms | modules <= names
