"""Fixtures of integration tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.testing.backends.base import BackendUnavailableError
from tests.integration.certificates import Certificates
from tests.integration.kafka_tools import Tools
from tests.integration.moving_cluster import started
from tests.integration.raw_cluster import RawCluster
from tests.integration.secure_cluster import SecureCluster, SecureClusters
from tests.programs import python_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from pyspark.sql import SparkSession

    from kafka_async.testing.backends.base import ClusterOptions
    from kafka_async.testing.fixtures import ClusterHandle
    from tests.conftest import CannotRun
    from tests.integration.moving_cluster import Moving

SECURE_BACKENDS = ("embedded", "apache")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses `secure_cluster` once on each backend that has secure listeners."""
    if "secure_cluster" in metafunc.fixturenames:
        names = str(metafunc.config.getoption("--kafka-backend")).split(",")
        chosen = [name for name in names if name.partition("-")[0] in SECURE_BACKENDS]
        metafunc.parametrize("secure_cluster", chosen, indirect=True)


@pytest_asyncio.fixture
async def raw_cluster(kafka_cluster: ClusterHandle) -> AsyncIterator[RawCluster]:
    opened = await RawCluster.open(kafka_cluster.bootstrap_servers)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def tools(cannot_run: CannotRun) -> Tools:
    """Return Kafka's tools; where they cannot run, skip the test, or fail it if CI=true."""
    try:
        return Tools()
    except BackendUnavailableError as error:
        cannot_run("Kafka's tools", error)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def secure_clusters(
    certificates: Certificates, record_testsuite_property: Callable[[str, object], None]
) -> Iterator[SecureClusters]:
    with SecureClusters(certificates, record_testsuite_property) as clusters:
        yield clusters


@pytest.fixture
def secure_cluster(
    request: pytest.FixtureRequest, secure_clusters: SecureClusters
) -> Iterator[SecureCluster]:
    """Provide a cluster with secure listeners, with names unique to this test."""
    with secure_clusters.handle(request.param) as handle:
        yield secure_clusters.secure(handle)
    failures = handle.cluster.failures()
    if failures:
        pytest.fail(f"the cluster itself failed: {failures}")


@pytest.fixture(scope="module")
def moving_cluster(
    request: pytest.FixtureRequest, kafka_cluster_options: ClusterOptions, cannot_run: CannotRun
) -> Iterator[Moving]:
    """Start a cluster for the tests of one file, which move its brokers."""
    with started(request.param, kafka_cluster_options, cannot_run) as cluster:
        yield cluster


@pytest.fixture
def two_clusters(
    request: pytest.FixtureRequest, kafka_cluster_options: ClusterOptions, cannot_run: CannotRun
) -> Iterator[tuple[Moving, Moving]]:
    """Start two clusters of one broker each."""
    options: ClusterOptions = {**kafka_cluster_options, "brokers": 1, "racks": []}
    with (
        started(request.param, options, cannot_run) as former,
        started(request.param, options, cannot_run) as other,
    ):
        yield former, other


@pytest.fixture(scope="session")
def spark(spark_installation: None) -> Iterator[SparkSession]:
    """Start a local session without logging, which runs a failed task once more."""
    from pyspark.sql import SparkSession

    from tests.integration.faulty_sink import FaultySource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    session = (
        builder.master("local[2,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # So that pools have an effect; other tests do not depend on it.
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", python_path())
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(FaultySource)
    yield session
    session.stop()
