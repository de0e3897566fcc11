"""The language check finds refused words where people read, and leaves code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_language import check, check_page, is_page, main, tracked_files


def messages(source: str, suffix: str = ".py") -> list[str]:
    return [f"{line}: {message.split(':')[0]}" for line, message in check(source, suffix)]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""What it is."""\n', 1),
        ('def name() -> None:\n    """Whether it is."""\n', 2),
        ('class Name:\n    """How it is."""\n', 2),
        ('LIMIT = 3\n"""why it is."""\n', 2),
    ],
    ids=["module", "function", "class", "attribute"],
)
def test_refuses_a_docstring_that_begins_with_a_question_word(source: str, line: int) -> None:
    [message] = messages(source)
    assert message.startswith(f"{line}: docstring begins with")


@pytest.mark.parametrize(
    "source",
    [
        'def name() -> None:\n    """Return what a broker sent."""\n',
        'def name() -> None:\n    """Whatever."""\n',
        'text = "What is it?"\n',
        "# Why: the timer fires early.\n",
    ],
)
def test_accepts_question_words_elsewhere(source: str) -> None:
    assert messages(source) == []


@pytest.mark.parametrize(
    ("suffix", "source", "line"),
    [
        (".py", "# It is nobody here.\n", 1),
        (".py", 'raise ValueError("it is nobody")\n', 1),
        (".py", '"""Do it.\n\nIt is nobody.\n"""\n', 3),
        (".py", 'text = f"{name} is nobody"\n', 1),
        (".pyx", "cdef int size  # It is nobody.\n", 1),
        (".pyx", 'def name():\n    """Do it nobody."""\n', 2),
        (".md", "# Title\n\nIt is nobody.\n", 3),
    ],
)
def test_refuses_a_word_in_prose(suffix: str, source: str, line: int) -> None:
    assert messages(source, suffix) == [f'{line}: "nobody"']


def test_refuses_words_across_a_line_break() -> None:
    assert messages("The request is under\nway.\n", ".md") == ['1: "under\nway"']


@pytest.mark.parametrize(
    ("suffix", "source"),
    [
        (".py", "nobody = 1\n"),
        (".py", "# The name `nobody` is taken.\n"),
        (".pyx", "cdef int nobody\n"),
        (".md", "Before\n\n```python\nnobody = 1\n```\n\nuse `nobody`.\n"),
        (".md", "1. Before\n\n    ```python\n    nobody = 1\n    ```\n"),
    ],
)
def test_accepts_refused_words_in_code(suffix: str, source: str) -> None:
    assert messages(source, suffix) == []


def test_finds_words_after_a_code_block_at_their_line() -> None:
    assert messages("```\nnobody\n```\n\nnobody\n", ".md") == ['5: "nobody"']


def test_refuses_a_test_that_is_named_as_a_question() -> None:
    source = "async def test_what_ends_at_once() -> None: ...\ndef test_retries() -> None: ...\n"
    assert messages(source) == ["1: test_what_ends_at_once"]


def test_reports_file_line_and_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("Nobody does.\n", encoding="utf-8")
    assert main([str(page)]) == 1
    assert "page.md:1" in capsys.readouterr().out
    page.write_text("The broker does.\n", encoding="utf-8")
    assert main([str(page)]) == 0


def test_reads_code_cython_and_pages() -> None:
    assert {path.suffix for path in tracked_files()} >= {".py", ".pyx", ".md"}


def page_messages(source: str) -> list[str]:
    return [f"{line}: {message.partition(':')[0]}" for line, message in check_page(source)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("# Title\n\n## What is read\n", '3: heading "## What is read"'),
        ("## Is it fast?\n", '1: heading "## Is it fast?"'),
        ("It reads 10 records a second.\n", '1: "records a second"'),
        ("One turn of the loop.\n", '1: "One turn"'),
        ("The broker sends an answer.\n", '1: "an answer"'),
        ("You ask for it.\n", '1: "ask"'),
        ("The broker says no.\n", '1: "broker says"'),
        ("It goes on.\n", '1: "goes on"'),
        ("What is missing raises.\n", '1: "What is missing raises."'),
        ("It works. Where it does not, it fails.\n", '1: "Where it does not, it fails."'),
        (f"- {'word ' * 46}.\n", '1: sentence of 47 words, "' + ("word " * 8) + '"'),
    ],
)
def test_refuses_obscure_prose_of_a_page(source: str, message: str) -> None:
    assert message in page_messages(source)


@pytest.mark.parametrize(
    "source",
    [
        "# Blocking API\n\nHow do I use it? Call `ask`.\n",
        "What does it do? It works.\n",
        f"| {'word ' * 60}|\n",
        f"{'word ' * 40}.\n{'Word ' * 40}.\n",
        "```text\n# What is it?\nanswer\n```\n",
        "The clients take turns, and each second a record arrives.\n",
    ],
)
def test_accepts_plain_prose_of_a_page(source: str) -> None:
    assert page_messages(source) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("README.md", True),
        ("docs/producer.md", True),
        ("docs/api/producer.md", True),
        ("benchmarks/results/bench.md", False),
        ("tools/run_lint.py", False),
    ],
)
def test_page_rules_apply_to_the_documentation(name: str, expected: bool) -> None:
    assert is_page(Path(__file__).parents[2] / name) is expected
