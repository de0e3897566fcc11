"""Checks that prose keeps to plain English: in docstrings, comments, messages and pages.

A docstring states what the code does, so it does not begin with a question word; neither does the
name of a test. Some words hide who does what and are refused wherever people read: use the
component's name instead. Code is not checked, nor is code quoted between backticks.

    python tools/check_language.py [FILE ...]
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
QUESTION = re.compile(r"(what|who|whether|where|how|when|why)\b", re.IGNORECASE)
TEST_OF_A_QUESTION = re.compile(r"def (test_(?:what|who|whether|where|how|when|why)_\w*)")
REFUSED = (
    "nobody", "somebody", "whoever", "everybody", "in the same breath", "look round", "looks round",
    "of its own", "so many", "under way", "in vain", "laden",
)  # fmt: skip
REFUSED_WORDS = re.compile(rf"\b({'|'.join(REFUSED)})\b".replace(" ", r"\s+"), re.IGNORECASE)
QUOTED_CODE = re.compile(r"`[^`\n]+`")
CODE_BLOCK = re.compile(r"^( *)(```|~~~).*?^\1\2", re.DOTALL | re.MULTILINE)
CYTHON_PROSE = re.compile(r'"""(?P<docstring>.*?)"""|(?P<comment>#[^\n]*)', re.DOTALL)
NOT_OURS = ("tools/check_language.py", "tests/tools/test_check_language.py")
"""Files that have to contain the refused words."""


class Prose(NamedTuple):
    """A piece of text that people read.

    Attributes:
        line: The line of the file on which it begins, from 1.
        text: The text, without its quotes.
        is_docstring: True if it documents a module, class, function or attribute.
    """

    line: int
    text: str
    is_docstring: bool = False


class Finding(NamedTuple):
    """A violation: the line, from 1, and a message that names the cure."""

    line: int
    message: str


def python_prose(source: str) -> Iterator[Prose]:
    """Yield the docstrings, other strings and comments of a Python file."""
    docstrings: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add((node.lineno, node.col_offset))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Prose(token.start[0], token.string)
        elif token.type in STRINGS:
            yield Prose(token.start[0], token.string.strip("\"'"), token.start in docstrings)


STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def cython_prose(source: str) -> Iterator[Prose]:
    """Yield the triple-quoted strings and the comments of a Cython file."""
    for match in CYTHON_PROSE.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        docstring = match["docstring"]
        yield Prose(
            line, match["comment"] if docstring is None else docstring, docstring is not None
        )


def markdown_prose(source: str) -> Iterator[Prose]:
    """Yield the text of a page without its code blocks."""
    yield Prose(1, CODE_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), source))


READERS = {".py": python_prose, ".pyi": python_prose, ".pyx": cython_prose, ".md": markdown_prose}


def check(source: str, suffix: str) -> Iterator[Finding]:
    """Yield the violations in a file with this suffix."""
    for line, text, is_docstring in READERS[suffix](source):
        if is_docstring and (word := QUESTION.match(text.lstrip())):
            yield Finding(line, f'docstring begins with "{word[0]}": state what the code does')
        plain = QUOTED_CODE.sub("", text)
        for match in REFUSED_WORDS.finditer(plain):
            at = line + plain.count("\n", 0, match.start())
            yield Finding(at, f'"{match[0]}": name the component, or say it plainly')
    if suffix == ".py":
        for match in TEST_OF_A_QUESTION.finditer(source):
            line = source.count("\n", 0, match.start()) + 1
            yield Finding(line, f"{match[1]}: state the behaviour")


def tracked_files() -> list[Path]:
    """Return the files under version control that contain prose of ours."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [ROOT / name for name in listed if name not in NOT_OURS and Path(name).suffix in READERS]


def main(names: Iterable[str]) -> int:
    """Check the named files, or all; return the exit status."""
    files = [Path(name) for name in names] or tracked_files()
    count = 0
    for path in files:
        for line, message in check(path.read_text(encoding="utf-8"), path.suffix):
            count += 1
            print(f"{os.path.relpath(path, ROOT)}:{line}: {message}")
    if count:
        print(f"{count} violations of the language rules (see CONTRIBUTING.md)")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
