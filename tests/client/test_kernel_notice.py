"""Tests of the log line that names the kernel in use."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka_async import Client
from kafka_async.client import client
from kafka_async.embedded import EmbeddedCluster
from kafka_async.foundation.memory_network import MemoryNetwork

LOG_KERNEL = client._log_kernel  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(autouse=True)
def not_logged_yet() -> Iterator[None]:
    LOG_KERNEL.cache_clear()
    yield
    LOG_KERNEL.cache_clear()


@pytest.mark.parametrize(
    ("kernel", "forced", "level", "words"),
    [
        ("c", None, logging.INFO, "the compiled kernel"),
        ("python", "python", logging.INFO, "KAFKA_ASYNC_KERNEL=python demands"),
        ("python", None, logging.WARNING, "Install a C compiler"),
    ],
)
def test_warns_of_missing_compiled_kernel(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kernel: str,
    forced: str | None,
    level: int,
    words: str,
) -> None:
    monkeypatch.setattr(client, "IMPLEMENTATION", kernel)
    if forced is None:
        monkeypatch.delenv("KAFKA_ASYNC_KERNEL", raising=False)
    else:
        monkeypatch.setenv("KAFKA_ASYNC_KERNEL", forced)
    with caplog.at_level(logging.INFO, "kafka_async.kernel"):
        LOG_KERNEL()
    (record,) = caplog.records
    assert record.levelno == level
    assert words in record.getMessage()


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_only_first_client_logs_kernel(caplog: pytest.LogCaptureFixture) -> None:
    network = MemoryNetwork()
    with caplog.at_level(logging.INFO, "kafka_async.kernel"):
        async with EmbeddedCluster(network=network) as cluster:
            for _ in range(2):
                async with Client(cluster.bootstrap_servers, dialer=network):
                    pass
    assert [record.name for record in caplog.records].count("kafka_async.kernel") == 1
