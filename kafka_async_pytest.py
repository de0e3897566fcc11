"""The pytest plugin of kafka-async: the fixture `kafka_cluster`, on one or more backends.

    async def test_orders(kafka_cluster):
        topic = kafka_cluster.topic("orders")
        async with Producer(kafka_cluster.bootstrap_servers) as producer: ...

`--kafka-backend embedded,apache` runs each such test once on each backend. One cluster per backend
is started when the first test requests it, and serves the whole session. To configure it, override
the fixture `kafka_cluster_options` in your conftest.py and return, for example, {"brokers": 3}.

The plugin is not part of the package kafka_async because pytest loads it in every run: this way
nothing of kafka_async is imported until a test requests the fixture.
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
        help="clusters that `kafka_cluster` tests run on, separated by commas: embedded (the "
        "default), apache or apache-VERSION (real Kafka; needs Java 17 and Maven), docker, "
        "external (the address in KAFKA_ASYNC_BOOTSTRAP)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses `kafka_cluster` once on each backend."""
    if "kafka_cluster" in metafunc.fixturenames:
        names = str(metafunc.config.getoption("--kafka-backend")).split(",")
        metafunc.parametrize("kafka_cluster", names, indirect=True)


@pytest.fixture(scope="session")
def kafka_cluster_options() -> ClusterOptions:
    """Return the options of the clusters; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def kafka_clusters(
    kafka_cluster_options: ClusterOptions,
    record_testsuite_property: Callable[[str, object], None],
) -> Iterator[Clusters]:
    """Provide the session's clusters, one per backend, each started when first requested."""
    from kafka_async.testing.fixtures import Clusters

    with Clusters(kafka_cluster_options, record_testsuite_property) as clusters:
        yield clusters


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_clusters: Clusters
) -> Iterator[ClusterHandle]:
    """Provide a running cluster, shared by the session's tests, with names unique to this test."""
    with kafka_clusters.handle(request.param) as handle:
        yield handle
    failures = handle.cluster.failures()
    if failures:
        pytest.fail(f"the cluster itself failed: {failures}")
