"""Names of options as the command line has them, for messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_async.config.spelling import PropertyNames

SASL_PASSWORD: Final = "KAFKA_ASYNC_SASL_PASSWORD"
SSL_PASSWORD: Final = "KAFKA_ASYNC_SSL_PASSWORD"
CLIENT_SECRET: Final = "KAFKA_ASYNC_SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET"

_OPTIONS: Final[Mapping[str, str]] = {
    "bootstrap_servers": "--bootstrap",
    "security_protocol": "--security-protocol",
    "ssl_cafile": "--ssl-cafile",
    "ssl_certfile": "--ssl-certfile",
    "ssl_keyfile": "--ssl-keyfile",
    "sasl_mechanism": "--sasl-mechanism",
    "sasl_username": "--sasl-username",
    "sasl_allow_plaintext": "--sasl-allow-plaintext",
    "sasl_password": f"the password ({SASL_PASSWORD}, --sasl-password-file or "
    "--sasl-password-keyring)",
    "ssl_password": f"the password of the private key ({SSL_PASSWORD})",
    "compression_type": "--compression",
    "sasl_oauthbearer_client_credentials_client_secret": f"the client secret ({CLIENT_SECRET})",
}
"""By option of Python: what gives it on the command line."""
_FLAGS: Final = frozenset({"sasl_allow_plaintext"})
"""Options without a value on the command line."""


class CommandLineNames(PropertyNames):
    """Writes options as --bootstrap, or as properties of a file if no command has them.

    Args:
        written: By option from the file of --command-config: its name in the file.
    """

    def __init__(self, written: Mapping[str, str]) -> None:
        super().__init__(written, takes_objects=False)
        self._in_file = written

    def write(self, option: str, value: str | None) -> str:
        """Return an option of the command line or of the file, with a value unless that is None."""
        name = _OPTIONS.get(option)
        if option in self._in_file:
            return super().write(option, value)
        if name is None:
            place = "" if self._in_file else " in the file of --command-config"
            return f"{super().write(option, value)}{place}"
        if value is None or (option in _FLAGS and value == self.literal(True)):
            return name
        return f"{name} {value}"
