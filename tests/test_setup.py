"""Builds without a working C compiler."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, Final

import pytest
import setuptools
from setuptools import Distribution, Extension

pytestmark = pytest.mark.one_kernel
SETUP: Final = Path(__file__).parents[1] / "setup.py"


def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str | None) -> list[Extension]:
    """Build an extension with a compiler that does not exist; return those that remain."""
    if kernel is None:
        monkeypatch.delenv("KAFKA_ASYNC_KERNEL", raising=False)
    else:
        monkeypatch.setenv("KAFKA_ASYNC_KERNEL", kernel)
    monkeypatch.setenv("CC", "/no-compiler")
    given: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(SETUP))
    source = tmp_path / "empty.c"
    source.touch()
    distribution = Distribution({"ext_modules": [Extension("empty", [str(source)])]})
    command = given["cmdclass"]["build_ext"](distribution)
    command.build_lib = command.build_temp = str(tmp_path)
    command.ensure_finalized()
    command.run()
    return command.extensions


def test_builds_without_compiled_kernel_if_there_is_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert build(tmp_path, monkeypatch, None) == []
    [line] = [row for row in capfd.readouterr().err.splitlines() if row.startswith("kafka-async:")]
    assert line.startswith("kafka-async: no compiled kernel, using the one in plain Python (")
    assert "no-compiler" in line


def test_build_of_a_wheel_fails_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match="no-compiler"):
        build(tmp_path, monkeypatch, "c")
