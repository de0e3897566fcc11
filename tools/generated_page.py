"""Writes, or compares, files that are generated from the code."""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
BLOCK: Final = re.compile(r"(<!-- generated: ([\w ]+) -->).*?(<!-- end -->)", re.DOTALL)
"""Part of a page that a tool writes; the rest is written by hand."""


def tracked_files(*paths: str) -> list[str]:
    """Return the files under version control, below some paths or all."""
    command = ["git", "ls-files", "--", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main(
    name: str,
    make: Callable[[], str],
    arguments: Sequence[str] | None = None,
    folder: Path | None = None,
) -> int:
    """Write docs/`name`; with --check only compare it. Return 1 if it is out of date."""
    parser = argparse.ArgumentParser(description=f"Writes {name} from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    check = parser.parse_args(arguments).check
    return update({(folder or DOCS) / name: make()}, check=check)


def update(files: Mapping[Path, str | None], *, check: bool) -> int:
    """Write files, and remove those without a text; with `check` return 1 for a difference."""
    changed = 0
    for path, text in files.items():
        current = path.read_text("utf-8") if path.exists() else ""
        if check:
            before, after = current.splitlines(True), (text or "").splitlines(True)
            sys.stdout.writelines(difflib.unified_diff(before, after, path.name, "generated"))
            changed |= current != (text or "")
        elif text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    return int(changed)


def formatted(files: Mapping[str, str]) -> dict[str, str]:
    """Return Python files, by relative path, formatted by ruff and without unused imports."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        update({folder / name: text for name, text in files.items()}, check=False)
        for command in ("check --fix --select F401,TC005", "check --fix --select I", "format"):
            options = ["--quiet", "--no-cache", "--config", "pyproject.toml", directory]
            ruff = [sys.executable, "-m", "ruff", *command.split(), *options]
            subprocess.run(ruff, cwd=ROOT, check=True)
        return {name: (folder / name).read_text("utf-8") for name in files}


def filled(name: str, blocks: Mapping[str, str]) -> str:
    """Return docs/`name` with these texts between the marks of its generated blocks."""
    page = (DOCS / name).read_text("utf-8")
    if (marked := [match[2] for match in BLOCK.finditer(page)]) != list(blocks):
        sys.exit(f"docs/{name} marks the blocks {marked}; it has to mark {list(blocks)}")
    return BLOCK.sub(lambda match: f"{match[1]}\n\n{blocks[match[2]]}\n\n{match[3]}", page)


def notice(tool: str, source: str) -> str:
    """Return the comment that marks a page as generated."""
    return f"<!-- Made by tools/{tool} from {source}; do not edit. -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(header), ["---"] * len(header), *([cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")
