"""Backends by name, their settings, and the ports that they listen on."""

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
from kafka_async.testing.backends.nodes import HIGHEST_PORT, LOWEST_PORT, Node, free_ports
from kafka_async.testing.backends.settings import cluster_settings, node_settings
from tests.testing.fakes import knows, server


@pytest.mark.parametrize(
    ("word", "kind", "name"),
    [
        ("embedded", EmbeddedBackend, "embedded"),
        ("apache", ApacheBackend, "apache 4.4.0"),
        ("apache-3.9.1", ApacheBackend, "apache 3.9.1"),
        (" docker ", DockerBackend, "docker 4.4.0"),
        ("external", ExternalBackend, "external"),
    ],
)
def test_a_backend_by_its_name(word: str, kind: type, name: str) -> None:
    backend = create_backend(word, {"brokers": 3})
    assert type(backend) is kind
    assert backend.name == name


@pytest.mark.parametrize("word", ["", "kafka", "embedded-2", "docker-x"])
def test_an_unknown_name_is_answered_with_the_known_ones(word: str) -> None:
    with pytest.raises(ValueError, match=r"there are: embedded, apache, apache-VERSION, docker"):
        create_backend(word)


def test_whose_brokers_can_be_controlled_one_by_one() -> None:
    assert isinstance(ApacheBackend(), BrokerControl)
    assert isinstance(EmbeddedBackend(), BrokerControl)
    assert not isinstance(ExternalBackend(), BrokerControl)


@pytest.mark.parametrize(
    ("brokers", "copies", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_as_many_copies_as_there_are_brokers_up_to_three(
    brokers: int, copies: str, in_sync: str
) -> None:
    settings = cluster_settings(brokers, auto_create_topics=True, default_partitions=1)
    factors = {value for key, value in settings.items() if key.endswith("replication.factor")}
    minima = {value for key, value in settings.items() if key.endswith("min.isr")}
    assert factors == {copies}
    assert minima == {in_sync}
    assert settings["min.insync.replicas"] == in_sync


def test_whether_topics_make_themselves() -> None:
    for wanted, word in ((True, "true"), (False, "false")):
        settings = cluster_settings(1, auto_create_topics=wanted, default_partitions=7)
        assert settings["auto.create.topics.enable"] == word
        assert settings["num.partitions"] == "7"


def test_a_node_listens_on_the_loopback_only() -> None:
    settings = node_settings(2, 19092, "127.0.0.1:19093", "2@127.0.0.1:19093")
    for key in ("listeners", "advertised.listeners"):
        assert all("//127.0.0.1:" in one for one in settings[key].split(","))


def test_a_nodes_properties_are_written_where_its_data_goes(tmp_path: Path) -> None:
    node = Node(1, 19092, tmp_path / "node-1", ["java"], {"node.id": "1", "b": "2"})
    rows = (tmp_path / "node-1" / "server.properties").read_text().splitlines()
    assert rows == ["b=2", f"log.dirs={tmp_path / 'node-1' / 'data'}", "node.id=1"]
    assert node.address == "127.0.0.1:19092"
    assert not node.running
    assert node.output == ""


def test_free_ports_are_different_free_and_not_for_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(LOWEST_PORT <= port <= HIGHEST_PORT for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_an_external_cluster_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(knows(4)) as address:
        monkeypatch.setenv("KAFKA_ASYNC_BOOTSTRAP", address)
        with ExternalBackend() as cluster:
            assert cluster.bootstrap_servers == address


def test_without_an_address_there_is_no_external_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_ASYNC_BOOTSTRAP", raising=False)
    with pytest.raises(BackendUnavailableError, match="set KAFKA_ASYNC_BOOTSTRAP"):
        ExternalBackend().start()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads the state from /proc")
def test_a_paused_node_stands_still_and_goes_on_and_ends(tmp_path: Path) -> None:
    busy = [sys.executable, "-c", "while True: pass"]
    node = Node(1, 19092, tmp_path / "node-1", busy, {})
    node.start()
    assert node.pid is not None
    status = Path("/proc", str(node.pid), "stat")
    for _ in range(3):  # no pause may be content with the news of the one before
        node.pause()
        assert status.read_text().rpartition(") ")[2][0] == "T"
        node.resume()
    node.pause()
    assert node.running
    node.stop()
    assert not node.running
