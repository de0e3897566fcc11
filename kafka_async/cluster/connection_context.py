"""The objects that all connections of one client share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kafka_async.backoff import Backoff
from kafka_async.cluster.framing import ReceiveBudget
from kafka_async.cluster.lifetime import Lifetime
from kafka_async.cluster.token_source import token_source
from kafka_async.config import seconds

if TYPE_CHECKING:
    import ssl

    from kafka_async.clock import Clock, Dialer
    from kafka_async.config import ClientConfig
    from kafka_async.hooks import Hooks
    from kafka_async.supervisor import Supervisor


class ConnectionContext:
    """Configuration and services for the connections of one client.

    Attributes:
        supervisor: Runs the attempts to connect, and blocking functions in its threads.
        software_version: Version of this library, for the brokers' metrics.
        cluster_id: Id of the cluster; None before the first metadata response.
        tokens: The client's tokens; None if its options name no origin of tokens.
    """

    def __init__(
        self,
        config: ClientConfig,
        hooks: Hooks,
        dialer: Dialer,
        supervisor: Supervisor,
        clock: Clock,
    ) -> None:
        self.config = config
        self.hooks = hooks
        self.dialer = dialer
        self.supervisor = supervisor
        self.budget = ReceiveBudget(config.receive_buffer_memory)
        self.lifetime = Lifetime()
        self.software_version: str = getattr(sys.modules["kafka_async"], "__version__", "unknown")
        self.cluster_id: str | None = None
        self.tokens = token_source(config, supervisor, clock)
        self._ssl_context: ssl.SSLContext | None = config.ssl_context

    @property
    def expected_cluster(self) -> str | None:
        """Cluster id that brokers check (KIP-1242); as in Java, None without rebootstrap."""
        rebootstraps = self.config.metadata_recovery_strategy == "rebootstrap"
        return self.cluster_id if rebootstraps else None

    def retry_backoff(self) -> Backoff:
        """Return the backoff of one call's retries."""
        config = self.config
        return Backoff(seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms))

    async def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context; None for plaintext."""
        if self.config.security_protocol != "SSL":
            return None
        if self._ssl_context is None:
            from ssl import create_default_context  # the default context reads files

            self._ssl_context = await self.supervisor.offload(create_default_context)
        return self._ssl_context
