"""The objects that all connections of one client share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from kafka_async.clock import Dialer
    from kafka_async.cluster.framing import ReceiveBudget
    from kafka_async.cluster.lifetime import Lifetime
    from kafka_async.config import ClientConfig
    from kafka_async.hooks import Hooks
    from kafka_async.supervisor import Offload


@dataclass(slots=True)
class ConnectionContext:
    """Configuration and services for the connections of one client.

    Attributes:
        budget: Limits the memory of large responses.
        lifetime: Ends all waits when the client stops.
        tls: Returns the TLS context; None for plaintext.
        offload: Runs a function in the client's threads.
        cluster_id: Id of the cluster; None before the first metadata response.
    """

    config: ClientConfig
    hooks: Hooks
    dialer: Dialer
    budget: ReceiveBudget
    lifetime: Lifetime
    software_version: str
    tls: Callable[[], Awaitable[ssl.SSLContext | None]]
    offload: Offload
    cluster_id: str | None = None

    @property
    def expected_cluster(self) -> str | None:
        """Cluster id that brokers check (KIP-1242); as in Java, None without rebootstrap."""
        rebootstraps = self.config.metadata_recovery_strategy == "rebootstrap"
        return self.cluster_id if rebootstraps else None
