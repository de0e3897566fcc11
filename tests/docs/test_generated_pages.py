"""Generated pages are up to date with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import run_python
from tools import generated_page


@pytest.mark.parametrize(
    "tool",
    [
        "generate_blocking",
        "generate_configuration",
        "generate_errors",
        "generate_lifecycle",
        "draw_states",
    ],
)
def test_generated_page_is_up_to_date(tool: str) -> None:
    result = run_python(f"tools/{tool}.py", "--check")
    assert result.returncode == 0, f"run tools/{tool}.py:\n{result.stdout}{result.stderr}"


def test_check_of_an_outdated_page_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_page, "DOCS", tmp_path)
    assert generated_page.main("page.md", lambda: "new\n", []) == 0
    assert generated_page.main("page.md", lambda: "new\n", ["--check"]) == 0
    assert generated_page.main("page.md", lambda: "newer\n", ["--check"]) == 1
    assert (tmp_path / "page.md").read_text("utf-8") == "new\n"


def test_fills_only_the_blocks_that_a_page_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated_page, "DOCS", tmp_path)
    page = "text\n<!-- generated: a b -->\n\n{}\n\n<!-- end -->\nmore\n"
    (tmp_path / "page.md").write_text(page.format("old"), "utf-8")
    assert generated_page.filled("page.md", {"a b": "new"}) == page.format("new")
    with pytest.raises(SystemExit, match="marks the blocks"):
        generated_page.filled("page.md", {"a b": "new", "c": "missing"})
