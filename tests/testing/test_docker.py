"""The Docker backend, against an engine that answers as Docker's API says; no engine is needed.

What it proves is the talk with the engine and what is asked of the image, not the image itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_async.testing.backends import BackendUnavailableError, DockerBackend
from kafka_async.testing.backends.nodes import free_ports
from tests.testing.fakes import DockerEngine

ANSWERS = Path(__file__).parent / "data" / "docker_api.json"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerEngine]:
    with DockerEngine(ANSWERS) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        yield engine


def test_a_container_is_started_used_and_removed(engine: DockerEngine) -> None:
    with DockerBackend("4.4.0") as cluster:
        assert cluster.name == "docker 4.4.0"
        port = cluster.bootstrap_servers.rpartition(":")[2]
        assert engine.created["Image"] == "apache/kafka:4.4.0"
        assert engine.created["HostConfig"]["PortBindings"] == {
            f"{port}/tcp": [{"HostIp": "", "HostPort": port}]
        }
    verbs = [line.split("/")[0].strip() for line in engine.asked]
    assert verbs[-1] == "DELETE"
    assert "force=True" in engine.asked[-1]


def test_the_broker_is_told_to_be_one_small_combined_node(engine: DockerEngine) -> None:
    with DockerBackend("4.4.0", default_partitions=6, properties={"log.retention.ms": "1"}) as one:
        told = dict(row.partition("=")[::2] for row in engine.created["Env"])
        port = one.bootstrap_servers.rpartition(":")[2]
    assert told["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert told["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://127.0.0.1:{port}"
    assert told["KAFKA_LISTENERS"].startswith(f"PLAINTEXT://0.0.0.0:{port},")
    assert told["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] == "1"
    assert told["KAFKA_NUM_PARTITIONS"] == "6"
    assert told["KAFKA_LOG_RETENTION_MS"] == "1"


def test_it_has_one_broker_whatever_is_asked_for(engine: DockerEngine) -> None:
    assert DockerBackend(brokers=3).brokers == 1


def test_a_container_that_cannot_start_is_removed(engine: DockerEngine) -> None:
    for row in engine.rows:
        if row["path"].endswith("/start"):
            row.update(status=500, body={"message": "no space left on device"})
    backend = DockerBackend("4.4.0")
    with pytest.raises(Exception, match="no space left on device"):
        backend.start()
    assert engine.asked[-1].startswith("DELETE")


def test_without_an_engine_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    with pytest.raises(BackendUnavailableError, match="install and start Docker"):
        DockerBackend().start()
