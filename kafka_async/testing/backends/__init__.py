"""Clusters for tests behind one interface: embedded, Apache Kafka, Docker, or an external one.

    with ApacheBackend(brokers=3) as cluster:
        ... cluster.bootstrap_servers ...

`start` and `stop` block, since a cluster usually belongs to a test session, not to an event loop.
"""

from __future__ import annotations

from kafka_async.testing.backends.apache import ApacheBackend
from kafka_async.testing.backends.base import (
    Backend,
    BackendUnavailableError,
    BrokerControl,
    ClusterOptions,
)
from kafka_async.testing.backends.docker import DockerBackend
from kafka_async.testing.backends.embedded import EmbeddedBackend
from kafka_async.testing.backends.external import ExternalBackend
from kafka_async.testing.backends.security import (
    ClusterSecurity,
    SecureListener,
    SecureListeners,
    TokenIssuer,
)

__all__ = [
    "ApacheBackend",
    "Backend",
    "BackendUnavailableError",
    "BrokerControl",
    "ClusterOptions",
    "ClusterSecurity",
    "DockerBackend",
    "EmbeddedBackend",
    "ExternalBackend",
    "SecureListener",
    "SecureListeners",
    "TokenIssuer",
    "create_backend",
]


def create_backend(name: str, options: ClusterOptions | None = None) -> Backend:
    """Create a backend: embedded, apache, apache-VERSION, docker or external.

    Raises ValueError for an unknown name.
    """
    options = options or {}
    kind, _, version = name.strip().partition("-")
    if kind == "apache":
        return ApacheBackend(version, **options) if version else ApacheBackend(**options)
    classes = {"embedded": EmbeddedBackend, "docker": DockerBackend, "external": ExternalBackend}
    if kind not in classes or version:
        known = "embedded, apache, apache-VERSION, docker, external"
        raise ValueError(f"there is no Kafka backend {name!r}; there are: {known}")
    return classes[kind](**options)
