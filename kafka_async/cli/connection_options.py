"""The connection of a command and of its child processes to a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeVar

from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from kafka_async.config import ClientConfig

    ConfigT = TypeVar("ConfigT", bound=ClientConfig)

DEFAULT_BOOTSTRAP: Final = "localhost:9092"


@dataclass(frozen=True)
class ConnectionOptions:
    """Holds the options of a command's connections.

    Attributes:
        properties: Options by name with underscores; secrets are wrapped.
        timeout: Maximum time in seconds to wait for the cluster.
        written: Names in the --command-config file by option, for errors.
    """

    properties: Mapping[str, object]
    timeout: float
    written: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def bootstrap(self) -> str | None:
        """The given brokers, if any."""
        servers = self.properties.get("bootstrap_servers")
        return None if servers is None else str(servers)

    @classmethod
    def from_json(cls, text: Secret) -> Self:
        """Return a connection from the text of `to_json`."""
        rows = json.loads(text.reveal())
        secrets = {name: Secret(value) for name, value in rows["secrets"].items()}
        return cls({**rows["options"], **secrets}, rows["timeout"])

    def to_json(self) -> Secret:
        """Return the connection in one line, with its secrets, for the input of a child process."""
        secrets = self.secrets()
        options = {name: value for name, value in self.properties.items() if name not in secrets}
        revealed = {name: secret.reveal() for name, secret in secrets.items()}
        rows = {"options": options, "secrets": revealed, "timeout": self.timeout}
        return Secret(json.dumps(rows))

    def secrets(self) -> dict[str, Secret]:
        """Return the options that are secrets."""
        return {name: value for name, value in self.properties.items() if isinstance(value, Secret)}

    def config(self, role: type[ConfigT], **options: object) -> ConfigT:
        """Return a configuration of these properties and of options that override them."""
        from kafka_async.cli.option_names import CommandLineNames
        from kafka_async.config.spelling import options_written_as

        written = {name: key for name, key in self.written.items() if name not in options}
        given = {"bootstrap_servers": DEFAULT_BOOTSTRAP, **self.properties, **options}
        with options_written_as(CommandLineNames(written)):
            return role.from_properties(given)

    def limited_config(self, role: type[ConfigT], **options: object) -> ConfigT:
        """Return a configuration whose client gives up after `timeout` seconds."""
        from kafka_async.config import ProducerConfig

        timeout_ms = 1000 * self.timeout
        limits: dict[str, object] = {
            "default_api_timeout_ms": timeout_ms,
            "request_timeout_ms": min(30_000, timeout_ms / 2),
            "socket_connection_setup_timeout_ms": min(10_000, timeout_ms / 2),
            "socket_connection_setup_timeout_max_ms": min(30_000, timeout_ms / 2),
        }
        if issubclass(role, ProducerConfig):
            limits |= {"max_block_ms": timeout_ms, "delivery_timeout_ms": timeout_ms}
        return self.config(role, **limits, **options)
