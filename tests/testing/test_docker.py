"""The Docker backend with a fake container, so that no Docker engine is needed.

The tests check the calls of testcontainers and the settings of the image, not the image itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import create_autospec

import pytest
from testcontainers.core.container import DockerContainer

from kafka_async.testing.backends import BackendUnavailableError, DockerBackend
from kafka_async.testing.backends.nodes import free_ports
from tests.testing.fakes import metadata_of, server

CLASS = "testcontainers.core.container.DockerContainer"


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a container that, while it runs, is a broker at the port that it binds."""
    fake = create_autospec(DockerContainer, instance=True)
    with ExitStack() as running:

        def start() -> None:
            port, bound = fake.with_bind_ports.call_args.args
            assert port == bound
            running.enter_context(server(metadata_of(1), port))

        fake.with_envs.return_value = fake
        fake.start.side_effect = start
        fake.stop.side_effect = running.close
        constructor = create_autospec(DockerContainer, return_value=fake)
        monkeypatch.setattr(CLASS, constructor)
        yield fake
        if constructor.called:
            constructor.assert_called_once_with("apache/kafka:4.4.0")


def test_starts_and_removes_a_container(container: Any) -> None:
    with DockerBackend("4.4.0") as cluster:
        assert cluster.name == "docker 4.4.0"
        assert cluster.image == "apache/kafka:4.4.0"
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        container.with_bind_ports.assert_called_once_with(port, port)
        container.stop.assert_not_called()
    container.stop.assert_called_once_with()


def test_configures_the_broker_through_the_environment(container: Any) -> None:
    with DockerBackend("4.4.0", default_partitions=6, properties={"log.retention.ms": "1"}) as one:
        environment = container.with_envs.call_args.kwargs
        port = one.bootstrap_servers.rpartition(":")[2]
    assert environment["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://127.0.0.1:{port}"
    assert environment["KAFKA_LISTENERS"].startswith(f"PLAINTEXT://0.0.0.0:{port},")
    assert environment["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] == "1"
    assert environment["KAFKA_NUM_PARTITIONS"] == "6"
    assert environment["KAFKA_LOG_RETENTION_MS"] == "1"


def test_ignores_the_number_of_brokers() -> None:
    assert DockerBackend(brokers=3).brokers == 1


def test_removes_a_container_that_does_not_start(container: Any) -> None:
    container.start.side_effect = OSError("no space left on device")
    backend = DockerBackend("4.4.0")
    with pytest.raises(OSError, match="no space left on device"):
        backend.start()
    container.stop.assert_called_once_with()


def test_error_without_an_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    with pytest.raises(BackendUnavailableError, match="install and start Docker"):
        DockerBackend().start()
