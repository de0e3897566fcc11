"""The Docker backend against a fake engine, so that no Docker engine is needed.

The tests check the requests to the engine and the settings of the image, not the image itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_async.testing.backends import BackendUnavailableError, DockerBackend
from kafka_async.testing.backends.nodes import free_ports
from tests.testing.fakes import DockerEngine

RESPONSES = Path(__file__).parent / "data" / "docker_api.json"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerEngine]:
    with DockerEngine(RESPONSES) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        yield engine


def test_starts_and_removes_a_container(engine: DockerEngine) -> None:
    with DockerBackend("4.4.0") as cluster:
        assert cluster.name == "docker 4.4.0"
        port = cluster.bootstrap_servers.rpartition(":")[2]
        assert engine.created["Image"] == "apache/kafka:4.4.0"
        assert engine.created["HostConfig"]["PortBindings"] == {
            f"{port}/tcp": [{"HostIp": "", "HostPort": port}]
        }
    methods = [line.split("/")[0].strip() for line in engine.requests]
    assert methods[-1] == "DELETE"
    assert "force=True" in engine.requests[-1]


def test_configures_the_broker_through_the_environment(engine: DockerEngine) -> None:
    with DockerBackend("4.4.0", default_partitions=6, properties={"log.retention.ms": "1"}) as one:
        environment = dict(row.partition("=")[::2] for row in engine.created["Env"])
        port = one.bootstrap_servers.rpartition(":")[2]
    assert environment["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://127.0.0.1:{port}"
    assert environment["KAFKA_LISTENERS"].startswith(f"PLAINTEXT://0.0.0.0:{port},")
    assert environment["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] == "1"
    assert environment["KAFKA_NUM_PARTITIONS"] == "6"
    assert environment["KAFKA_LOG_RETENTION_MS"] == "1"


def test_ignores_the_number_of_brokers(engine: DockerEngine) -> None:
    assert DockerBackend(brokers=3).brokers == 1


def test_removes_a_container_that_does_not_start(engine: DockerEngine) -> None:
    for row in engine.rows:
        if row["path"].endswith("/start"):
            row.update(status=500, body={"message": "no space left on device"})
    backend = DockerBackend("4.4.0")
    with pytest.raises(Exception, match="no space left on device"):
        backend.start()
    assert engine.requests[-1].startswith("DELETE")


def test_error_without_an_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    with pytest.raises(BackendUnavailableError, match="install and start Docker"):
        DockerBackend().start()
