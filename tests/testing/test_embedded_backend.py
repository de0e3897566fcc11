"""The embedded backend: a cluster in a thread, controlled from the test's thread."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded import Failure
from kafka_async.testing.backends import EmbeddedBackend, embedded
from kafka_async.testing.backends.nodes import free_ports
from kafka_async.testing.backends.probe import broker_ids

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_stops_and_starts_single_brokers() -> None:
    with EmbeddedBackend(brokers=3) as backend:
        servers = backend.bootstrap_servers.split(",")
        assert [broker_ids(one, timeout=5) for one in servers] == [{1, 2, 3}] * 3
        backend.kill_broker(2)
        assert broker_ids(servers[0], timeout=5) == {1, 3}
        backend.start_broker(2)
        assert broker_ids(servers[1], timeout=5) == {1, 2, 3}


def test_tries_other_ports_if_one_was_taken_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBackend(brokers=2) as backend, socket.create_server(("127.0.0.1", 0)) as other:
        former = backend.bootstrap_servers.split(",")
        for broker_id in (1, 2):
            backend.stop_broker(broker_id)
        taken = [other.getsockname()[1]]

        def ports(count: int, *, exclude: Sequence[int]) -> list[int]:
            return [taken.pop()] if taken else free_ports(count, exclude=exclude)

        monkeypatch.setattr(embedded, "free_ports", ports)
        backend.start_at_new_ports()
        servers = backend.bootstrap_servers.split(",")
        assert set(servers).isdisjoint(former)
        assert broker_ids(servers[0], timeout=5) == {1, 2}
        assert backend.failures() == []


def test_passes_its_options_to_the_cluster() -> None:
    with EmbeddedBackend(brokers=2, auto_create_topics=False, default_partitions=7) as backend:
        settings = backend.cluster.cluster.settings
    assert not settings.auto_create_topics
    assert settings.default_partitions == 7
    assert settings.min_insync_replicas == 2


def test_reports_a_failure_of_the_cluster_once() -> None:
    with EmbeddedBackend() as backend:
        assert backend.failures() == []
        backend.cluster.failures.append(Failure("the log", LookupError("lost")))
        (failure,) = backend.failures()
        assert "lost" in failure
        assert backend.failures() == []


def test_starts_again_after_a_stop() -> None:
    backend = EmbeddedBackend()
    for _ in range(2):
        with backend:
            assert broker_ids(backend.bootstrap_servers, timeout=5) == {1}
    with pytest.raises(RuntimeError, match="was not started"):
        _ = backend.bootstrap_servers
