"""The fixture `kafka_cluster`, as a user's test session sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_async.testing.backends import (
    Backend,
    BackendUnavailableError,
    ClusterOptions,
    EmbeddedBackend,
)
from kafka_async.testing.fixtures import ClusterHandle, Clusters
from kafka_async.testing.topic_cleanup import TopicCleanup
from tests.testing.fakes import knows, server

ROOT = Path(__file__).parent.parent.parent


class Fake(Backend):
    """A cluster that counts what is done to it."""

    def __init__(self, lacking: str | None = None, broken: str | None = None) -> None:
        super().__init__("embedded", {})
        self.calls: list[str] = []
        self._lacking, self._broken = lacking, broken

    @property
    def bootstrap_servers(self) -> str:
        return "127.0.0.1:1"

    def start(self) -> None:
        self.calls.append("start")
        if self._lacking is not None:
            raise BackendUnavailableError(self._lacking)
        if self._broken is not None:
            raise OSError(self._broken)

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def recorded() -> list[tuple[str, object]]:
    return []


def clusters_of(
    backend: Backend, recorded: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch
) -> Clusters:
    def create(name: str, options: ClusterOptions) -> Backend:
        return backend

    monkeypatch.setattr("kafka_async.testing.fixtures.create_backend", create)
    return Clusters({}, lambda name, value: recorded.append((name, value)))


def handle_of(backend: Backend) -> ClusterHandle:
    return ClusterHandle(backend, TopicCleanup(backend))


def test_a_cluster_is_started_once_and_stopped_at_the_end(
    recorded: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Fake()
    with clusters_of(backend, recorded, monkeypatch) as clusters:
        assert backend.calls == []
        for _ in range(3):
            assert clusters.handle("embedded").cluster is backend
        assert backend.calls == ["start"]
    assert backend.calls == ["start", "stop"]
    assert recorded == [("kafka_backend", "embedded")]


def test_what_is_missing_is_a_skip_with_its_reason(
    recorded: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    backend = Fake(lacking="install Java 17 or newer")
    with clusters_of(backend, recorded, monkeypatch) as clusters:
        for _ in range(2):
            with pytest.raises(pytest.skip.Exception, match="install Java 17"):
                clusters.handle("apache")
    assert backend.calls == ["start"]
    assert recorded == [("not_run", "embedded (install Java 17 or newer)")]


def test_what_is_missing_is_a_failure_in_ci(
    recorded: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with (
        clusters_of(Fake(lacking="install Maven"), recorded, monkeypatch) as clusters,
        pytest.raises(pytest.fail.Exception, match="install Maven"),
    ):
        clusters.handle("apache")


def test_a_cluster_that_does_not_start_is_tried_once(
    recorded: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Fake(broken="no memory")
    with clusters_of(backend, recorded, monkeypatch) as clusters:
        for _ in range(2):
            with pytest.raises(OSError, match="no memory"):
                clusters.handle("apache")
    assert backend.calls == ["start"]


def test_names_are_a_tests_own() -> None:
    first, second = handle_of(Fake()), handle_of(Fake())
    assert first.topic("orders") == first.topic("orders")
    assert first.topic("orders").startswith("orders-")
    assert first.topic("orders") != second.topic("orders")
    assert len({first.topic("a"), first.topic("b"), first.group("c")}) == 3
    assert first.backend == "embedded"


def test_deletes_what_a_test_created_on_the_embedded_cluster() -> None:
    """Topics too whose names the fixture does not know."""
    with EmbeddedBackend() as backend:
        cluster = backend.cluster
        cluster.create_topic("before")
        handle = handle_of(backend)
        for name in (handle.topic("orders"), "unnamed"):
            cluster.create_topic(name)
        handle.topic("never-created")
        handle.reset()
        assert [topic.name for topic in cluster.cluster.topics] == ["before"]


def test_control_of_brokers_is_a_skip_where_there_is_none() -> None:
    with pytest.raises(pytest.skip.Exception, match="no control of single brokers"):
        _ = handle_of(Fake()).control


def test_faults_are_a_skip_where_there_are_none() -> None:
    with pytest.raises(pytest.skip.Exception, match="has no faults: run it with --kafka-backend"):
        _ = handle_of(Fake()).faults


USERS_TESTS = """
import os, sys
loaded_early = [name for name in sys.modules if name.split(".")[0] == "kafka_async"]

def test_nothing_is_loaded_before_it_is_asked_for():
    assert loaded_early == []

def test_cluster(kafka_cluster):
    assert kafka_cluster.backend == "external"
    assert kafka_cluster.bootstrap_servers == os.environ["KAFKA_ASYNC_BOOTSTRAP"]
"""


def test_a_users_session_with_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text(USERS_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "kafka_async_pytest"]
    with server(knows(1)) as address:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "--kafka-backend=external"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "KAFKA_ASYNC_BOOTSTRAP": address},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
