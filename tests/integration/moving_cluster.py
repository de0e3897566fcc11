"""Clusters whose brokers a test moves to new ports."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from kafka_async.testing.backends import ApacheBackend, BackendUnavailableError, EmbeddedBackend

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest

    from kafka_async.testing.backends.base import ClusterOptions
    from tests.conftest import CannotRun

Moving: TypeAlias = EmbeddedBackend | ApacheBackend
NAMES = ("embedded", "apache")


def chosen_backends(metafunc: pytest.Metafunc) -> list[str]:
    """Return the chosen backends that can move brokers."""
    names = str(metafunc.config.getoption("--kafka-backend")).split(",")
    return [name for name in names if name in NAMES]


@contextmanager
def started(name: str, options: ClusterOptions, cannot_run: CannotRun) -> Generator[Moving]:
    """Run a cluster of one of `NAMES`, which no other test uses."""
    cluster = (EmbeddedBackend if name == "embedded" else ApacheBackend)(**options)
    try:
        cluster.start()
    except BackendUnavailableError as error:
        cannot_run(cluster.name, error)
    try:
        yield cluster
        assert cluster.failures() == []
    finally:
        cluster.stop()


async def kill_brokers(cluster: Moving) -> list[int]:
    """Kill all brokers and return their ports."""
    ports = [int(address.rpartition(":")[2]) for address in cluster.bootstrap_servers.split(",")]
    for broker in range(1, cluster.brokers + 1):
        await asyncio.to_thread(cluster.kill_broker, broker)
    return ports


def first_address(cluster: Moving) -> str:
    """Return `host:port` of the first broker."""
    return cluster.bootstrap_servers.split(",")[0]
