"""The documentation site builds without warnings and with all included sections."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import ROOT, output_of


def test_sections_that_the_home_page_includes_are_in_the_readme() -> None:
    """Checks them here, since the site leaves out a missing section silently."""
    readme = (ROOT / "README.md").read_text("utf-8")
    included = re.findall(r'--8<-- "README\.md:(\w+)"', (ROOT / "docs/index.md").read_text("utf-8"))
    assert included
    for section in included:
        assert f"--8<-- [start:{section}]" in readme
        assert f"--8<-- [end:{section}]" in readme


@pytest.mark.slow
def test_builds_without_warnings(tmp_path: Path) -> None:
    build = ("-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path)
    output_of(*build, NO_MKDOCS_2_WARNING="1")
    assert "Not done yet" in (tmp_path / "index.html").read_text("utf-8")
    pages = "".join(page.read_text("utf-8") for page in tmp_path.glob("*.html"))
    assert "fonts.googleapis.com" not in pages
