"""Reads files with secrets, and refuses files that other users can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret, SecretBytes

MAX_FILE_BYTES: Final = 2**20
"""Bytes of the largest file that is read."""
MAX_SECRET_BYTES: Final = 64 * 1024
"""Bytes of the largest file with one secret."""


def read_secret(file: Path, *, regular: bool = False) -> Secret:
    """Return the text of a file without the newline at its end.

    Raises:
        InvalidConfigurationError: The file cannot be read, is empty, is longer than
            MAX_SECRET_BYTES, is not UTF-8, or belongs to this user and can be read by others (the
            rule of ssh). With `regular`, also for a pipe, a device or another special file.
    """
    data = read_file(file, private=True, regular=regular, max_bytes=MAX_SECRET_BYTES)
    secret = Secret(decode(data, file).reveal().removesuffix("\n").removesuffix("\r"))
    if not secret:
        raise InvalidConfigurationError(f"{file} is empty: write the secret into it")
    return secret


def read_file(
    file: Path,
    *,
    private: bool,
    regular: bool = False,
    max_bytes: int = MAX_FILE_BYTES,
    name: str = "",
) -> SecretBytes:
    """Return the content of a file.

    Args:
        file: Path of the file.
        private: Raise if the file belongs to this user and others can read it. Not checked on
            Windows, which has no such owners and modes.
        regular: Raise for a pipe, a device or another special file, without waiting for it.
        max_bytes: Bytes of the largest file that is read.
        name: Name of the file in errors. Default: its path.

    Raises:
        InvalidConfigurationError: The file cannot be read, is too long, or is refused.
    """
    shown = name or str(file)
    try:
        with open(file, "rb", opener=_open_at_once if regular else None) as stream:
            status = os.fstat(stream.fileno())
            special = regular and not stat.S_ISREG(status.st_mode)
            data = SecretBytes(b"" if special else stream.read(max_bytes + 1))
    except (OSError, ValueError) as error:  # ValueError: the path has a null character.
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidConfigurationError(f"{shown} cannot be read: {reason}") from None
    if special:
        raise InvalidConfigurationError(
            f"{shown} is a pipe, a device or another special file: name a regular file"
        )
    mode = stat.S_IMODE(status.st_mode)
    if private and mode & 0o077 and _belongs_to_this_user(status):
        raise InvalidConfigurationError(
            f"{shown} can be read by other users (mode {mode:04o}): run chmod 600 {file}, and "
            "change the secret if others may have read it"
        )
    if len(data.reveal()) > max_bytes:
        raise InvalidConfigurationError(
            f"{shown} is longer than {max_bytes:,} bytes: check that it is the right file"
        )
    return data


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _belongs_to_this_user(status: os.stat_result) -> bool:
    getuid = getattr(os, "getuid", None)
    return getuid is not None and status.st_uid == getuid()


def decode(data: SecretBytes, file: Path) -> Secret:
    """Decode the content of a file as UTF-8; the error includes only the file's name."""
    try:
        text, position = Secret(data.reveal().decode()), 0
    except UnicodeDecodeError as error:
        text, position = None, error.start
    if text is None:  # not in the except block: its error has the content
        raise InvalidConfigurationError(
            f"{file}: the byte at {position:,} is not UTF-8: save the file as UTF-8"
        )
    return text
