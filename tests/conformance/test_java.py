"""Compilation of Java programs, and errors for missing requirements."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jvm import Java
from tools.conformance import java

SOURCE = java.HERE / "Conformance.java"


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set up a fake Java and an empty cache; return the path of the missing compiler."""
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    command.touch()
    monkeypatch.setattr(java, "find_java", lambda: Java(str(command), "17"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return command.with_name("javac")


def write_script(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_refuses_java_without_compiler(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendUnavailableError, match="install a Java development kit"):
        java.compile_files([SOURCE], "jars")


def test_uses_compiler_of_same_installation(compiler: Path) -> None:
    write_script(compiler, 'echo "$@" >&2\nexit 3')
    refusal = r"javac refuses Conformance.java:\n-encoding"
    with pytest.raises(java.JavaError, match=refusal) as caught:
        java.compile_files([SOURCE], "jars")
    assert str(SOURCE) in str(caught.value)


def test_compiles_sources_once(compiler: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_script(
        compiler, f'while [ "$1" != -d ]; do shift; done\nmkdir "$2" && echo once >> {runs}'
    )
    first = java.compile_files([SOURCE], "jars")
    assert first.is_dir()
    assert java.compile_files([SOURCE], "jars") == first
    assert java.compile_files([SOURCE, SOURCE], "jars") != first
    assert runs.read_text() == "once\nonce\n"
