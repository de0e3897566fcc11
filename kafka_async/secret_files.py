"""Reads files that hold a secret, and refuses those that other users can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret, SecretBytes

MAX_FILE_BYTES: Final = 2**20


def read_secret(file: Path) -> Secret:
    """Return the text of a file without the newline at its end.

    Raises:
        InvalidConfigurationError: The file cannot be read, is empty, is not UTF-8, or belongs to
            this user and can be read by others (the rule of ssh).
    """
    text = decode(read_file(file, private=True), file)
    secret = Secret(text.reveal().removesuffix("\n").removesuffix("\r"))
    if not secret:
        raise InvalidConfigurationError(f"{file} is empty: write the secret into it")
    return secret


def read_file(file: Path, *, private: bool) -> SecretBytes:
    """Return the content of a file; with `private`, raise if others can read this user's file."""
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            data = SecretBytes(stream.read(MAX_FILE_BYTES + 1))
    except OSError as error:
        raise InvalidConfigurationError(
            f"{file} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    mode = stat.S_IMODE(status.st_mode)
    if private and status.st_uid == os.getuid() and mode & 0o077:
        raise InvalidConfigurationError(
            f"{file} can be read by other users (mode {mode:04o}): run chmod 600 {file}, and "
            "change the secret if others may have read it"
        )
    if len(data.reveal()) > MAX_FILE_BYTES:
        raise InvalidConfigurationError(f"{file} is longer than {MAX_FILE_BYTES:,} bytes")
    return data


def decode(data: SecretBytes, file: Path) -> Secret:
    """Decode the content of a file as UTF-8; the error has its name and no content."""
    try:
        text, position = Secret(data.reveal().decode()), 0
    except UnicodeDecodeError as error:
        text, position = None, error.start
    if text is None:  # Outside of the except block, since that error has the file's content.
        raise InvalidConfigurationError(
            f"{file}: the byte at {position:,} is not UTF-8: save the file as UTF-8"
        )
    return text
