"""CONTRIBUTING.md names files that exist, and `make help` lists every command."""

from __future__ import annotations

import re
import subprocess

from tests.docs.markdown_blocks import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PATH = re.compile(r"`((?:kafka_async|tests|tools|docs|benchmarks|fuzz)/[\w./*-]*)`")


def test_every_file_of_the_guide_exists() -> None:
    paths = PATH.findall(GUIDE)
    assert len(paths) > 25
    examples = {"kafka_async/producer/x.py", "tests/producer/test_x.py"}
    assert [path for path in paths if path not in examples and not list(ROOT.glob(path))] == []


def test_every_command_of_the_guide_is_a_target() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)", GUIDE)) <= targets


def test_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    command = ["make", "--no-print-directory", "help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"make ([a-z0-9-]+) +\w", done.stdout))
    assert set(phony[1].split()) - {"help"} == listed


def test_git_runs_pyright_before_a_push_and_not_before_a_commit() -> None:
    assert "pyright, which takes minutes, before each push" in GUIDE
    settings, *hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8").split("- id: ")
    assert "default_install_hook_types: [pre-commit, pre-push]" in settings
    assert "default_stages: [pre-commit]" in settings
    slow = [hook.split()[0] for hook in hooks if "stages: [pre-push]" in hook]
    assert slow == ["pyright"]
