"""The objects that all connections of one client share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kafka_async.client.connection.quota_usage import QuotaUsage
from kafka_async.client.connection.throttle import ThrottleWindows
from kafka_async.client.connection.transport import OpenStreams
from kafka_async.client.lifetime import Lifetime
from kafka_async.client.security.tls import TlsContext
from kafka_async.client.security.token_source import token_source
from kafka_async.client.wire.framing import ReceiveBudget
from kafka_async.config import seconds
from kafka_async.config.spelling import spell
from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.backoff import Backoff

if TYPE_CHECKING:
    import ssl

    from kafka_async.client.security.authentication import Authenticator
    from kafka_async.config import ClientConfig
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.hooks import Hooks


class ConnectionContext:
    """Configuration and services for the connections of one client.

    Attributes:
        supervisor: Runs the attempts to connect, and blocking functions in its threads.
        authenticator: Authenticates the connections by SASL, or None.
        software_version: Version of this library, for the brokers' metrics.
        cluster_id: Id of the cluster, or None before the first metadata response.
        throttle_windows: Throttle times by the address of brokers.
        quota_usage: Bytes that count for quotas, by broker.
        tokens: The client's tokens, or None if no option selects a provider.
    """

    def __init__(
        self,
        config: ClientConfig,
        hooks: Hooks,
        dialer: Dialer,
        supervisor: Supervisor,
        clock: Clock,
        authenticator: Authenticator | None = None,
    ) -> None:
        # Passed in.
        self.config = config
        self.hooks = hooks
        self.dialer = dialer
        self.supervisor = supervisor
        self.clock = clock
        self.authenticator = authenticator
        # One per client: memory, lifetime, open streams, throttle times and quotas concern all
        # connections.
        self.budget = ReceiveBudget(config.receive_buffer_memory)
        self.lifetime = Lifetime()
        self.streams = OpenStreams()
        self.throttle_windows = ThrottleWindows()
        self.quota_usage = QuotaUsage()
        # Brokers have it in their metrics (KIP-511); read from the package without importing it
        # again.
        self.software_version: str = getattr(sys.modules["kafka_async"], "__version__", "unknown")
        self.cluster_id: str | None = None
        self._tls = TlsContext(config, supervisor.offload)
        self.tokens = token_source(config, supervisor, clock)

    @property
    def expected_cluster(self) -> str | None:
        """Cluster id that brokers check (KIP-1242), or None if they do not, as in Java."""
        rebootstraps = self.config.metadata_recovery_strategy == "rebootstrap"
        checks = rebootstraps and self.config.metadata_cluster_check_enable
        return self.cluster_id if checks else None

    def is_outdated(self, error: BaseException | None) -> bool:
        """Return True if an error comes from an authentication with replaced credentials."""
        return self.authenticator is not None and self.authenticator.is_outdated(error)

    def retry_backoff(self) -> Backoff:
        """Return the backoff of one call's retries."""
        config = self.config
        return Backoff(seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms))

    async def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for a new connection, or None for plaintext.

        Raises InvalidConfigurationError if a certificate or key file cannot be used.
        """
        if not self.config.security_protocol.endswith("SSL"):
            return None
        return await self._tls.current()

    async def reload_certificates(self) -> bool:
        """Read the files of certificates again; see `Client.reload_certificates`."""
        if not self.config.security_protocol.endswith("SSL"):
            raise InvalidConfigurationError(
                f"{spell('security_protocol', self.config.security_protocol)} uses no "
                "certificates: there is nothing to reload",
                option="security_protocol",
            )
        return await self._tls.reload()
