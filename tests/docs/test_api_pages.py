"""The API reference has every public member of its classes, and only those that exist."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import kafka_async
from tests.docs.markdown_blocks import ROOT
from tests.rows import row

PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
ENTRY = re.compile(r"^::: (?P<path>[\w.]+)\n(?P<options>(?: +.*\n| *\n)*)", re.MULTILINE)
MEMBERS = re.compile(r"members: \[(?P<names>[^\]]*)\]")


@dataclass(frozen=True)
class Entry:
    """Holds a directive of a page and the members that it lists."""

    path: str
    members: tuple[str, ...]

    def load(self) -> Any:
        """Import the object that is documented."""
        parts = self.path.split(".")
        for length in range(len(parts) - 1, 0, -1):
            try:
                found: Any = importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            for name in parts[length:]:
                found = getattr(found, name)
            return found
        raise AssertionError(f"{self.path} does not exist")


def entries() -> Iterator[Entry]:
    for page in PAGES:
        for match in ENTRY.finditer(page.read_text("utf-8")):
            members = MEMBERS.search(match["options"])
            yield Entry(
                match["path"], tuple(re.findall(r"\w+", members["names"] if members else ""))
            )


ENTRIES = list(entries())


def methods(kind: type) -> set[str]:
    """Return the public methods and properties of a class."""
    return {
        name
        for name in dir(kind)
        if not name.startswith("_")
        and isinstance(
            inspect.getattr_static(kind, name),
            property | classmethod | staticmethod | type(methods) | type(str.join),
        )
    }


def test_documented_object_exists_with_its_members() -> None:
    for entry in ENTRIES:
        with row(entry):
            check_documented_object_exists_with_its_members(entry)


def check_documented_object_exists_with_its_members(entry: Entry) -> None:
    found = entry.load()
    annotated = set[str]().union(*(vars(base).get("__annotations__", {}) for base in mro(found)))
    assert [
        name for name in entry.members if not hasattr(found, name) and name not in annotated
    ] == []


def mro(found: Any) -> tuple[type, ...]:
    return inspect.getmro(found) if isinstance(found, type) else ()


def test_page_has_every_public_method() -> None:
    for entry in [entry for entry in ENTRIES if entry.members]:
        with row(entry):
            kind = entry.load()
            assert methods(kind) - set(entry.members) == set()


def test_every_public_name_has_an_entry() -> None:
    documented = {entry.path.rpartition(".")[2] for entry in ENTRIES}
    modules = {"errors", "serde", "types"}
    assert set(kafka_async.__all__) - modules <= documented


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [page.name for page in PAGES if f"api/{page.name}" not in navigation] == []
