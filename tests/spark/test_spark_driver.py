"""The example of a Spark driver without a cluster, without records, and without Spark."""

from __future__ import annotations

import asyncio
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

import kafka_async
from examples import spark_driver
from kafka_async import Client
from kafka_async.errors import BootstrapError
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.testing import run_virtual
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from kafka_async.spark import Orchestrator


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Replace the Spark session, to which the orchestrator would talk in threads."""
    session = Mock()
    orchestrator = spark_driver.Orchestrator

    def without_spark(servers: Client, _: object, *, name: str) -> Orchestrator:
        return orchestrator(servers, None, name=name)

    monkeypatch.setattr(spark_driver, "Orchestrator", without_spark)
    monkeypatch.setattr(spark_driver, "start_spark", session.start)
    return session


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_ends_before_spark_starts_if_brokers_do_not_answer(spark: Mock) -> None:
    async with InMemory() as memory:
        memory.hang()
        with pytest.raises(BootstrapError, match="it accepts connections but does not answer"):
            await spark_driver.main(memory.client(), "clicks")
    assert now() == pytest.approx(60.0)
    assert not spark.mock_calls


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_ends_with_one_error_if_there_are_no_records(spark: Mock) -> None:
    async with InMemory() as memory:
        async with memory.admin() as admin:
            await admin.create_topics([kafka_async.NewTopic("clicks", 1)])
        begun = now()
        with pytest.raises(spark_driver.DriverError, match="within 300 s: topic clicks has no new"):
            await spark_driver.main(memory.client(), "clicks")
    assert now() - begun < spark_driver.MAX_SECONDS + 5
    assert [call[0] for call in spark.mock_calls] == ["start", "start().stop"]


def test_program_ends_with_one_line_if_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_async, "run", run_virtual)
    monkeypatch.setattr(kafka_async, "Client", partial(Client, dialer=MemoryNetwork()))
    monkeypatch.setattr(sys, "argv", ["spark_driver.py", "127.0.0.1:9092", "clicks"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(spark_driver.__file__)), run_name="__main__")
    assert str(ended.value).startswith("spark_driver: ")
    assert "127.0.0.1:9092: connection refused" in str(ended.value)
    assert "pyspark" not in str(ended.value)
