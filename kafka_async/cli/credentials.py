"""Secrets of commands: from the environment, files and the keyring, never from arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafka_async.cli import terminal
from kafka_async.cli.option_names import CLIENT_SECRET, SASL_PASSWORD, SSL_PASSWORD
from kafka_async.cli.properties import parse_properties
from kafka_async.config.secret_files import decode, read_file, read_secret
from kafka_async.config.spelling import with_underscores
from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.arguments import missing_extra
from kafka_async.secrets import Secret

_JAAS: Final = "sasl_jaas_config"
_SECRET_OF_JAAS: Final = re.compile("password|secret", re.IGNORECASE)
_SOURCES: Final = {
    SASL_PASSWORD: ("sasl_password", _JAAS),
    SSL_PASSWORD: ("ssl_password", "ssl_key_password"),
    CLIENT_SECRET: ("sasl_oauthbearer_client_credentials_client_secret", _JAAS),
}
"""By environment variable: its option, then the properties that replace it."""


def secrets_from_environment(properties: Mapping[str, object]) -> dict[str, object]:
    """Return the required secrets that the options lack, by option.

    Each variable is removed from the environment, so that child processes do not inherit it.
    """
    given = {name: Secret(os.environ.pop(name, "")) for name in _SOURCES}
    needed = needed_variables(properties)
    return {_SOURCES[name][0]: value for name, value in given.items() if value and name in needed}


def needed_variables(properties: Mapping[str, object]) -> frozenset[str]:
    """Return the environment variables of the required secrets."""
    from kafka_async.config import MECHANISMS_WITHOUT_PASSWORD

    protocol = str(properties.get("security_protocol", "PLAINTEXT"))
    mechanism = str(properties.get("sasl_mechanism", ""))
    uses = {
        SASL_PASSWORD: protocol.startswith("SASL") and mechanism not in MECHANISMS_WITHOUT_PASSWORD,
        SSL_PASSWORD: protocol.endswith("SSL"),
        CLIENT_SECRET: protocol.startswith("SASL") and mechanism == "OAUTHBEARER",
    }
    return frozenset(
        name for name, used in uses.items() if used and not properties.keys() & set(_SOURCES[name])
    )


def password_from_file(file: Path) -> Secret:
    """Return a file's text without the newline at its end; fail if other users can read it."""
    try:
        return read_secret(file)
    except InvalidConfigurationError as error:
        terminal.fail(error.message)


def password_from_keyring(service: str, username: object) -> Secret:
    """Return a user's password from the system's keyring; fail if the keyring has none."""
    if not isinstance(username, str):
        terminal.fail("--sasl-password-keyring needs --sasl-username")
    try:
        import keyring
        from keyring.errors import KeyringError
    except ModuleNotFoundError:
        terminal.fail(missing_extra("--sasl-password-keyring", "keyring"))
    try:
        password = Secret(keyring.get_password(service, username) or "")
    except KeyringError as error:
        terminal.fail(f"the keyring cannot be read: {error or type(error).__name__}")
    if not password:
        terminal.fail(
            f"the keyring has no password of {username} for {service}: store it with "
            f"`keyring set {service} {username}`"
        )
    return password


def properties_from_file(file: Path) -> dict[str, object]:
    """Return the values of a Java properties file by their names in it; secrets are wrapped.

    As in Kafka, whitespace around values is stripped. Fail if the file has a secret and other users
    can read it.
    """
    try:
        entries = parse_properties(decode(read_file(file, private=False), file))
        if any(_is_secret(key, value) for key, value in entries.items()):
            read_file(file, private=True)
    except InvalidConfigurationError as error:
        terminal.fail(error.message)
    except ValueError as error:
        terminal.fail(f"{file}: {error}")
    return {key: _visible(key, Secret(value.reveal().strip())) for key, value in entries.items()}


def _is_secret(key: str, value: Secret) -> bool:
    """Return whether a property's value is a secret rather than the location of a secret."""
    name = with_underscores(key)
    if name == "ssl_keyfile" and "-----BEGIN" not in value.reveal():
        return False  # A path.
    if name == _JAAS:
        return _SECRET_OF_JAAS.search(value.reveal()) is not None
    return bool(value.reveal().strip()) and isinstance(_visible(key, value), Secret)


def _visible(key: str, value: Secret) -> object:
    """Return the value of a property as text, unless it is a secret."""
    from kafka_async.config import hide_secrets

    return value if isinstance(hide_secrets({key: ""})[key], Secret) else value.reveal()
