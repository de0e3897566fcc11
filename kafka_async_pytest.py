"""The pytest plugin of kafka-async: the fixture `kafka_cluster`, on one or more kinds of cluster.

    async def test_orders(kafka_cluster):
        topic = kafka_cluster.topic("orders")
        async with Producer(kafka_cluster.bootstrap_servers) as producer: ...

`--kafka-backend embedded,apache` runs each such test once on each. One cluster a backend is
started, when the first test asks for it, and serves the whole session. To shape it, override the
fixture `kafka_cluster_options` in your conftest.py, and return {"brokers": 3}, for one.

It is a module of its own so that pytest, which loads it in every run, imports nothing of
kafka_async until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_async.testing.backends import ClusterOptions
    from kafka_async.testing.fixtures import ClusterHandle, Clusters


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--kafka-backend`."""
    parser.getgroup("kafka").addoption(
        "--kafka-backend",
        default="embedded",
        metavar="NAMES",
        help="clusters that `kafka_cluster` tests run on, by commas: embedded (the default), "
        "apache or apache-VERSION (real Kafka; needs Java 17 and Maven), docker, external (the "
        "address in KAFKA_ASYNC_BOOTSTRAP)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses `kafka_cluster` once on each backend."""
    if "kafka_cluster" in metafunc.fixturenames:
        names = str(metafunc.config.getoption("--kafka-backend")).split(",")
        metafunc.parametrize("kafka_cluster", names, indirect=True)


@pytest.fixture(scope="session")
def kafka_cluster_options() -> ClusterOptions:
    """What the clusters are like; override it to change that."""
    return {}


@pytest.fixture(scope="session")
def kafka_clusters(
    kafka_cluster_options: ClusterOptions,
    record_testsuite_property: Callable[[str, object], None],
) -> Iterator[Clusters]:
    """The session's clusters, one a backend, each started when it is first asked for."""
    from kafka_async.testing.fixtures import Clusters

    with Clusters(kafka_cluster_options, record_testsuite_property) as clusters:
        yield clusters


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_clusters: Clusters
) -> Iterator[ClusterHandle]:
    """A running Kafka cluster, shared by the session's tests; its names are this test's own."""
    handle = kafka_clusters.handle(request.param)
    yield handle
    handle.reset()
    failures = handle.cluster.failures()
    if failures:
        pytest.fail(f"the cluster itself failed: {failures}")
