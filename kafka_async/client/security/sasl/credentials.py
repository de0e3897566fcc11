"""Checks of user names and passwords that mechanisms share. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from kafka_async.secrets import Secret


def check_username_and_password(
    mechanism: str, username: str | None, password: Secret | None
) -> None:
    """Raise InvalidConfigurationError unless both are given and can be sent."""
    if not username:
        raise InvalidConfigurationError(f"{mechanism} needs sasl_username: it is missing or empty")
    if not password:
        raise InvalidConfigurationError(f"{mechanism} needs sasl_password: it is missing or empty")
    if not _is_sendable(username):
        raise InvalidConfigurationError(
            "sasl_username has a character that cannot be sent: NUL, or half of a surrogate pair"
        )
    if not _is_sendable(password.reveal()):
        raise InvalidConfigurationError(
            "sasl_password has a character that cannot be sent: NUL, or half of a surrogate pair"
        )


def _is_sendable(text: str) -> bool:
    # Not `encode`: its exception has the text.
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)
