"""The connection of a command and of its child processes to a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from kafka_async.config import ClientConfig

    ConfigT = TypeVar("ConfigT", bound=ClientConfig)

DEFAULT_BOOTSTRAP: Final = "localhost:9092"


@dataclass(frozen=True)
class Connection:
    """Holds the options of a command's connections.

    Attributes:
        properties: Options by name with underscores; secrets are wrapped.
        timeout: Maximum time in seconds to wait for the cluster.
    """

    properties: Mapping[str, object]
    timeout: float

    @property
    def bootstrap(self) -> str | None:
        """The brokers that were named, if any."""
        servers = self.properties.get("bootstrap_servers")
        return None if servers is None else str(servers)

    def config(self, role: type[ConfigT], **options: object) -> ConfigT:
        """Return a configuration of these properties and of options that override them."""
        defaults = {"bootstrap_servers": DEFAULT_BOOTSTRAP}
        return role.from_properties({**defaults, **self.properties, **options})

    def limited_config(self, role: type[ConfigT], **options: object) -> ConfigT:
        """Return a configuration with which a client gives up after `timeout` seconds."""
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
