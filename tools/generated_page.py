"""Writes, or compares, documentation pages that are generated from the code."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"


def main(name: str, make: Callable[[], str], arguments: Sequence[str] | None = None) -> int:
    """Write docs/`name`; with --check only compare it. Return 1 if it is out of date."""
    parser = argparse.ArgumentParser(description=f"Writes docs/{name} from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    check = parser.parse_args(arguments).check
    page, text = DOCS / name, make()
    current = page.read_text("utf-8") if page.exists() else ""
    if not check:
        page.write_text(text, "utf-8")
        return 0
    sys.stdout.writelines(
        difflib.unified_diff(
            current.splitlines(keepends=True),
            text.splitlines(keepends=True),
            f"docs/{name}",
            "code",
        )
    )
    return int(current != text)


def notice(tool: str, source: str) -> str:
    """Return the comment that says that the page is generated."""
    return f"<!-- Made by tools/{tool} from {source}; do not edit. -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(header), ["---"] * len(header), *([cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")
