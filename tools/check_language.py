"""Checks that prose keeps to plain English: in docstrings, comments, messages and pages.

A docstring states what the code does, so it does not begin with a question word; neither does the
name of a test. Some words hide who does what and are refused wherever people read: use the
component's name instead. Pages of the documentation have further rules: plain terms, headings that
name a subject, and sentences of limited length. Code is not checked, nor is code quoted between
backticks.

    python tools/check_language.py [FILE ...]
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools import generated_page
from tools.generated_page import ROOT

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
PAGE_DIRECTORIES = ("docs", ".github", "")
"""Directories whose pages, with those below docs, keep to the rules for pages; "" is the root."""
QUESTION_HEADING = re.compile(
    r"^#+ +(?:(?:What|Who|Whether|Where|How|When|Why)\b.*|.*\?)$", re.IGNORECASE | re.MULTILINE
)
NO_SUBJECT = re.compile(
    r"(?:^|(?<=[.:] ))(?:What|Who|Where|Whoever|Whatever|Whose)\b[^.?!|]*\.(?!\w)", re.MULTILINE
)
COUNTED = (
    r"records?|bytes|[KM]i?B|requests?|times|batch(?:es)?|calls?|tasks?|instructions?|values?|"
    r"entry|entries|name|line"
)
PER = r"second|minute|record|request|batch|partition|topic|iteration|operation|poll|fetch|line"
ACTORS = (
    r"brokers?|clients?|batch(?:es)?|servers?|members?|producers?|consumers?|requests?|records?"
)
PAGE_RULES = {
    rf"(?:{COUNTED})\s+an?\s+(?:{PER})": 'say "per"',
    r"turns?\s+of\s+the\s+(?:event\s+)?loop|(?:one|each|per|this|loop's)\s+turn": (
        'say "event loop iteration"'
    ),
    r"(?:an?|the|its|their|no|each|every|this|that|one)\s+answers?": 'say "response"',
    r"ask(?:s|ed|ing)?": 'say "request" or "call"',
    rf"(?:{ACTORS})\s+(?:hear|want|forget|think|believe|remember|say|tell)s?": (
        "say what the component does"
    ),
    r"anybody|so\s+(?:much|long)|is\s+none|as\s+it\s+is|goes?\s+on|all\s+the\s+same|beside|"
    r"nothing\s+else\s+than": "say it plainly",
}
PAGE_WORDS = tuple(
    (re.compile(rf"\b(?:{words})\b", re.IGNORECASE), cure) for words, cure in PAGE_RULES.items()
)
MAX_SENTENCE = 45
"""Words of a sentence in a paragraph or list item of a page."""
NO_SENTENCE = ("|", "#", "<", "!", ":::")
ITEM = re.compile(r"(?:[-*]|\d+\.)\s+")
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])")
STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
"""Tokens that contain text; an f-string is in parts from Python 3.12 on."""
NOT_OURS = ("tools/check_language.py", "tests/tools/test_check_language.py")
"""Files that have to contain the refused words."""


class Prose(NamedTuple):
    """A piece of text that people read, without its quotes, and its first line, from 1."""

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


READERS = {
    **dict.fromkeys((".py", ".pyi"), python_prose),
    **dict.fromkeys((".pyx", ".pxi"), cython_prose),
    ".md": markdown_prose,
}


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


def sentences(text: str) -> Iterator[Prose]:
    """Yield the sentences of a page's paragraphs and list items."""
    block: list[str] = []
    start = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        body = line.strip()
        is_item = ITEM.match(body)
        if not body or is_item or body.startswith(NO_SENTENCE):
            yield from (Prose(start, one) for one in SENTENCE_END.split(" ".join(block)) if one)
            block = []
        if body and not body.startswith(NO_SENTENCE):
            start = start if block else number
            block.append(ITEM.sub("", body) if is_item else body)


def check_page(source: str) -> Iterator[Finding]:
    """Yield the violations of the rules for pages."""
    (prose,) = markdown_prose(source)
    text = QUOTED_CODE.sub("`code`", prose.text)

    def line_of(match: re.Match[str]) -> int:
        return text.count("\n", 0, match.start()) + 1

    for match in QUESTION_HEADING.finditer(text):
        yield Finding(line_of(match), f'heading "{match[0]}": name the subject')
    for match in NO_SUBJECT.finditer(text):
        yield Finding(line_of(match), f'"{match[0][:40]}": begin with the subject')
    for pattern, cure in PAGE_WORDS:
        for match in pattern.finditer(text):
            yield Finding(line_of(match), f'"{match[0]}": {cure}')
    for line, sentence, _ in sentences(text):
        if (words := len(sentence.split())) > MAX_SENTENCE:
            yield Finding(line, f'sentence of {words} words, "{sentence[:40]}": split it')


def is_page(path: Path) -> bool:
    """Return True for a page of the documentation that a person writes."""
    if path.suffix != ".md" or not path.resolve().is_relative_to(ROOT):
        return False
    relative = path.resolve().relative_to(ROOT)
    folder = "" if len(relative.parts) == 1 else relative.parts[0]
    return folder in PAGE_DIRECTORIES


def tracked_files() -> list[Path]:
    """Return the files under version control that contain prose of ours."""
    names = [name for name in generated_page.tracked_files() if name not in NOT_OURS]
    return [ROOT / name for name in names if Path(name).suffix in READERS]


def main(names: Iterable[str]) -> int:
    """Check the named files, or all; return the exit status."""
    files = [Path(name) for name in names] or tracked_files()
    count = 0
    for path in files:
        source = path.read_text(encoding="utf-8")
        findings = [*check(source, path.suffix), *(check_page(source) if is_page(path) else ())]
        for line, message in sorted(findings):
            count += 1
            print(f"{os.path.relpath(path, ROOT)}:{line}: {message}")
    if count:
        print(f"{count} violations of the language rules (see CONTRIBUTING.md)")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
