"""Listener and users of a cluster process, from options and files."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple, cast

from kafka_async.config.secret_files import read_secret
from kafka_async.embedded.security.listeners import Listener
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from pathlib import Path

    from kafka_async.embedded.security.listeners import SecurityProtocol


class SecurityOptions(NamedTuple):
    """Holds the options of the command.

    Attributes:
        security_protocol: Name of the protocol, and of the listener.
        users_file: File with a line `name:password` per user; required for SASL.
        ssl_certfile: PEM file with the broker's certificate, and its key unless `ssl_keyfile` is
            given; required for TLS.
        ssl_keyfile: PEM file with the broker's key.
        ssl_cafile: PEM file with authorities; client certificates are then required.
    """

    security_protocol: str = "PLAINTEXT"
    users_file: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_cafile: Path | None = None

    def listeners(self) -> dict[str, Listener]:
        """Return the listener by name.

        Raises:
            InvalidConfigurationError: An option is missing or a file is not valid.
        """
        name = self.security_protocol
        if name.startswith("SASL") and self.users_file is None:
            raise InvalidConfigurationError(
                f"{name} needs --users-file FILE with a line name:password for each user",
                option="users_file",
            )
        if name.endswith("SSL") and self.ssl_certfile is None:
            raise InvalidConfigurationError(
                f"{name} needs --ssl-certfile FILE with the broker's certificate and key as PEM",
                option="ssl_certfile",
            )
        self._check_use("SASL_", ("users_file",))
        self._check_use("SSL", ("ssl_certfile", "ssl_keyfile", "ssl_cafile"))
        context = None if self.ssl_certfile is None else self._context(self.ssl_certfile)
        listener = Listener(
            security_protocol=cast("SecurityProtocol", name),
            ssl_context=context,
            client_auth=None if self.ssl_cafile is None else "required",
        )
        return {name: listener}

    def users(self) -> dict[str, Secret]:
        """Return the passwords by user name.

        Raises:
            InvalidConfigurationError: The file is unreadable, readable by other users, or has a
                line without a name or password.
        """
        return {} if self.users_file is None else _users(self.users_file)

    def _check_use(self, part: str, options: tuple[str, ...]) -> None:
        """Raise if an option is given for a protocol that does not use it."""
        name = self.security_protocol
        for option in options:
            if getattr(self, option) is not None and part not in name:
                fitting = [each for each in ("SSL", "SASL_PLAINTEXT", "SASL_SSL") if part in each]
                raise InvalidConfigurationError(
                    f"--{option.replace('_', '-')} is given but --security-protocol is {name}, "
                    f"which does not use it: set it to {' or '.join(fitting)}",
                    option=option,
                )

    def _context(self, certfile: Path) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        names = f"--ssl-certfile {certfile}"
        if self.ssl_keyfile is not None:
            names += f" or --ssl-keyfile {self.ssl_keyfile}"
        try:
            context.load_cert_chain(certfile, self.ssl_keyfile)
            names = f"--ssl-cafile {self.ssl_cafile}"
            if self.ssl_cafile is not None:
                context.load_verify_locations(self.ssl_cafile)
        except OSError as error:  # includes SSLError
            raise InvalidConfigurationError(
                f"{names} cannot be used ({_reason(error)}): give PEM files that this user may read"
            ) from None
        return context


def _reason(error: OSError) -> str:
    """Return the cause in words instead of Python's "[SSL] PEM lib (_ssl.c:3905)"."""
    reason = str(getattr(error, "reason", None) or error.strerror or type(error).__name__)
    if reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return "not valid PEM" if reason == "PEM_LIB" or "PEM lib" in reason else reason


def _users(file: Path) -> dict[str, Secret]:
    users: dict[str, Secret] = {}
    lines = [Secret(line) for line in read_secret(file).reveal().splitlines()]
    for number, line in enumerate(lines, 1):
        if not line.reveal().strip():
            continue
        name = line.reveal().partition(":")[0]
        password = Secret(line.reveal().partition(":")[2])
        if not name or not password:
            raise InvalidConfigurationError(f"{file}: line {number} is not name:password")
        users[name] = password
    return users
