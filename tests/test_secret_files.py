"""Files that hold a secret: their owner, size and kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_async.config.secret_files import MAX_SECRET_BYTES, read_file, read_secret
from kafka_async.errors import InvalidConfigurationError


def secret_file(directory: Path, content: str = "planted", mode: int = 0o600) -> Path:
    path = directory / "secret"
    path.write_text(content)
    path.chmod(mode)
    return path


def test_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"mode 0640\): run chmod 600"):
        read_secret(secret_file(tmp_path, mode=0o640))


def test_owner_is_not_checked_where_the_system_has_no_user_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = secret_file(tmp_path, mode=0o666)
    monkeypatch.delattr(os, "getuid")  # as on Windows
    assert read_secret(path).reveal() == "planted"


def test_file_is_read_where_open_cannot_be_non_blocking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = secret_file(tmp_path)
    monkeypatch.delattr(os, "O_NONBLOCK")  # as on Windows
    assert read_secret(path, regular=True).reveal() == "planted"


def test_length_of_a_secret_is_limited(tmp_path: Path) -> None:
    longest = "x" * MAX_SECRET_BYTES
    assert read_secret(secret_file(tmp_path, longest)).reveal() == longest
    with pytest.raises(InvalidConfigurationError, match="is longer than 65,536 bytes") as caught:
        read_secret(secret_file(tmp_path, longest + "x"))
    assert "xx" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_special_file_is_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path, 0o600)  # without a writer, so that open() would wait
    with pytest.raises(InvalidConfigurationError, match="a device or another special file: name a"):
        read_secret(path, regular=True)


def test_pipe_can_be_read_by_commands() -> None:
    reader, writer = os.pipe()  # as by <(...) of a shell
    try:
        os.write(writer, b"planted\n")
        os.close(writer)
        assert read_secret(Path(f"/dev/fd/{reader}")).reveal() == "planted"
    finally:
        os.close(reader)


@pytest.mark.parametrize("path", ["missing", ".", "a\0b"])
def test_file_that_cannot_be_read_is_named(path: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"^the key cannot be read: "):
        read_file(Path(path), private=True, name="the key")
