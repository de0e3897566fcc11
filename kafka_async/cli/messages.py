"""Error messages in terms of the command line: its options in place of those of Python. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

SASL_PASSWORD: Final = "KAFKA_ASYNC_SASL_PASSWORD"
SSL_PASSWORD: Final = "KAFKA_ASYNC_SSL_PASSWORD"
CLIENT_SECRET: Final = "KAFKA_ASYNC_SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET"

_FILE: Final = "in the file of --command-config"
_PASSWORD: Final = (
    f"the password ({SASL_PASSWORD}, --sasl-password-file or --sasl-password-keyring)"
)
_OPTIONS: Final[Mapping[str, str]] = {
    "bootstrap_servers": "--bootstrap",
    "security_protocol": "--security-protocol",
    "ssl_cafile": "--ssl-cafile",
    "ssl_certfile": "--ssl-certfile",
    "ssl_keyfile": "--ssl-keyfile",
    "sasl_mechanism": "--sasl-mechanism",
    "sasl_username": "--sasl-username",
    "sasl_allow_plaintext": "--sasl-allow-plaintext",
    "sasl_password": _PASSWORD,
    "ssl_password": f"the password of the private key ({SSL_PASSWORD})",
    "compression_type": "--compression",
    "sasl_oauthbearer_client_credentials_client_secret": f"the client secret ({CLIENT_SECRET})",
}
"""By option of Python: what gives it on the command line."""
_PHRASES: Final[Mapping[str, str]] = {
    ", or an ssl_context,": "",
    "pass sasl_token_provider, a coroutine function that returns a Token, or ": "give ",
    "ssl_check_hostname=False": f"an empty ssl.endpoint.identification.algorithm {_FILE}",
    "sasl_allow_plaintext=True": "--sasl-allow-plaintext",
}
"""Phrases that name what a command line cannot give, or gives in another form."""
_NAME: Final = re.compile(
    r"(?<![\w/\\.'-])(?P<name>(?:ssl|sasl)_\w+|security_protocol|bootstrap_servers|compression_type)"
    r"(?![\w/\\'-]|\.\w)"  # Not within a path.
    r'(?:="(?P<text>[^"]*)"(?P<other> or "[A-Z_]+")?|(?P<equals>=))?'
)


def in_command_terms(message: str) -> str:
    """Return a message of a client with the names that a user of the command line gives."""
    for phrase, replacement in _PHRASES.items():
        message = message.replace(phrase, replacement)
    return _NAME.sub(_replacement, message)


def _replacement(match: re.Match[str]) -> str:
    from kafka_async.config import ClientConfig

    name = match["name"]
    option = _OPTIONS.get(name)
    if option is None:
        if name not in ClientConfig.__dataclass_fields__:
            return match[0]  # A topic or a group, for example.
        value = "" if match["text"] is None else f"={match['text']}"
        return f"{name.replace('_', '.')}{value or match['equals'] or ''} {_FILE}"
    if match["text"] is not None:
        return f"{option} {match['text']}{(match['other'] or '').replace(chr(34), '')}"
    return f"{option} " if match["equals"] else option
