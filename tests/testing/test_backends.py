"""Backends by name, their settings and their ports."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from kafka_async.testing.backends import (
    ApacheBackend,
    BackendUnavailableError,
    BrokerControl,
    DockerBackend,
    EmbeddedBackend,
    ExternalBackend,
    create_backend,
)
from kafka_async.testing.backends.nodes import MAX_PORT, MIN_PORT, Node, free_ports
from kafka_async.testing.backends.settings import cluster_settings, node_settings
from tests.testing.fakes import metadata_of, server


@pytest.mark.parametrize(
    ("name", "kind", "full_name"),
    [
        ("embedded", EmbeddedBackend, "embedded"),
        ("apache", ApacheBackend, "apache 4.4.0"),
        ("apache-3.9.1", ApacheBackend, "apache 3.9.1"),
        (" docker ", DockerBackend, "docker 4.4.0"),
        ("external", ExternalBackend, "external"),
    ],
)
def test_creates_a_backend_by_name(name: str, kind: type, full_name: str) -> None:
    backend = create_backend(name, {"brokers": 3})
    assert type(backend) is kind
    assert backend.name == full_name


@pytest.mark.parametrize("name", ["", "kafka", "embedded-2", "docker-x"])
def test_error_for_an_unknown_name_lists_the_backends(name: str) -> None:
    with pytest.raises(ValueError, match=r"there are: embedded, apache, apache-VERSION, docker"):
        create_backend(name)


def test_backends_with_control_of_single_brokers() -> None:
    assert isinstance(ApacheBackend(), BrokerControl)
    assert isinstance(EmbeddedBackend(), BrokerControl)
    assert not isinstance(ExternalBackend(), BrokerControl)


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_replicates_to_up_to_three_brokers(brokers: int, replicas: str, in_sync: str) -> None:
    settings = cluster_settings(brokers, auto_create_topics=True, default_partitions=1)
    factors = {value for key, value in settings.items() if key.endswith("replication.factor")}
    minima = {value for key, value in settings.items() if key.endswith("min.isr")}
    assert factors == {replicas}
    assert minima == {in_sync}
    assert settings["min.insync.replicas"] == in_sync


def test_leaders_stay_until_a_test_moves_them() -> None:
    settings = cluster_settings(3, auto_create_topics=True, default_partitions=1)
    assert settings["auto.leader.rebalance.enable"] == "false"


def test_settings_of_automatic_topic_creation() -> None:
    for value, text in ((True, "true"), (False, "false")):
        settings = cluster_settings(1, auto_create_topics=value, default_partitions=7)
        assert settings["auto.create.topics.enable"] == text
        assert settings["num.partitions"] == "7"


def test_a_node_listens_only_on_loopback() -> None:
    settings = node_settings(2, 19092, "127.0.0.1:19093", "2@127.0.0.1:19093")
    for key in ("listeners", "advertised.listeners"):
        assert all("//127.0.0.1:" in one for one in settings[key].split(","))


def test_a_node_writes_its_properties_to_its_directory(tmp_path: Path) -> None:
    node = Node(1, 19092, tmp_path / "node-1", ["java"], {"node.id": "1", "b": "2"})
    rows = (tmp_path / "node-1" / "server.properties").read_text().splitlines()
    assert rows == ["b=2", f"log.dirs={tmp_path / 'node-1' / 'data'}", "node.id=1"]
    assert node.address == "127.0.0.1:19092"
    assert not node.running
    assert node.output == ""


def test_free_ports_are_distinct_unused_and_in_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(MIN_PORT <= port <= MAX_PORT for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_uses_an_external_cluster_at_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(metadata_of(4)) as address:
        monkeypatch.setenv("KAFKA_ASYNC_BOOTSTRAP", address)
        with ExternalBackend() as cluster:
            assert cluster.bootstrap_servers == address


def test_an_external_cluster_without_address_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KAFKA_ASYNC_BOOTSTRAP", raising=False)
    with pytest.raises(BackendUnavailableError, match="set KAFKA_ASYNC_BOOTSTRAP"):
        ExternalBackend().start()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads the state from /proc")
def test_pauses_resumes_and_stops_a_node(tmp_path: Path) -> None:
    busy = [sys.executable, "-c", "while True: pass"]
    node = Node(1, 19092, tmp_path / "node-1", busy, {})
    node.start()
    assert node.pid is not None
    status = Path("/proc", str(node.pid), "stat")
    for _ in range(3):  # Each pause has to wait for its own notification.
        node.pause()
        assert status.read_text().rpartition(") ")[2][0] == "T"
        node.resume()
    node.pause()
    assert node.running
    node.stop()
    assert not node.running
