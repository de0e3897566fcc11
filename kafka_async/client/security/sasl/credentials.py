"""Checks of user names and passwords that mechanisms share. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.config.spelling import option_error, spell
from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from kafka_async.secrets import Secret

_NOT_SENDABLE: Final = " has a character that cannot be sent: NUL, or half of a surrogate pair"


def check_username_and_password(
    mechanism: str, username: str | None, password: Secret | None
) -> None:
    """Raise InvalidConfigurationError unless both are given and can be sent."""
    if not username:
        raise _missing(mechanism, "sasl_username")
    if not password:
        raise _missing(mechanism, "sasl_password")
    if not _is_sendable(username):
        raise option_error("sasl_username", _NOT_SENDABLE)
    if not _is_sendable(password.reveal()):
        raise option_error("sasl_password", _NOT_SENDABLE)


def _missing(mechanism: str, option: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"{mechanism} needs {spell(option)}: it is missing or empty", option=option
    )


def _is_sendable(text: str) -> bool:
    # Not `encode`: its exception has the text.
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)
