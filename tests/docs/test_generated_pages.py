"""Generated pages are up to date with the code."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "tool", ["generate_configuration", "generate_errors", "generate_file_map", "draw_states"]
)
def test_generated_page_is_up_to_date(tool: str) -> None:
    command = [sys.executable, f"tools/{tool}.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"run tools/{tool}.py:\n{result.stdout}{result.stderr}"


def test_check_of_an_outdated_page_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    generated_page = importlib.import_module("generated_page")
    monkeypatch.setattr(generated_page, "DOCS", tmp_path)
    assert generated_page.main("page.md", lambda: "new\n", []) == 0
    assert generated_page.main("page.md", lambda: "new\n", ["--check"]) == 0
    assert generated_page.main("page.md", lambda: "newer\n", ["--check"]) == 1
    assert (tmp_path / "page.md").read_text("utf-8") == "new\n"
