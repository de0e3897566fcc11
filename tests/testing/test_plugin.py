"""The fixture `kafka_cluster` in a test session."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.programs import ROOT, run_python
from tests.testing.fakes import metadata_of, server


class FakeBackend(Backend):
    """Records its calls."""

    def __init__(self, unavailable: str | None = None, broken: str | None = None) -> None:
        super().__init__("embedded", {})
        self.calls: list[str] = []
        self._unavailable, self._broken = unavailable, broken

    @property
    def bootstrap_servers(self) -> str:
        return "127.0.0.1:1"

    def start(self) -> None:
        self.calls.append("start")
        if self._unavailable is not None:
            raise BackendUnavailableError(self._unavailable)
        if self._broken is not None:
            raise OSError(self._broken)

    def stop(self) -> None:
        self.calls.append("stop")


ClustersOf = Callable[[Backend], Clusters]


@pytest.fixture
def recorded() -> list[tuple[str, object]]:
    return []


@pytest.fixture
def clusters_of(recorded: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch) -> ClustersOf:
    """Return a function that makes the clusters of a session with this backend."""

    def clusters(backend: Backend) -> Clusters:
        def create(name: str, options: ClusterOptions) -> Backend:
            return backend

        monkeypatch.setattr("kafka_async.testing.fixtures.create_backend", create)
        return Clusters({}, lambda name, value: recorded.append((name, value)))

    return clusters


def handle_of(backend: Backend) -> ClusterHandle:
    return ClusterHandle(backend, TopicCleanup(backend))


def test_starts_a_cluster_once_and_stops_it_at_the_end(
    clusters_of: ClustersOf, recorded: list[tuple[str, object]]
) -> None:
    backend = FakeBackend()
    with clusters_of(backend) as clusters:
        assert backend.calls == []
        for _ in range(3):
            assert clusters.handle("embedded").cluster is backend
        assert backend.calls == ["start"]
    assert backend.calls == ["start", "stop"]
    assert recorded == [("kafka_backend", "embedded")]


def test_skips_tests_of_an_unavailable_backend(
    clusters_of: ClustersOf,
    recorded: list[tuple[str, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    backend = FakeBackend(unavailable="install Java 17 or newer")
    with clusters_of(backend) as clusters:
        for _ in range(2):
            with pytest.raises(pytest.skip.Exception, match="install Java 17"):
                clusters.handle("apache")
    assert backend.calls == ["start"]
    assert recorded == [("not_run", "embedded (install Java 17 or newer)")]


def test_fails_tests_of_an_unavailable_backend_in_ci(
    clusters_of: ClustersOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with (
        clusters_of(FakeBackend(unavailable="install Maven")) as clusters,
        pytest.raises(pytest.fail.Exception, match="install Maven"),
    ):
        clusters.handle("apache")


def test_does_not_retry_a_cluster_that_failed_to_start(clusters_of: ClustersOf) -> None:
    backend = FakeBackend(broken="no memory")
    with clusters_of(backend) as clusters:
        for _ in range(2):
            with pytest.raises(OSError, match="no memory"):
                clusters.handle("apache")
    assert backend.calls == ["start"]


def test_names_are_unique_to_a_test() -> None:
    first, second = handle_of(FakeBackend()), handle_of(FakeBackend())
    assert first.topic("orders") == first.topic("orders")
    assert first.topic("orders").startswith("orders-")
    assert first.topic("orders") != second.topic("orders")
    assert len({first.topic("a"), first.topic("b"), first.group("c")}) == 3
    assert first.backend == "embedded"


def test_deletes_what_a_test_created_on_the_embedded_cluster() -> None:
    """Deletes also topics whose names did not come from the fixture."""
    with EmbeddedBackend() as backend:
        cluster = backend.cluster
        cluster.create_topic("before")
        with handle_of(backend) as handle:
            for name in (handle.topic("orders"), "unnamed"):
                cluster.create_topic(name)
            handle.topic("never-created")
        assert [topic.name for topic in cluster.cluster.topics] == ["before"]


def test_skips_on_a_backend_without_control_of_brokers() -> None:
    with pytest.raises(pytest.skip.Exception, match="no control of single brokers"):
        _ = handle_of(FakeBackend()).control


def test_skips_on_a_backend_without_faults() -> None:
    with pytest.raises(pytest.skip.Exception, match="has no faults: run it with --kafka-backend"):
        _ = handle_of(FakeBackend()).faults


APPLICATION_TESTS = """
import os, sys
loaded_early = [name for name in sys.modules if name.split(".")[0] == "kafka_async"]

def test_plugin_imports_nothing_of_the_package():
    assert loaded_early == []

def test_cluster(kafka_cluster):
    assert kafka_cluster.backend == "external"
    assert kafka_cluster.bootstrap_servers == os.environ["KAFKA_ASYNC_BOOTSTRAP"]
"""


def test_a_session_of_an_application_with_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text(APPLICATION_TESTS)
    command = ["-m", "pytest", "-q", "-p", "kafka_async_pytest", "-p", "no:cacheprovider"]
    with server(metadata_of(1)) as address:
        finished = run_python(
            *command,
            "--kafka-backend=external",
            cwd=tmp_path,
            PYTHONPATH=str(ROOT),
            KAFKA_ASYNC_BOOTSTRAP=address,
        )
    assert finished.returncode == 0, finished.stdout
    assert "2 passed" in finished.stdout
