"""The embedded cluster, in a thread that runs its event loop."""

from __future__ import annotations

import errno
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from kafka_async.testing.backends.base import Backend, ClusterOptions
from kafka_async.testing.backends.nodes import free_ports, random_cluster_id

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kafka_async.embedded import AclAuthorizer, BlockingCluster, Listener
    from kafka_async.testing.backends.security import ClusterSecurity, SecureListener

MAX_PORT_ATTEMPTS: Final = 10
"""Ports to try for a broker: another process may take one before the broker does."""


class EmbeddedBackend(Backend):
    """Runs the embedded cluster, without any other program.

    `cluster` offers faults and the control of brokers, and may be used from any thread.
    """

    def __init__(self, **options: Unpack[ClusterOptions]) -> None:
        super().__init__("embedded", options)
        self._security = options.get("security")
        self._thread: AbstractContextManager[BlockingCluster] | None = None
        self._cluster: BlockingCluster | None = None
        self._reported_failures = 0

    @property
    def cluster(self) -> BlockingCluster:
        """The cluster, only while it runs."""
        if self._cluster is None:
            raise RuntimeError("the embedded cluster was not started")
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas."""
        return self.cluster.bootstrap_servers

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return `host:port` of a listener of every broker, separated by commas."""
        return self.cluster.bootstrap_servers_of(listener)

    def start(self) -> None:
        """Start the thread and the cluster in it."""
        from kafka_async.embedded import run_in_thread
        from kafka_async.embedded.settings import RACK_AWARE_REPLICA_SELECTOR

        security = self._security
        self._thread = run_in_thread(
            self.brokers,
            auto_create_topics=self.auto_create_topics,
            default_partitions=self.default_partitions,
            racks=dict(enumerate(self.racks, 1)),
            replica_selector_class=RACK_AWARE_REPLICA_SELECTOR if self.racks else None,
            min_insync_replicas=min(self.brokers, 2),
            cluster_id=random_cluster_id(),
            quota_request_time_ms=0.1,
            group_min_session_timeout_ms=500,
            group_consumer_session_timeout_ms=6_000,
            group_consumer_heartbeat_interval_ms=500,
            group_consumer_min_session_timeout_ms=500,
            group_consumer_min_heartbeat_interval_ms=100,
            group_share_session_timeout_ms=6_000,
            group_share_heartbeat_interval_ms=500,
            group_share_min_session_timeout_ms=500,
            group_share_min_heartbeat_interval_ms=100,
            group_share_min_record_lock_duration_ms=1_000,
            log_retention_check_interval_ms=86_400_000,  # Tests write records with any timestamp.
            listeners=None if security is None else _listeners(security),
            users=None if security is None else security.users,
            authorizer=None if security is None else _authorizer(security),
            delegation_token_auth_enabled=security is None or bool(security.delegation_token_key),
        )
        self._cluster = self._thread.__enter__()
        self._reported_failures = 0

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker; its leaderships move."""
        self.cluster.stop_broker(broker_id)

    def kill_broker(self, broker_id: int) -> None:
        """Stop a broker: embedded brokers always stop as in a crash."""
        self.cluster.stop_broker(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker at its former port."""
        self.cluster.start_broker(broker_id)

    def start_at_new_ports(self) -> None:
        """Start all stopped brokers at other ports, with their data."""
        former = [int(address.rpartition(":")[2]) for address in self.bootstrap_servers.split(",")]
        for broker_id in range(1, self.brokers + 1):
            self._start_at_new_port(broker_id, former)

    def _start_at_new_port(self, broker_id: int, former: list[int]) -> None:
        """Start a broker at a port that is not one of `former`."""
        for attempts_left in reversed(range(MAX_PORT_ATTEMPTS)):
            (port,) = free_ports(1, exclude=former)
            try:
                self.cluster.start_broker(broker_id, port=port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not attempts_left:
                    raise
            else:
                return

    def failures(self) -> list[str]:
        """Return the cluster's unexpected exceptions since the last call: bugs of the cluster."""
        failures = self.cluster.failures
        reported, self._reported_failures = self._reported_failures, len(failures)
        return [f"{failure.where}: {failure.error!r}" for failure in failures[reported:]]

    def stop(self) -> None:
        """Stop the cluster and its thread."""
        thread, self._thread, self._cluster = self._thread, None, None
        if thread is not None:
            thread.__exit__(None, None, None)


def _listeners(security: ClusterSecurity) -> dict[str, Listener]:
    from kafka_async.embedded import Listener

    plaintext = Listener(security_protocol="PLAINTEXT")
    secure = {name: _listener(one) for name, one in security.listeners.items()}
    return {"PLAINTEXT": plaintext, **secure}


def _authorizer(security: ClusterSecurity) -> AclAuthorizer:
    from kafka_async.embedded import AclAuthorizer

    return AclAuthorizer(super_users=["User:ANONYMOUS", *security.super_users])


def _listener(listener: SecureListener) -> Listener:
    from kafka_async.embedded import Listener

    uses_tls = listener.security_protocol in ("SSL", "SASL_SSL")
    optional: dict[str, Any] = {}
    if listener.sasl_mechanisms:
        optional["sasl_mechanisms"] = listener.sasl_mechanisms
    if listener.token_issuer is not None:
        optional["oauthbearer"] = listener.token_issuer.validate
    if listener.ssl_principal_mapping_rules:
        optional["ssl_principal_mapping_rules"] = listener.ssl_principal_mapping_rules
    return Listener(
        security_protocol=listener.security_protocol,
        ssl_context=_ssl_context(listener) if uses_tls else None,
        client_auth=listener.client_auth if uses_tls else None,
        connections_max_reauth_ms=listener.max_reauth_ms,
        **optional,
    )


def _ssl_context(listener: SecureListener) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "broker.pem")
        file.touch(mode=0o600)
        file.write_text(listener.certificate)
        context.load_cert_chain(file)
    if listener.client_ca:
        context.load_verify_locations(cadata=listener.client_ca)
    return context
