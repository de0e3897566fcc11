"""Apache Kafka's official image in a container, run by testcontainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kafka_async.foundation.arguments import missing_extra
from kafka_async.testing.backends.base import Backend, BackendUnavailableError, ClusterOptions
from kafka_async.testing.backends.nodes import free_ports
from kafka_async.testing.backends.probe import wait_until_ready
from kafka_async.testing.backends.settings import cluster_settings, node_settings

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

IMAGE = "apache/kafka"
LATEST = "4.4.0"
START_TIMEOUT = 120
"""Seconds."""
CONTROLLER = "127.0.0.1:9093"


class DockerBackend(Backend):
    """Runs one broker of Apache Kafka in a container; requires a Docker engine on this machine.

    The options `brokers` and `racks` are ignored.
    """

    def __init__(self, version: str = LATEST, **options: Unpack[ClusterOptions]) -> None:
        super().__init__(f"docker {version}", {**options, "brokers": 1, "racks": ()})
        self.image = f"{IMAGE}:{version}"
        self._properties = dict(options.get("properties", {}))
        self._container: DockerContainer | None = None
        self._port = 0

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the broker."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Pull the image if it is missing, start the container and wait for the broker."""
        try:
            from docker.errors import DockerException
            from testcontainers.core.container import DockerContainer
        except ImportError as error:
            raise BackendUnavailableError(missing_extra("Docker", "testing")) from error
        (self._port,) = free_ports(1)
        try:
            container = DockerContainer(self.image)
        except DockerException as error:
            raise BackendUnavailableError(f"install and start Docker ({error})") from error
        self._container = container
        container.with_envs(**self.environment()).with_bind_ports(self._port, self._port)
        try:
            container.start()
            wait_until_ready([self.bootstrap_servers], brokers=1, timeout=START_TIMEOUT)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop and remove the container."""
        container, self._container = self._container, None
        if container is not None:
            container.stop()

    def environment(self) -> dict[str, str]:
        """Return the broker's properties in the image's form, as KAFKA_NODE_ID for node.id."""
        settings = {
            **cluster_settings(1, self.auto_create_topics, self.default_partitions),
            **node_settings(1, self._port, CONTROLLER, f"1@{CONTROLLER}", bind="0.0.0.0"),
            **self._properties,
        }
        return {f"KAFKA_{key.replace('.', '_').upper()}": value for key, value in settings.items()}
