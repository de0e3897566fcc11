"""The code blocks of Markdown files, and the programs that they contain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Languages of blocks that tests do not run: shells differ by machine, and the rest is no program.
NOT_RUN = {"text", "sh", "yaml", "ini", "properties", "toml"}
ADDRESS = "localhost:9092"

FENCE = re.compile(r"^```(?P<info>.*)\n(?P<body>(?:.*\n)*?)```$", re.MULTILINE)
TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """Holds a fenced block, its place and language, and its title: a file name or empty."""

    page: Path
    line: int
    language: str
    title: str
    body: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def name(self) -> str:
        """Name of its file."""
        return self.title or f"{self.page.stem}_{self.line}.py"

    @property
    def kind(self) -> str:
        """Kind of file: "script", "test" or "conftest"."""
        if self.name == "conftest.py":
            return "conftest"
        return "test" if self.name.startswith("test_") else "script"

    def program(self, bootstrap: str) -> str:
        return self.body.replace(ADDRESS, bootstrap)


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in FENCE.finditer(text):
        language, _, attributes = match["info"].partition(" ")
        title = TITLE.search(attributes)
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page, line, language, title[1] if title else "", match["body"])
