"""Compilation of Java programs, and errors for missing requirements."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jvm import Java
from tools.conformance import java


def set_up(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Path:
    """Set up a fake Java, a class path without jars and an empty cache."""
    command = directory / "bin" / "java"
    command.parent.mkdir()
    command.touch()

    def jars(version: str) -> Path:
        return directory / "jars"

    monkeypatch.setattr(java, "find_java", lambda: Java(str(command), "17"))
    monkeypatch.setattr(java, "jar_directory", jars)
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    return command


def test_refuses_java_without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_up(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendUnavailableError, match="install a Java development kit"):
        java.compile_java("Messages.java")


def test_uses_compiler_of_same_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = set_up(monkeypatch, tmp_path).with_name("javac")
    compiler.write_text('#!/bin/sh\necho "$@" >&2\nexit 3\n')
    compiler.chmod(0o755)
    with pytest.raises(
        java.JavaError, match=r"javac refuses Frames.java, Messages.java:\n-encoding"
    ) as caught:
        java.compile_java("Messages.java")
    assert str(java.HERE / "Frames.java") in str(caught.value)


def test_compiles_sources_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = set_up(monkeypatch, tmp_path).with_name("javac")
    compiler.write_text(
        '#!/bin/sh\nwhile [ "$1" != -d ]; do shift; done\n'
        f'mkdir "$2" && echo once >> {tmp_path}/runs\n'
    )
    compiler.chmod(0o755)
    first = java.compile_java("Messages.java")
    assert first.is_dir()
    assert java.compile_java("Messages.java") == first
    other = java.compile_java("Messages.java", "Frames.java")
    assert other != first
    assert (tmp_path / "runs").read_text() == "once\nonce\n"
